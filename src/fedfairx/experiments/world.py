"""The world of the experiments: the paper's parameters, and calibrated ones that it does not state."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from fedfairx.agent.schedules import FigureGap
from fedfairx.core.confidence import Confidence
from fedfairx.experiments.experiment import Size
from fedfairx.simulation import Scenario

AGENTS = 10  # Solanki et al., section 6.4
EPSILON, DELTA = 2.0, 0.1  # the same; δ = 0.1 permits publishing a tenth of the records
CALIBRATION = "calibration.json"


@dataclass(frozen=True)
class Environment:
    """Parameters that the paper does not state: K, σ and the scale s of the radius."""

    arms: int
    noise_sd: float
    scale: float


@cache
def stored_calibration() -> dict[str, Any]:
    """The result of `fedfairx calibrate` that the package carries, with its settings."""
    text = (files("fedfairx.experiments") / "data" / CALIBRATION).read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
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


def confidence() -> Confidence:
    """λ=1, α=0.1, c=1 (fixed), σ and s as calibrated."""
    world = calibrated()
    return Confidence(noise_sd=world.noise_sd, scale=world.scale)


def options(**changes: Any) -> dict[str, Any]:
    """Keywords of `simulate` of a non-private run."""
    return {"confidence": confidence(), **changes}


def private(**changes: Any) -> dict[str, Any]:
    """Keywords of `simulate` of a private run at the paper's (ε, δ), with our default mechanism.

    Records are clipped around zero, as in the paper; what clipping around a public point saves is exp5's.
    """
    given = {"epsilon": EPSILON, "delta": DELTA, "mechanism": "blt", "centring": None}
    return options(**{**given, **changes})


def figure_gap(size: Size) -> FigureGap:
    """The schedule at which the paper's curves bend, shrunk with the horizon to keep its shape."""
    share = min(1.0, size.horizon / 100_000)
    return FigureGap(double_until=max(1, round(2048 * share)), gap=max(1, round(4330 * share)))
