"""The paper's world: its parameters, calibrated ones that it does not state, and what it plots."""

import csv
import json
import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fedfairx import Confidence, Scenario, schedules
from fedfairx.errors import InvalidInput
from paper.experiment import DATA, FAIRNESS, Run, Size, glossary
from paper.scores import Array

AGENTS = 10  # Solanki et al., section 6.4
EPSILON, DELTA = 2.0, 0.1  # the same; δ = 0.1 permits publishing a tenth of the records
B0, FED, PRIV = "fairx-linucb", "fed-fairx-linucb", "priv-fairx-linucb"
WORDS = glossary("the paper's rule", "B0", "Fed", "Priv")
Curve = tuple[Array, Array]


class Environment(NamedTuple):
    """Parameters that the paper does not state: K, σ and the scale s of the radius."""

    arms: int
    noise_sd: float
    scale: float


#: As fitted by `python -m paper calibrate`.
CALIBRATED = Environment(**json.loads((DATA / "calibration.json").read_text(encoding="utf-8"))["result"])


def scenario(size: Size, **changes: Any) -> Scenario:
    """The paper's world (m=10, d=5) with calibrated K and σ, but for `changes`."""
    values = {
        "agents": AGENTS,
        "arms": CALIBRATED.arms,
        "noise_sd": CALIBRATED.noise_sd,
        "horizon": size.horizon,
    }
    return Scenario(**{**values, **changes})


def options(**changes: Any) -> dict[str, Any]:
    """Keywords of `simulate` of a non-private run: λ=1, α=0.1, c=1 (fixed), σ and s as calibrated."""
    return {"confidence": Confidence(noise_sd=CALIBRATED.noise_sd, scale=CALIBRATED.scale), **changes}


def run(key: str, world: Scenario, algorithm: str, **changes: Any) -> Run:
    """A run of one of the paper's algorithms, but for `changes`.

    A private one has the paper's (ε, δ) and our default mechanism. Records are clipped around zero, as in the
    paper; what clipping around a public point saves is exp5's.
    """
    private = {"epsilon": EPSILON, "delta": DELTA, "mechanism": "blt", "centring": None}
    keywords = private if algorithm in (PRIV, "b1", "b2") else {}
    return Run(key, world, algorithm, options(**{**keywords, **changes}))


def figure_gap(size: Size) -> schedules.FigureGap:
    """The schedule at which the paper's curves bend, shrunk with the horizon to keep its shape."""
    share = min(1.0, size.horizon / 100_000)
    return schedules.FigureGap(double_until=max(1, round(2048 * share)), gap=max(1, round(4330 * share)))


@cache
def _curves() -> dict[tuple[str, str, str], Curve]:
    points: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    with (DATA / "paper_curves.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = row["experiment"], row["metric"], row["series"]
            points.setdefault(key, []).append((float(row["x"]), float(row["y"])))
    return {key: (np.array([x for x, _ in xy]), np.array([y for _, y in xy])) for key, xy in points.items()}


def curve(experiment: str, series: str, *, metric: str = FAIRNESS, until: float = math.inf) -> Curve:
    """x and y of a series that the paper plots, up to an x: a `round`, the `agents` or `epsilon`."""
    key = experiment, metric, series
    if key not in _curves():
        raise InvalidInput(f"the paper has no curve {'/'.join(key)}")
    x, y = _curves()[key]
    return x[x <= until], y[x <= until]
