"""The paper's own numbers: every coordinate that its figures plot, and the ratios that follow from them."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

import numpy as np

from fedfairx.errors import InvalidInput
from fedfairx.util.arrays import Array

Curve = tuple[Array, Array]


@cache
def _curves() -> dict[tuple[str, str, str], Curve]:
    points: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    with (files("fedfairx.experiments") / "data" / "paper_curves.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = row["experiment"], row["metric"], row["series"]
            points.setdefault(key, []).append((float(row["x"]), float(row["y"])))
    return {key: (np.array([x for x, _ in xy]), np.array([y for _, y in xy])) for key, xy in points.items()}


def curve(experiment: str, metric: str, series: str) -> Curve:
    """x and y of a plotted series; `round`, `agents` or `epsilon` on the x axis."""
    key = experiment, metric, series
    if key not in _curves():
        raise InvalidInput(f"the paper has no curve {'/'.join(key)}")
    return _curves()[key]


def up_to(points: Curve, horizon: int) -> Curve:
    """The part of a curve over rounds that lies within a horizon."""
    x, y = points
    keep = x <= horizon
    return x[keep], y[keep]
