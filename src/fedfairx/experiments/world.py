"""The world of the experiments: the paper's parameters, and calibrated ones that it does not state."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from fedfairx.agent.algorithms import algorithm as find_algorithm
from fedfairx.agent.schedules import FigureGap
from fedfairx.core.confidence import Confidence
from fedfairx.experiments.experiment import DATA, Run, Size, glossary
from fedfairx.simulation import Scenario

AGENTS = 10  # Solanki et al., section 6.4
EPSILON, DELTA = 2.0, 0.1  # the same; δ = 0.1 permits publishing a tenth of the records
B0, FED, PRIV = "fairx-linucb", "fed-fairx-linucb", "priv-fairx-linucb"
WORDS = glossary("the paper's rule", "B0", "Fed", "Priv")


@dataclass(frozen=True)
class Environment:
    """Parameters that the paper does not state: K, σ and the scale s of the radius."""

    arms: int
    noise_sd: float
    scale: float


@cache
def stored_calibration() -> dict[str, Any]:
    """The result of `fedfairx calibrate` that the package carries, with its settings."""
    loaded: dict[str, Any] = json.loads((DATA / "calibration.json").read_text(encoding="utf-8"))
    return loaded


@cache
def calibrated() -> Environment:
    """The stored calibration's world."""
    return Environment(**stored_calibration()["result"])


def scenario(size: Size, **changes: Any) -> Scenario:
    """The paper's world (m=10, d=5) with calibrated K and σ, but for `changes`."""
    world = calibrated()
    values: dict[str, Any] = {
        "agents": AGENTS,
        "arms": world.arms,
        "noise_sd": world.noise_sd,
        "horizon": size.horizon,
    }
    return Scenario(**{**values, **changes})


def options(**changes: Any) -> dict[str, Any]:
    """Keywords of `simulate` of a non-private run: λ=1, α=0.1, c=1 (fixed), σ and s as calibrated."""
    world = calibrated()
    return {"confidence": Confidence(noise_sd=world.noise_sd, scale=world.scale), **changes}


def run(key: str, world: Scenario, algorithm: str, **changes: Any) -> Run:
    """A run of one of the paper's algorithms, but for `changes`.

    A private one has the paper's (ε, δ) and our default mechanism. Records are clipped around zero, as in the
    paper; what clipping around a public point saves is exp5's.
    """
    private = {"epsilon": EPSILON, "delta": DELTA, "mechanism": "blt", "centring": None}
    keywords = private if find_algorithm(algorithm).private else {}
    return Run(key, world, algorithm, options(**{**keywords, **changes}))


def figure_gap(size: Size) -> FigureGap:
    """The schedule at which the paper's curves bend, shrunk with the horizon to keep its shape."""
    share = min(1.0, size.horizon / 100_000)
    return FigureGap(double_until=max(1, round(2048 * share)), gap=max(1, round(4330 * share)))
