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

import numpy as np

from fedfairx.util.arrays import Array

Bound = Array | float

#: λ of the mixture, fixed before the log. The smallest suits logs of about ten million decisions, the largest
#: those in which another policy can hardly have earned anything else.
TILTS: Array = 0.9 * np.exp2(np.arange(8, -14, -1))
_MOST = 0.9  # of λ_i s_i
_CLOSEST = 1e-3  # least s_i; a larger one is as valid, and smaller ones lose digits
_STEPS = 60  # of bisection
_TOGETHER = 1 << 14  # products of values and λ that are computed at once, so that they stay in the cache


class Mixture:
    """The mixture over values that come in parts, of any sizes; it keeps sums, not values.

    All bounds are for each value or for all, and fixed before the value, as policies are.
    """

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0  # of the values
        self._sums = np.zeros(TILTS.size)

    def add(self, values: Array, *, least: Bound, floor: Bound = 0.0, top: Bound = 1.0) -> None:
        """Add the next values.

        least: what values are at least.
        floor, top: what the m_i are at least and at most.
        """
        before = self.total + np.concatenate([[0.0], np.cumsum(values)[:-1]])
        guesses = (before / np.maximum(self.count + np.arange(values.size), 1)).clip(floor, top)
        reach = np.maximum(guesses - least, _CLOSEST)
        squares = np.square((values - guesses) / reach)
        most, together = _MOST / reach, max(1, _TOGETHER // max(1, values.size))
        for first in range(0, TILTS.size, together):
            some = slice(first, first + together)
            tilts = TILTS[some, None]
            rates = np.minimum(tilts, most)
            within = rates * reach
            self._sums[some] += (rates * values + (np.log1p(-within) + within) * squares).sum(axis=1)
            self._sums[some] += (floor * (tilts - rates)).sum(axis=1)  # where the rate had to be lower
        self.count += values.size
        self.total += float(values.sum())

    def log_e_value(self, mean: float) -> float:
        """Return the logarithm of the mixture for a mean of the m_i; it falls with that mean."""
        logs = self._sums - TILTS * (self.count * mean)
        peak = float(np.maximum.reduce(logs))
        return peak + float(np.log(np.add.reduce(np.exp(logs - peak)) / logs.size))

    def lower_limit(self, low: float, high: float, *, error: float) -> float:
        """Return a lower limit of the mean of the m_i, which lies between `low` and `high`.

        It holds at all times at once, however often a growing log is evaluated, with probability ≥ 1 - error.
        """
        limit = -math.log(error)
        for _ in range(_STEPS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.log_e_value(middle) >= limit else (low, middle)
        return low


def lower_limit(values: Array, *, least: Bound, floor: Bound = 0.0, top: Bound = 1.0, error: float) -> float:
    """Return `Mixture.lower_limit` of values that are all there."""
    mixture = Mixture()
    mixture.add(values, least=least, floor=floor, top=top)
    return mixture.lower_limit(float(np.mean(floor)), float(np.mean(top)), error=error)
