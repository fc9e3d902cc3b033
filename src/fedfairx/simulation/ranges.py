"""How far a scenario's rewards reach: what a privatizer must know before the first record comes.

Bounds that are too tight spoil the estimate whatever ε is, and wide ones cost noise, so they follow from the
scenario's public laws, never from a seed's θ* or its records: the range of the means, widened where noise
takes more than `BEYOND` of the rewards past an end of it. That one in a hundred is by measurement:
docs/privacy.md has the table.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fedfairx.simulation.recorded import Recorded
from fedfairx.util.arrays import Array

if TYPE_CHECKING:
    from fedfairx.simulation.environments import Scenario

BEYOND = 0.01  # of the rewards of the best arm may lie above, of those of any arm below
STEPS = 20  # in one: ends are rounded outwards to them, so that the last bits of a quantile don't matter
ROUNDS = 4096
CHUNK = 2**20  # numbers drawn at a time


def reward_range(scenario: Scenario) -> tuple[float, float]:
    """The range of the means, and of all but the rarest rewards."""
    low, high = mean_range(scenario)
    rarest, commonest = _quantiles(scenario)
    return min(low, _outwards(rarest)), max(high, _outwards(commonest), 1.0 / STEPS)


def mean_range(scenario: Scenario) -> tuple[float, float]:
    """No mean of any arm lies outside, whatever θ* its law gives; a θ* that is given counts by its norm."""
    norm = 1.0 if isinstance(scenario.theta, str) else math.hypot(*scenario.theta)
    if scenario.theta == "box" and scenario.contexts != "one-hot":
        norm = math.sqrt(scenario.dimension)
    high = norm * scenario.context_norm
    negative = isinstance(scenario.contexts, Recorded) and float(scenario.contexts.contexts.min()) < 0.0
    return (-high if negative or _signed(scenario) else 0.0), high


def _signed(scenario: Scenario) -> bool:
    if isinstance(scenario.theta, str):
        return scenario.theta == "sphere"
    return min(scenario.theta) < 0.0


def _quantiles(scenario: Scenario) -> tuple[float, float]:
    """What all but `BEYOND` of any arm's rewards exceed, and all but `BEYOND` of the best arm's don't."""
    rng = np.random.default_rng(20_240_614)
    step = max(1, CHUNK // (scenario.arms * scenario.dimension))
    parts = [_rewards(scenario, rng, min(step, ROUNDS - begin)) for begin in range(0, ROUNDS, step)]
    any_arm, best = (np.concatenate(part) for part in zip(*parts, strict=True))
    return float(np.quantile(any_arm, BEYOND)), float(np.quantile(best, 1.0 - BEYOND))


def _rewards(scenario: Scenario, rng: np.random.Generator, rounds: int) -> tuple[Array, Array]:
    """Rewards of the first arm and of the best in so many rounds, each with a θ* of its own."""
    d = scenario.dimension
    contexts = _contexts(scenario, rng, rounds)
    theta = rng.normal(size=(rounds, d)) if _signed(scenario) else rng.random((rounds, d))
    if scenario.theta != "box":
        theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    if scenario.drift > 0:  # as it may be at some time of the run
        walked = scenario.drift * np.sqrt(scenario.horizon * rng.random((rounds, 1)))
        theta += walked * rng.normal(size=(rounds, d))
        theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    elif not isinstance(scenario.theta, str):
        theta *= math.hypot(*scenario.theta)
    means = np.einsum("rkd,rd->rk", contexts, theta)
    if scenario.noise == "bounded":
        noise = scenario.noise_sd * math.sqrt(3.0) * rng.uniform(-1.0, 1.0, (2, rounds))
    else:
        noise = scenario.noise_sd * rng.normal(size=(2, rounds))
    chosen = np.stack([means[:, 0], means.max(axis=1)])
    if scenario.noise == "heteroscedastic":
        noise *= 0.5 + np.abs(chosen)
    rewards = chosen + noise
    return rewards[0], rewards[1]


def _contexts(scenario: Scenario, rng: np.random.Generator, rounds: int) -> Array:
    """Contexts (rounds, K, d) by the scenario's law; of arms that stay, each round has arms of its own."""
    if isinstance(scenario.contexts, Recorded):
        records = scenario.contexts.contexts
        return np.asarray(records[rng.integers(len(records), size=rounds)])
    if scenario.contexts == "one-hot":
        return np.tile(np.eye(scenario.dimension), (rounds, 1, 1))
    contexts = rng.random((rounds, scenario.arms, scenario.dimension))
    if scenario.contexts == "unit-norm":
        return np.asarray(contexts / np.linalg.norm(contexts, axis=2, keepdims=True))
    return contexts if scenario.contexts == "raw" else contexts / math.sqrt(scenario.dimension)


def _outwards(value: float) -> float:
    """Away from zero to one of the `STEPS`."""
    return math.copysign(math.ceil(abs(value) * STEPS) / STEPS, value)
