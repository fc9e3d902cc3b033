"""Sums over rounds for every action or group; the exposure table is made from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfairx.core.merit import Exponential, Merit
from fedfairx.fairness.confidence_region import Region
from fedfairx.fairness.decision_log import Block, Codes
from fedfairx.fairness.entitlement import entitled, entitled_units, gradient_of_units, of_sets
from fedfairx.util.arrays import Array


@dataclass
class Tally:
    """Sums of m actions or groups, over the rounds in which each was available."""

    rounds: Array  # (m,)
    shown: Array
    policy: Array
    share: Array  # at θ̂
    low: Array  # round by round
    high: Array
    bend: Array
    gradient: Array  # (m, d)
    linear: bool = True  # whether gradient and bend bound anything

    @classmethod
    def empty(cls, size: int, dimension: int) -> Tally:
        rounds, shown, policy, share, low, high, bend = np.zeros((7, size))
        return cls(rounds, shown, policy, share, low, high, bend, np.zeros((size, dimension)))

    def count(self, block: Block, codes: Codes, sets: Sets) -> None:
        """Add the shares that a block shows."""
        size, named = self.rounds.size, codes >= 0
        self.rounds += np.bincount(codes[sets.first], minlength=size)
        taken = codes[np.arange(len(codes)), block.taken]
        self.shown += np.bincount(taken[taken >= 0], minlength=size)
        self.policy += np.bincount(codes[named], block.policy[named], size)

    def entitle(self, block: Block, codes: Codes, sets: Sets, region: Region | None, merit: Merit) -> None:
        """Add the entitlements in a block; `region` is None if merit can't be estimated."""
        size, named, once, times = self.rounds.size, codes >= 0, codes[sets.first], block.times[:, None]

        def each(values: Array) -> Array:  # sums over all actions of a set
            return np.bincount(codes[named], (times * values)[named], size).astype(np.float64)

        def one(values: Array) -> Array:  # values that all actions of a set share
            return np.bincount(once, (times * values)[sets.first], size).astype(np.float64)

        if region is None or block.contexts is None:
            self.high += one(np.ones(codes.shape))
            self.linear = False
            return
        places = block.contexts if block.contexts.ndim == 2 and region.root.ndim == 1 else None
        if places is None:
            bounds = entitled(region, merit, block.features(region.centre.size), sets.numbers)
        else:
            bounds = entitled_units(region, merit, places, Sets.of(places).numbers, sets.numbers)
        self.share += each(bounds.share)
        self.low += one(bounds.low)
        self.high += one(bounds.high)
        self.bend += one(bounds.bend)
        if not isinstance(merit, Exponential):
            self.linear = False
            return
        if bounds.gradient is None:
            assert places is not None
            shares = merit.steepness * times * bounds.share
            self.gradient += gradient_of_units(shares, places, region.root, codes, size)
            return
        for j in range(self.gradient.shape[1]):
            self.gradient[:, j] += each(bounds.gradient[..., j])

    def interval(self, radius: float) -> tuple[Array, Array]:
        """Return the smallest and the largest mean entitlement over the region."""
        rounds = np.maximum(self.rounds, 1.0)
        low, high = self.low / rounds, self.high / rounds
        if self.linear:
            reach = radius * np.sqrt(np.square(self.gradient).sum(axis=1)) + self.bend
            low = np.maximum(low, (self.share - reach) / rounds)
            high = np.minimum(high, (self.share + reach) / rounds)
        return low.clip(0.0, 1.0), high.clip(0.0, 1.0)


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
