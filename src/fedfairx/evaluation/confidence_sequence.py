"""A confidence sequence for the mean of conditional means, for values that are bounded on one side only.

X_i has conditional mean m_i given the past, and X_i - c_i ≥ -s_i for a guess c_i; guess and bound are fixed
before X_i. For ξ ≥ -1, 0 ≤ λ < 1 and ψ(λ) = -log(1 - λ) - λ, exp(λξ - ψ(λ)ξ²) ≤ 1 + λξ (Fan, Grama and Liu,
2015). With λ_i ≤ 1/s_i the product of

    exp(λ_i (X_i - m_i) - ψ(λ_i s_i) ((X_i - c_i)/s_i)²)

is therefore a supermartingale that starts at 1, and so is a mixture over several λ. It ever reaches 1/α with
probability at most α (Ville). Importance weights may be as large as they like: only the lower bound counts.
docs/explanation/evaluation.md has the proof in full.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fedfairx.util.arrays import Array

#: λ of the mixture in parts of 1/s: the smallest suits logs of about ten million decisions.
TILTS: Array = 0.9 * np.exp2(-0.5 * np.arange(26))
_STEPS = 60  # of bisection


def log_e_value(
    values: Array,
    *,
    least: float,
    bounds: Array | None = None,
    means: tuple[float, float] = (0.0, 1.0),
) -> Callable[[float], float]:
    """Return the logarithm of the mixture as a function of the mean of the m_i; it falls with that mean.

    least: what values are at least. It sets the rates λ, which must be fixed before the first value.
    bounds: (n,) what each value is at least where that may be lower; fixed before the value, as policies are.
    means: what each m_i is at least and at most.
    """
    floor, top = means
    count = values.size
    before = np.concatenate([[0.0], np.cumsum(values)[:-1]])
    guesses = ((before + 0.5 * (floor + top)) / np.arange(1, count + 1)).clip(floor, top)
    reach = top - (np.full(count, least) if bounds is None else np.minimum(bounds, least))
    squares = np.square((values - guesses) / reach)
    fastest = TILTS / (top - least)
    sums = np.empty(TILTS.size)
    for k, rate in enumerate(fastest):
        rates = np.minimum(rate, TILTS[0] / reach)
        within = rates * reach
        sums[k] = (rates * values + (np.log1p(-within) + within) * squares).sum()
        sums[k] += floor * (rate - rates).sum()  # where the rate had to be lower

    def at(mean: float) -> float:
        logs = sums - fastest * (count * mean)
        peak = float(logs.max())
        return peak + float(np.log(np.exp(logs - peak).mean()))

    return at


def lower_limit(
    values: Array,
    *,
    least: float,
    bounds: Array | None = None,
    means: tuple[float, float] = (0.0, 1.0),
    error: float,
) -> float:
    """Return a lower limit of the mean of the m_i, with the arguments of `log_e_value`.

    It holds at all times at once, however often a growing log is evaluated, with probability ≥ 1 - error.
    """
    mixture, limit = log_e_value(values, least=least, bounds=bounds, means=means), -math.log(error)
    low, high = means
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if mixture(middle) >= limit else (low, middle)
    return low
