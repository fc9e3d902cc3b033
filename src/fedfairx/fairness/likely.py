"""Verdicts under the model: which actions and groups are likely below or above what they are entitled to.

A share is below if it is less than four fifths of the entitled one (the tolerance), and above if it is more
than five quarters. Whether it is depends on θ, so the probability is the part of the draws of θ, those behind
credible intervals, for which it is. Of S draws n count as n/(S + 1): with θ* from the same distribution, a
verdict that at least 95 % of S + 1 draws share is wrong with probability 5 % at most.

Both the share shown and the share given, which is without the luck of the draw (`totals.Tally.give`), have to
be below. So nobody is below by bad luck alone, and nobody is in line who was shown too little. Given is known
exactly where the agent drew. Where the caller chose or withdrew it has an error, and a count has about its
own variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedfairx.fairness.totals import Tally
from fedfairx.util.arrays import Array

LEVEL = 0.95  # probability from which on there is a verdict
BELOW, ABOVE, IN_LINE, UNKNOWN = "likely below", "likely above", "in line", "not known yet"
_ABSENT, _SEEN = 20, 5  # times the mean distance of rounds that one who left is absent, and rounds at least


@dataclass(frozen=True)
class Likely:
    """What is likely of an action or a group, if the model and its prior are right.

    verdict: "likely below", "likely above", "in line" or "not known yet".
    below, in_line, above: probabilities. In the rest, it was shown one and given the other.
    more: decisions, about, until there is a verdict; None if there is one, or if nothing can be said.

    >>> import fedfairx as ffx
    >>> log = [ffx.Logged([0.9, 0.1], 0, [0, 1], names=["ann", "ben"], reward=0.5) for _ in range(100)]
    >>> table = ffx.exposure(log, posterior=([0.5, 0.5], [[0.001, 0.0], [0.0, 0.001]]))
    >>> [(row.name, row.likely.verdict) for row in table.actions]
    [('ann', 'likely above'), ('ben', 'likely below')]
    """

    verdict: str
    below: float
    in_line: float
    above: float
    more: int | None = None


class SharesSoFar(NamedTuple):
    """Shares of m actions or groups so far: shown, and without luck, which is known up to an error (sd)."""

    shown: Array
    without_luck: Array
    error: Array

    @classmethod
    def of(cls, tally: Tally) -> SharesSoFar:
        weight = np.where(tally.weight > 0, tally.weight, 1.0)
        variance = np.where(tally.free > 0, tally.most * (tally.luck + tally.most), 0.0)
        return cls(tally.shown / weight, tally.without_luck / weight, np.sqrt(variance) / weight)


def probabilities(shares: SharesSoFar, entitled: Array, tolerance: float) -> tuple[Array, Array, Array]:
    """Return (m,) the probabilities to be below, in line and above, for draws (m, S) of entitled shares."""
    least, most = (1.0 - tolerance) * entitled, entitled / (1.0 - tolerance)
    shown = shares.shown[:, None]
    under, over = _less(shares, least), 1.0 - _less(shares, most)
    below, above = under * (shown < least), over * (shown > most)
    between = (1.0 - under - over) * ((shown >= least) & (shown <= most))
    count = entitled.shape[1] + 1
    return below.sum(axis=1) / count, between.sum(axis=1) / count, above.sum(axis=1) / count


def _less(shares: SharesSoFar, limits: Array) -> Array:
    """Return (m, S) the probability that each given share is less than limits (m, S)."""
    from scipy.special import ndtr  # slow to import

    apart, error = limits - shares.without_luck[:, None], shares.error[:, None]
    exact = np.asarray(apart > 0.0, dtype=np.float64)
    return np.where(error > 0.0, ndtr(apart / np.where(error > 0.0, error, 1.0)), exact)


def verdict(below: float, in_line: float, above: float) -> str:
    """Return the verdict by these probabilities."""
    for probability, words in ((below, BELOW), (above, ABOVE), (in_line, IN_LINE)):
        if probability >= LEVEL:
            return words
    return UNKNOWN


def left(tally: Tally, decisions: int) -> Array:
    """Tell (m,) who is no longer among the actions: absent for far longer than between its rounds so far."""
    apart = (tally.last - tally.first) / np.maximum(tally.rounds - 1.0, 1.0)
    absent = decisions - 1 - tally.last
    return np.asarray((tally.rounds >= _SEEN) & (absent > _ABSENT * apart))
