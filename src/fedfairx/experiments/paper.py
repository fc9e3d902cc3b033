"""The paper's own numbers: every coordinate that its figures plot, and the ratios that follow from them."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

import numpy as np

from fedfairx.arrays import Array
from fedfairx.errors import InvalidInput

Curve = tuple[Array, Array]
# Figure 1(a)'s Fed curve is the appendix's "reward regret" curve, at twice Exp 3's scale; half of it is
# the nearest to a fairness regret that the paper has.
FED_SCALE = 0.5


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


def fed_curve() -> Curve:
    """The paper's Fed in Exp 1, fairness regret: half of what Figure 1(a) plots."""
    x, y = curve("exp1", "fairness_regret", "fed-fairx-linucb")
    return x, FED_SCALE * y


def up_to(points: Curve, horizon: int) -> Curve:
    """The part of a curve over rounds that lies within a horizon."""
    x, y = points
    keep = x <= horizon
    return x[keep], y[keep]
