"""Bounds on the share that merit entitles a set of actions to, over every θ of a confidence region.

There are two bounds, one round by round and one linear, and the interval is their intersection; the proofs
and the symbols are in docs/explanation/exposure-proofs.md. Of several slots an action is due a weight: its
share of all weights where no θ of the region has anybody capped, else by `entitled_slots`, without the linear
bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedfairx.core.merit import Custom, Exponential, Merit
from fedfairx.core.merit_kernels import log_merit_values
from fedfairx.core.slates import exposures_of
from fedfairx.fairness.confidence_region import Ellipsoid
from fedfairx.fairness.decision_log import Codes
from fedfairx.util.arrays import Array

_BEND = 9.0 / 64.0  # max of q (1 - q)(1/4 + |1 - 2q|)
_BEND_OF_RARE = 1.25  # since |q″| ≤ 5/4 q ρ²
_MANY = 64  # actions from which on the ends of capped exposures are bounded, not computed one by one


class Entitled(NamedTuple):
    """Bounds for n rounds with K actions each; each action of a set has the set's value."""

    share: Array  # (n, K) of each action at θ̂; a set's is their sum
    low: Array  # (n, K) of the set
    high: Array  # (n, K)
    gradient: Array | None  # (n, K, d) of each action, times W; a set's is their sum. None if not proved
    bend: Array  # (n, K) ½ρ² · the bound on |q″|/ρ² of the set
    merits: Merits

    def rows(self, rows: NDArray[np.bool_]) -> Entitled:
        """Return the bounds of some rounds."""
        gradient = None if self.gradient is None else self.gradient[rows]
        merits = Merits(*(part[rows] for part in self.merits))
        return Entitled(self.share[rows], self.low[rows], self.high[rows], gradient, self.bend[rows], merits)


class Merits(NamedTuple):
    """Logarithms of the merits of n rounds with K actions each, up to a number common to a round."""

    at_centre: Array  # (n, K)
    least: Array  # (n, K) over the region
    most: Array  # (n, K)

    def uncapped(self, weights: Array) -> NDArray[np.bool_]:
        """Return (n,) whether shares of all weights (n, m) can be given, for every θ of the region.

        They can if the k largest are at most v_1 + … + v_k for every k.
        """
        slots = weights.shape[1]
        if slots == 1:
            return np.ones(len(weights), dtype=np.bool_)
        most = np.sort(_set_bounds(self.least, self.most, None)[1], axis=1)[:, : -slots - 1 : -1]
        room = np.cumsum(weights, axis=1)
        within = room[:, -1:] * np.cumsum(most, axis=1) <= room
        return np.asarray(within[:, :-1].all(axis=1))


def entitled(region: Ellipsoid, merit: Merit, contexts: Array, sets: Codes | None) -> Entitled:
    """Compute the bounds for each round of contexts (n, K, d).

    sets: (n, K), the number of the set that each action is in; None if each action is a set.
    """
    logs = log_merit_values(merit, contexts @ region.centre)
    share = _shares(logs)
    if not isinstance(merit, Exponential):
        least, most = _merit_range(merit, contexts @ region.centre, region.widths(contexts))
        merits = Merits(logs, least, most)
        return Entitled(share, *_set_bounds(least, most, sets), None, np.zeros_like(share), merits)
    centred = contexts - np.einsum("nk,nkd->nd", share, contexts)[:, None, :]
    moves = merit.steepness * region.widths(centred)
    merits = Merits(logs, logs - moves, logs + moves)
    low, high = _set_bounds(merits.least, merits.most, sets)
    gradient = merit.steepness * share[..., None] * region.rooted(centred)
    return Entitled(share, low, high, gradient, _bend(moves, high), merits)


def entitled_units(
    region: Ellipsoid, merit: Merit, places: Codes, alike: Codes | None, sets: Codes | None
) -> Entitled:
    """Compute the bounds for unit vectors by their places (n, K), with diagonal W and without the gradient.

    alike: (n, K), the number of each place among those of its round; None if they differ.
    """
    means, widths = region.centre[places], region.root[places]
    logs = log_merit_values(merit, means)
    share = _shares(logs)
    if not isinstance(merit, Exponential):
        least, most = _merit_range(merit, means, region.radius * widths)
        merits = Merits(logs, least, most)
        return Entitled(share, *_set_bounds(least, most, sets), None, np.zeros_like(share), merits)
    centre = of_sets(share, alike)
    squares = np.square(widths * centre)
    if alike is not None:  # a place counts once
        squares /= of_sets(np.ones_like(share), alike)
    squares = np.square(widths * (1.0 - centre)) + _of_others(squares, alike)
    moves = merit.steepness * region.radius * np.sqrt(squares)
    merits = Merits(logs, logs - moves, logs + moves)
    low, high = _set_bounds(merits.least, merits.most, sets)
    return Entitled(share, low, high, None, _bend(moves, high), merits)


