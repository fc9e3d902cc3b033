"""Sums over rounds for every action or group; the exposure table is made from them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedfairx.core.merit import Exponential, Merit
from fedfairx.fairness.confidence_region import Ellipsoid
from fedfairx.fairness.decision_log import Block, Codes
from fedfairx.fairness.entitlement import (
    Entitled,
    entitled,
    entitled_slots,
    entitled_units,
    gradient_of_units,
    of_sets,
)
from fedfairx.util.arrays import Array


@dataclass
class Tally:
    """Sums of m actions or groups, over the rounds in which each was available."""

    rounds: Array  # (m,)
    times: Array  # how often shown
    shown: Array  # weight of its slots
    weight: Array  # of all slots that were seen
    most: Array  # the most weight that it can have in one of its rounds
    policy: Array  # expected weight
    without_luck: Array  # weight without the luck of the draw, as far as that is known: see `give`
    luck: Array  # expected weight, or weight, in rounds where it is not
    free: Array  # how many these are
    first: Array  # position in the log of the first round
    last: Array
    share: Array  # of weights, at θ̂
    low: Array  # round by round
    high: Array
    middle: Array  # of the linear bound
    bend: Array
    gradient: Array  # (m, d)
    shown_over_time: Array  # (m, stretches of time)
    weight_over_time: Array
    linear: bool = True  # whether gradient and bend bound anything

    @classmethod
    def empty(cls, size: int, dimension: int, stretches: int = 1) -> Tally:
        gradient, over_time = np.zeros((size, dimension)), np.zeros((2, size, stretches))
        rounds, times, shown, weight, most, policy, *sums = np.zeros((14, size))
        without_luck, luck, free, share, low, high, middle, bend = sums
        places = np.full(size, np.inf), np.full(size, -np.inf)
        counts, ends = (rounds, times, shown, weight, most, policy), (low, high, middle, bend, gradient)
        return cls(*counts, without_luck, luck, free, *places, share, *ends, *over_time)

    def count(self, block: Block, codes: Codes, sets: Sets) -> None:
        """Add the shares that a block shows."""
        size, named, once = self.rounds.size, codes >= 0, codes[sets.first]
        self.rounds += np.bincount(once, minlength=size)
        taken = np.where(block.taken >= 0, codes[np.arange(len(codes))[:, None], block.taken], -1)
        shown = taken >= 0
        self.times += np.bincount(taken[shown], minlength=size)
        seen = np.broadcast_to((block.times * block.weights.sum(axis=1))[:, None], codes.shape)
        self._over_time(self.shown_over_time, taken, shown, block.stretch, block.weights)
        self._over_time(self.weight_over_time, codes, sets.first, block.stretch, seen)
        self.shown += np.bincount(taken[shown], block.weights[shown], size)
        self.weight += np.bincount(once, seen[sets.first], size)
        np.maximum.at(self.most, once, sets.most(block.weights)[sets.first])
        self.policy += np.bincount(codes[named], (block.times[:, None] * block.policy)[named], size)

    def give(self, block: Block, codes: Codes, sets: Sets) -> None:
        """Add what a block gives without the luck of the draw: what the policy said it would show.

        Where the caller chose by itself, it is what was shown. Where it withdrew a draw, it is what was shown
        less what was drawn plus what the policy said: those whose draws are withdrawn more often lose.
        """
        size, named = self.rounds.size, codes >= 0
        at = np.broadcast_to(block.positions[:, None], codes.shape)[named]
        self.first[codes[named][::-1]] = np.minimum(self.first[codes[named]], at)[::-1]
        self.last[codes[named]] = np.maximum(self.last[codes[named]], at)  # the last of several is assigned
        drawn = ~block.baseline
        self.without_luck += np.bincount(
            codes[named & drawn[:, None]], block.policy[named & drawn[:, None]], size
        )
        free = block.baseline | (block.times < 1.0)
        if not free.any():
            return
        rows = np.arange(len(codes))[:, None]
        taken = np.where((block.taken >= 0) & free[:, None], codes[rows, block.taken], -1)
        draws = np.where((drawn & free)[:, None], codes[rows, block.drawn], -1)
        for sign, each in ((1.0, taken), (-1.0, draws)):
            self.without_luck += sign * np.bincount(each[each >= 0], block.weights[each >= 0], size)
        own = np.where(block.baseline[:, None], taken, -1)
        withdrawn = named & (drawn & free)[:, None]
        self.luck += np.bincount(own[own >= 0], block.weights[own >= 0], size)
        self.luck += np.bincount(codes[withdrawn], block.policy[withdrawn], size)
        self.free += np.bincount(codes[sets.first & free[:, None]], minlength=size)

    @staticmethod
    def _over_time(
        sums: Array, codes: Codes, which: NDArray[np.bool_], stretch: Codes, values: Array
    ) -> None:
        """Add values by code and stretch of time."""
        size, width = sums.shape
        cells = (codes * width + stretch[:, None])[which]
        sums += np.bincount(cells, values[which], size * width).reshape(size, width)

    def entitle(self, block: Block, codes: Codes, sets: Sets, region: Ellipsoid | None, merit: Merit) -> None:
        """Add the entitlements in a block; `region` is None if merit can't be estimated."""
        add = _Add(codes, sets.first, block.times[:, None], self.rounds.size)
        if region is None or block.contexts is None:
            self.high += add.one(sets.most(block.weights))
            self.linear = False
            return
        places = block.contexts if block.contexts.ndim == 2 and region.root.ndim == 1 else None
        if places is None:
            bounds = entitled(region, merit, block.features(region.centre.size), sets.numbers)
        else:
            bounds = entitled_units(region, merit, places, Sets.of(places).numbers, sets.numbers)
        self.linear &= isinstance(merit, Exponential)
        free = bounds.merits.uncapped(block.weights)
        if not free.all():
            capped, bounds = bounds.rows(~free), bounds.rows(free)
            of_capped = None if sets.numbers is None else sets.numbers[~free]
            ends = entitled_slots(capped.merits, block.weights[~free], of_capped)
            self._entitle_capped(add[~free], *ends)
            add, places = add[free], None if places is None else places[free]
            block = block[free]
        add = replace(add, times=add.times * block.weights.sum(axis=1, keepdims=True))
        self._entitle_free(add, bounds, places, region, merit)

    def _entitle_capped(self, add: _Add, share: Array, low: Array, high: Array) -> None:
        """Add exposures that may be capped: the linear bound has nothing better than their ends."""
        self.share += add.each(share)
        self.low += add.one(low)
        self.high += add.one(high)
        self.middle += add.one(0.5 * (low + high))
        self.bend += add.one(0.5 * (high - low))

    def _entitle_free(
        self, add: _Add, bounds: Entitled, places: Codes | None, region: Ellipsoid, merit: Merit
    ) -> None:
        """Add shares of all weights."""
        self.share += add.each(bounds.share)
        self.low += add.one(bounds.low)
        self.high += add.one(bounds.high)
        self.middle += add.each(bounds.share)
        self.bend += add.one(bounds.bend)
        if not isinstance(merit, Exponential):
            return
        if bounds.gradient is None:
            assert places is not None
            shares = merit.steepness * add.times * bounds.share
            self.gradient += gradient_of_units(shares, places, region.root, add.codes, add.size)
            return
        for j in range(self.gradient.shape[1]):
            self.gradient[:, j] += add.each(bounds.gradient[..., j])

    def interval(self, radius: float) -> tuple[Array, Array]:
        """Return the smallest and the largest mean entitlement over the region."""
        weight = np.where(self.weight > 0, self.weight, 1.0)
        low, high = self.low / weight, self.high / weight
        if self.linear:
            reach = radius * np.sqrt(np.square(self.gradient).sum(axis=1)) + self.bend
            low = np.maximum(low, (self.middle - reach) / weight)
            high = np.minimum(high, (self.middle + reach) / weight)
        return low.clip(0.0, 1.0), high.clip(0.0, 1.0)


