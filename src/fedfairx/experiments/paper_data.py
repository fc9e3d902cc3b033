"""The paper's own numbers: every coordinate that its figures plot, and the ratios that follow from them."""

from __future__ import annotations

import csv
import math
from functools import cache

import numpy as np

from fedfairx.errors import InvalidInput
from fedfairx.experiments.experiment import DATA
from fedfairx.experiments.outcomes import FAIRNESS
from fedfairx.util.arrays import Array

Curve = tuple[Array, Array]


@cache
def _curves() -> dict[tuple[str, str, str], Curve]:
    points: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    with (DATA / "paper_curves.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = row["experiment"], row["metric"], row["series"]
            points.setdefault(key, []).append((float(row["x"]), float(row["y"])))
    return {key: (np.array([x for x, _ in xy]), np.array([y for _, y in xy])) for key, xy in points.items()}


def curve(experiment: str, metric: str, series: str, *, until: float = math.inf) -> Curve:
    """x and y of a plotted series up to an x, which is a `round`, the `agents` or `epsilon`."""
    key = experiment, metric, series
    if key not in _curves():
        raise InvalidInput(f"the paper has no curve {'/'.join(key)}")
    x, y = _curves()[key]
    return x[x <= until], y[x <= until]


def fairness(experiment: str, series: str, *, until: float = math.inf) -> Curve:
    """The curve of fairness regret."""
    return curve(experiment, FAIRNESS, series, until=until)
