"""Confidence sequences for a share: intervals that hold at all times, however often they are read.

They come from a mixture of martingales and Ville's inequality (proof: docs/explanation/exposure-proofs.md).
"""

from __future__ import annotations

import numpy as np

from fedfairx.util.arrays import Array

#: λ of the mixture, on either side: the largest detects a large change in ten rounds, the smallest a change
#: of 1 % of a share of a tenth in ten million rounds.
TILTS: Array = np.concatenate([side * 4.0 * np.exp2(-0.5 * np.arange(24)) for side in (-1.0, 1.0)])
_FIRST = 16
_STEPS = 50  # of bisection; the error is then below 1e-15


def spending(places: int) -> Array:
    """Return the share of the error that each of `places` actions gets; they sum to at most 1 for any number.

    Half goes to the first 16 actions, a sixth to the next 16, a twelfth to the next 32, and so on, doubling.
    """
    place = np.arange(places)
    batch = np.ceil(np.log2((place + 1) / _FIRST)).clip(min=0)
    size = np.where(batch == 0, _FIRST, _FIRST * np.exp2(batch - 1))
    return 1.0 / ((batch + 1.0) * (batch + 2.0) * size)


def log_mixture(shown: Array, rounds: Array, chance: Array, most: Array | None = None) -> Array:
    """Return the logarithm of the mixture at p = `chance`; all (n,).

    most: the most that a round can show, 1 unless given; `shown` and `chance` are in parts of it.
    """
    if most is None:
        tilts, growth = TILTS, np.log1p(chance[:, None] * np.expm1(TILTS))
    else:  # the same for tilts of any size
        tilts = most[:, None] * TILTS
        with np.errstate(divide="ignore"):
            growth = np.logaddexp(np.log1p(-chance)[:, None], np.log(chance)[:, None] + tilts)
    logs = shown[:, None] * tilts - rounds[:, None] * growth
    top = logs.max(axis=1)
    return np.asarray(top + np.log(np.exp(logs - top[:, None]).mean(axis=1)))


def share_interval(
    shown: Array, rounds: Array, error: Array, most: Array | None = None
) -> tuple[Array, Array]:
    """Return both ends of the confidence sequences for mean probabilities; `rounds` ≥ 1, all (n,).

    most: of several slots, the most weight that a round can show; the ends are then of the mean exposure.
    Each holds at all times at once with probability at least 1 - error.
    """
    if most is not None:
        shown = shown / most
    both = [np.concatenate([part, part]) for part in (shown, rounds, -np.log(error))]
    shown, rounds, limit = both
    scale = None if most is None else np.concatenate([most, most])
    inside = shown / rounds  # there the mixture is at most 1
    outside = np.repeat([0.0, 1.0], error.size)
    inside = np.where(log_mixture(shown, rounds, outside, scale) < limit, outside, inside)
    for _ in range(_STEPS):
        middle = 0.5 * (inside + outside)
        refused = log_mixture(shown, rounds, middle, scale) >= limit
        outside = np.where(refused, middle, outside)
        inside = np.where(refused, inside, middle)
    low, high = outside.reshape(2, -1)
    return (low, high) if most is None else (low * most, high * most)
