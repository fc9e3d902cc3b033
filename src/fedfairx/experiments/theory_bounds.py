"""Measured regret beside the theorems' bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfairx.agent.pooling import noise_bounds
from fedfairx.agent.schedules import Paper, Plan
from fedfairx.core.confidence import Confidence
from fedfairx.experiments import world as env
from fedfairx.experiments.contents import Grid, words
from fedfairx.experiments.experiment import Size
from fedfairx.experiments.outcomes import Outcomes
from fedfairx.experiments.scores import number
from fedfairx.privacy import Bounds, calibrate
from fedfairx.theory import RegretBound, private_radius, theorem1_bound, theorem2_bound
from fedfairx.util.arrays import Array

STEEPNESS = 10.0  # of the paper's merit; means lie in [0, 1] for x/√d and ‖θ*‖ = 1
FAILURE = 0.1
AGENTS, DIMENSION = env.AGENTS, 5  # of Exp 1
_MERIT: dict[str, Any] = {"lipschitz": STEEPNESS * math.exp(STEEPNESS), "minimum_merit": 1.0}


def trivial(rounds: NDArray[np.int64]) -> Array:
    """Two policies differ by at most 2 in a round."""
    return np.asarray(2.0 * rounds, dtype=np.float64)


def fed_bound(horizon: int) -> RegretBound:
    """Theorem 1 with the theorem's own radius (scale 1)."""
    radius = Confidence(noise_sd=env.calibrated().noise_sd).radius(AGENTS * horizon, DIMENSION)
    return theorem1_bound(
        horizon, agents=AGENTS, dimension=DIMENSION, radius=radius, failure=FAILURE, **_MERIT
    )


def priv_bound(horizon: int) -> RegretBound:
    """Theorem 2 with blt noise, one shift on the sum, and the lemma's private radius."""
    releases = Paper().max_releases(Plan(horizon, AGENTS, DIMENSION))
    budget = {"epsilon": env.EPSILON, "delta": env.DELTA}
    mechanism = calibrate("blt", **budget, releases=releases, sensitivity=Bounds().sensitivity)
    loudest = float(np.max(mechanism.sd(np.arange(1, releases + 1)))) * math.sqrt(AGENTS)
    noise = noise_bounds(noise_sd=loudest, dimension=DIMENSION, releases=releases, failure=FAILURE)
    radius = private_radius(
        AGENTS * horizon,
        dimension=DIMENSION,
        noise_sd=env.calibrated().noise_sd,
        alpha=FAILURE,
        norm_bound=1.0,
        eigenvalue_low=noise.smallest,
        eigenvalue_high=noise.largest,
        moment_noise=noise.vector_cost,
    )
    return theorem2_bound(
        horizon,
        agents=AGENTS,
        dimension=DIMENSION,
        radius=radius,
        eigenvalue_low=noise.smallest / AGENTS,
        eigenvalue_high=noise.largest / AGENTS,
        failure=FAILURE,
        **_MERIT,
    )


def bound_grid(size: Size) -> Grid:
    """Exp 1's Fed and Priv at the horizon beside Theorems 1 and 2."""
    bounds = {
        "fed": ("Fed, Theorem 1", fed_bound(size.horizon)),
        "priv": ("Priv, Theorem 2", priv_bound(size.horizon)),
    }
    rows = []
    for name, (label, bound) in bounds.items():
        rows.append(
            (
                label,
                _mean(name),
                number(bound.printed / bound.agents),
                number(bound.per_agent),
                words("{times:.1e}", times=_times(bound.per_agent, name)),
                "vacuous" if bound.vacuous else "says something",
                words("t^{exponent:.2f}", exponent=_growth(name)),
            )
        )
    return Grid(
        "Measured regret beside the theorem's bound",
        (
            "algorithm",
            "measured at T",
            "the paper's expression",
            "bound with its constants",
            "bound / measured",
            f"against 2T = {number(2 * size.horizon)}",
            "measured growth",
        ),
        rows,
        "Per agent. Merit exp(10 μ) on [0, 1] has L/γ = 10·e¹⁰ = 2.2·10⁵, which alone makes the bounds "
        "vacuous; their use is the order √T. The bounds take the theorem's radius; the runs take the "
        "calibrated, narrower one.",
    )


def _mean(run: str) -> Callable[[Outcomes], float]:
    return lambda outcomes: float(outcomes[run].final().mean())


def _times(bound: float, run: str) -> Callable[[Outcomes], float]:
    return lambda outcomes: bound / float(outcomes[run].final().mean())


def _growth(run: str) -> Callable[[Outcomes], float]:
    return lambda outcomes: growth(outcomes[run].rounds, outcomes[run].fairness_regret)


def growth(rounds: NDArray[np.int64], regret: Array) -> float:
    """The exponent b of regret ∝ t^b over the last nine tenths of the rounds, on logarithmic axes."""
    late = rounds >= rounds[-1] / 10
    mean = regret.mean(axis=0)[late]
    return float(np.polyfit(np.log(rounds[late]), np.log(mean), 1)[0])
