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
_STEPS = 200  # at most; some 55 were seen for the error to be below 1e-15


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
    return _mixture(shown, rounds, chance, most)[0]


def _mixture(shown: Array, rounds: Array, chance: Array, most: Array | None) -> tuple[Array, Array]:
    """Return the logarithm of the mixture at p = `chance`, which is convex in p, and its derivative."""
    if most is None:
        tilts, rise = TILTS, np.expm1(TILTS)
        growth = np.log1p(chance[:, None] * rise)
        steepness = rise / (1.0 + chance[:, None] * rise)
    else:  # the same for tilts of any size
        tilts = most[:, None] * TILTS
        with np.errstate(divide="ignore"):
            growth = np.logaddexp(np.log1p(-chance)[:, None], np.log(chance)[:, None] + tilts)
        steepness = np.exp(np.minimum(tilts - growth, 600.0)) - np.exp(np.minimum(-growth, 600.0))
    logs = shown[:, None] * tilts - rounds[:, None] * growth
    top = logs.max(axis=1)
    parts = np.exp(logs - top[:, None])
    total = parts.sum(axis=1)
    return top + np.log(total / TILTS.size), -rounds * (parts * steepness).sum(axis=1) / total


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
    inside = (shown / rounds).clip(0.0, 1.0)  # there the mixture is at most 1; rounding may leave [0, 1]
    ends = np.repeat([0.0, 1.0], error.size)  # outside, or as far as an end can be
    reach = (limit + np.log(TILTS.size)) / rounds
    reach += np.sqrt(2.0 * reach * inside * (1.0 - inside))  # mostly a little beyond the end
    points = (inside + np.where(ends > 0.0, reach, -reach)).clip(0.0, 1.0)
    excess, left = np.full(ends.size, np.inf), np.arange(ends.size)
    for _ in range(_STEPS):  # the logarithm is convex: Newton's method from outside stays outside
        at = points[left]
        over, slope = _mixture(shown[left], rounds[left], at, None if scale is None else scale[left])
        over -= limit[left]
        within = over < 0.0
        inside[left] = np.where(within, at, inside[left])
        ends[left] = np.where(within, ends[left], at)
        slow = within | (over > 0.5 * excess[left])  # then the middle is next
        excess[left] = np.where(within, excess[left], over)
        width = inside[left] - ends[left]
        step = np.where(slow, 0.5 * width, -over / slope)
        points[left] = ends[left] + step
        # After such a step of Newton's the error is below 1e-15, too.
        done = np.where(slow, np.abs(width) <= 1e-15, (np.abs(step) <= 1e-12) & (over < 1e-3))
        ends[left] = np.where(done & ~slow, points[left], ends[left])
        left = left[~done]
        if not left.size:
            break
    low, high = ends.reshape(2, -1)
    return (low, high) if most is None else (low * most, high * most)