@dataclass(frozen=True)
class _Add:
    """Sums of a block's values by code."""

    codes: Codes  # (n, K)
    first: NDArray[np.bool_]  # (n, K)
    times: Array  # (n, 1)
    size: int

    def __getitem__(self, rows: NDArray[np.bool_]) -> _Add:
        return _Add(self.codes[rows], self.first[rows], self.times[rows], self.size)

    def each(self, values: Array) -> Array:
        """Sum over all actions of a set."""
        named = self.codes >= 0
        return np.bincount(self.codes[named], (self.times * values)[named], self.size).astype(np.float64)

    def one(self, values: Array) -> Array:
        """Sum values that all actions of a set share."""
        once = self.codes[self.first]
        return np.bincount(once, (self.times * values)[self.first], self.size).astype(np.float64)


@dataclass(frozen=True)
class Sets:
    """Sets of rows of a block: those of one group, or of an action that occurs twice."""

    first: NDArray[np.bool_]  # (n, K) whether a row is the first of its set
    numbers: Codes | None  # (n, K) number of a row's set in its round; None if every row is a set

    @classmethod
    def of(cls, codes: Codes) -> Sets:
        order = np.argsort(codes, axis=1, kind="stable")
        ordered = np.take_along_axis(codes, order, axis=1)
        new = np.ones(codes.shape, dtype=np.bool_)
        new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
        if new.all():
            return cls(codes >= 0, None)
        first, numbers = np.empty_like(new), np.empty_like(codes)
        np.put_along_axis(first, order, new, axis=1)
        np.put_along_axis(numbers, order, new.cumsum(axis=1) - 1, axis=1)
        return cls((codes >= 0) & first, numbers)

    def of_sets(self, values: Array) -> Array:
        return of_sets(values, self.numbers)

    def most(self, weights: Array) -> Array:
        """Return (n, K) the most weight that a row's set can have, in slots of these weights (n, m)."""
        if self.numbers is None:
            return np.broadcast_to(weights[:, :1], self.first.shape)
        sizes = self.of_sets(np.ones(self.first.shape)).astype(np.int64)
        place = np.minimum(sizes, weights.shape[1]) - 1
        return np.take_along_axis(np.cumsum(weights, axis=1), place, axis=1)