def entitled_slots(merits: Merits, weights: Array, sets: Codes | None) -> tuple[Array, Array, Array]:
    """Return exposures (n, K) at θ̂ for slots of these weights (n, m), and the least and the most of each set.

    A set gets most with its own merits at their upper and all others at their lower ends, and vice versa.
    """
    share = exposures_of(merits.at_centre, weights)
    arms = share.shape[1]
    numbers = np.broadcast_to(np.arange(arms), share.shape) if sets is None else sets
    if arms > _MANY:
        return share, *_slot_bounds(merits, weights, numbers)
    low, high = np.zeros_like(share), np.zeros_like(share)
    for number in range(int(numbers.max()) + 1):
        own = numbers == number
        for end, mine, others in ((low, merits.least, merits.most), (high, merits.most, merits.least)):
            exposures = exposures_of(np.where(own, mine, others), weights)
            end += np.where(own, np.where(own, exposures, 0.0).sum(axis=1, keepdims=True), 0.0)
    return share, low, high


def _slot_bounds(merits: Merits, weights: Array, sets: Codes) -> tuple[Array, Array]:
    """Return wider ends from two exposures a round: e/f of every action falls when any merit rises."""
    total, ratio = weights.sum(axis=1, keepdims=True), merits.most - merits.least
    lower = exposures_of(merits.most, weights) * np.exp(-ratio)
    due = exposures_of(merits.least, weights)
    precise = due > 1e-290  # below it digits are lost
    logs = np.log(np.where(precise, due, 1.0)) + ratio
    upper = np.where(precise, np.exp(np.minimum(logs, 0.0)), 1.0).clip(max=weights[:, :1])  # v_1 ≤ 1
    low = np.maximum(of_sets(lower, sets), total - _of_others(upper, sets))
    return low, np.minimum(of_sets(upper, sets), total - _of_others(lower, sets))


def gradient_of_units(shares: Array, places: Codes, root: Array, codes: Codes, size: int) -> Array:
    """Sum shares · (e - x̄) · W over all rounds for each of m codes, (m, d); `root` is the diagonal of W.

    shares: (n, K), c q̂ times how often the round occurred; x̄ follows from them.
    """
    rounds, dimension = len(places), root.size
    times = shares.sum(axis=1, keepdims=True)
    scaled = shares * root[places]
    named = codes >= 0
    own = np.bincount((codes * dimension + places)[named], scaled[named], size * dimension)
    line = np.arange(rounds)[:, None]
    of_codes = np.bincount((line * size + codes)[named], (shares / times)[named], rounds * size)
    centre = np.bincount((line * dimension + places).ravel(), scaled.ravel(), rounds * dimension)
    both = of_codes.reshape(rounds, size).T @ centre.reshape(rounds, dimension)
    gradient: Array = own.reshape(size, dimension) - both
    return gradient


def _bend(moves: Array, high: Array) -> Array:
    rho = 2.0 * moves.max(axis=1, keepdims=True)
    return bend_of(rho**2, high)


def bend_of(span: Array, high: Array) -> Array:
    """Return the bound on the bend of shares of at most `high`, if log merits move within ρ; ρ² = `span`."""
    return np.asarray(0.5 * span * np.minimum(_BEND, _BEND_OF_RARE * high))


def _shares(logs: Array) -> Array:
    merits = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(merits / merits.sum(axis=1, keepdims=True))


def _merit_range(merit: Merit, means: Array, widths: Array) -> tuple[Array, Array]:
    """Return the logarithms of the least and the most merit of means within `widths`."""
    if isinstance(merit, Custom):  # it may decrease
        values, moves = np.exp(log_merit_values(merit, means)), merit.lipschitz_constant * widths
        return np.log(np.maximum(values - moves, merit.minimum_merit)), np.log(values + moves)
    return log_merit_values(merit, means - widths), log_merit_values(merit, means + widths)


def _set_bounds(least: Array, most: Array, sets: Codes | None) -> tuple[Array, Array]:
    top = most.max(axis=1, keepdims=True)
    small, large = np.exp(least - top), np.exp(most - top)
    own_small, own_large = of_sets(small, sets), of_sets(large, sets)
    others_small, others_large = _of_others(small, sets), _of_others(large, sets)
    tiny = 1e-300  # 0/0 where everything is far below the top: any share is possible then
    low = own_small / np.maximum(own_small + others_large, tiny)
    total = own_large + others_small
    high = np.where(total > tiny, own_large / np.maximum(total, tiny), 1.0)
    return low, high


def of_sets(values: Array, sets: Codes | None) -> Array:
    """Return (n, K) sums over the set that each action is in."""
    return values if sets is None else np.take_along_axis(_by_set(values, sets), sets, axis=1)


def _by_set(values: Array, sets: Codes) -> Array:
    """Return (n, K) sums over each set of a round, which has no more sets than actions."""
    rounds, arms = values.shape
    sums = np.bincount((np.arange(rounds)[:, None] * arms + sets).ravel(), values.ravel(), rounds * arms)
    return sums.astype(np.float64).reshape(rounds, arms)


def _of_others(values: Array, sets: Codes | None) -> Array:
    """Return (n, K) sums over all but the set that each action is in, added up: a difference would cancel."""
    if sets is not None:
        return np.take_along_axis(_of_others(_by_set(values, sets), None), sets, axis=1)
    none = np.zeros_like(values[:, :1])
    before = np.hstack([none, np.cumsum(values[:, :-1], axis=1)])
    after = np.hstack([np.cumsum(values[:, :0:-1], axis=1)[:, ::-1], none])
    others: Array = before + after
    return others
