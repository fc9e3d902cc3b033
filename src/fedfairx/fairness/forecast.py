"""How many more rewards it may take until an action's verdict is certain, or likely: a rough forecast.

It assumes that coming rounds are like the latest ones, that θ* is the posterior's mean, that actions are
shown in proportion to merit, and that rewards come as often as before. Then after x more rewards Σxxᵀ is
G + xM, with M the mean of Σ q_a x_a x_aᵀ over rounds, and both intervals follow from their formulas: the
linear bound of `entitlement` with the radius of `confidence_region`, and the confidence sequence of the share
shown. For a likely verdict, the sd of the entitled share is today's times how much vᵀ(A + xM)⁻¹v shrinks.

With A = G + Λ = L Lᵀ, Λ diagonal with λ, and L⁻¹ M L⁻ᵀ = Q diag(κ) Qᵀ, every x has the same eigenvectors:
vᵀ(A + xM)⁻¹v = Σ_k (Qᵀ L⁻¹ v)_k² / (1 + x κ_k) and ln|A + xM| = ln|A| + Σ_k ln(1 + x κ_k).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedfairx.core.merit import Exponential
from fedfairx.fairness.confidence_sequences import share_interval
from fedfairx.fairness.decision_log import Block, Codes
from fedfairx.fairness.entitlement import bend_of
from fedfairx.fairness.likely import LEVEL, SharesSoFar
from fedfairx.util.arrays import Array

_ROUNDS, _NUMBERS = 64, 1 << 21  # of the latest rounds, at most, and numbers in them
_LUCK = (
    0.25  # of the variance of shares shown: a verdict comes as soon as luck allows, not when all luck does
)
_GRID: Array = np.exp(np.linspace(0.0, math.log(1e9), 120))  # numbers of rewards, each a fifth more

#: Which of these shares and entitlements, each as low and high, are judged with certainty.
Certain = Callable[[Array, Array, Array, Array], NDArray[np.bool_]]


class ShownSoFar(NamedTuple):
    """What m actions or groups were shown so far, and the error of each one's interval."""

    rounds: Array
    shown: Array
    errors: Array


class Forecast:
    """The intervals of entitlements after each number of rewards in a grid."""

    def __init__(
        self,
        latest: Block,
        theta: Array,
        gram: Array,
        merit: Exponential,
        noise_sd: float,
        error: float,
        ridge: Array,
    ) -> None:
        """Forecast from the latest rounds, θ, G, what the region was computed with, and λ (d,) of each."""
        dimension, arms = theta.size, latest.policy.shape[1]
        most = max(1, min(_ROUNDS, _NUMBERS // (arms * dimension)))
        self.latest = latest[-most:]
        contexts = self.latest.features(dimension)
        steepness = merit.steepness
        logs = steepness * contexts @ theta
        shares = np.exp(logs - logs.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        places = None if contexts is self.latest.contexts else self.latest.contexts
        centred = contexts - np.einsum("nk,nkd->nd", shares, contexts)[:, None, :]
        if places is not None and np.count_nonzero(gram) == np.count_nonzero(np.diagonal(gram)):
            sizes = np.diagonal(gram) + ridge  # all is diagonal
            rates = np.bincount(places.ravel(), shares.ravel() / len(shares), dimension) / sizes
            volume, along = float(np.log(sizes).sum()), centred / np.sqrt(sizes)
        else:
            weighted = (np.sqrt(shares / len(shares))[..., None] * contexts).reshape(-1, dimension)
            whole, added = gram + np.diag(ridge), weighted.T @ weighted
            basis, rates, volume = _diagonalised(whole, added)
            along = centred @ basis.T  # (n, K, d)
        shrinking = 1.0 / (1.0 + _GRID[:, None] * rates)  # (x, d)
        volumes = volume - float(np.log(ridge).sum()) + np.log1p(_GRID[:, None] * rates).sum(axis=1)
        spread = noise_sd**2 * (2.0 * math.log(1.0 / error) + volumes)
        self._radius = np.sqrt(spread + float(ridge @ np.square(theta)))  # (x,)
        widest = np.sqrt(np.square(along) @ shrinking.T).max(axis=1)  # (n, x)
        self._spans = np.square(2.0 * steepness * self._radius * widest).mean(axis=0)  # ρ²
        self._shares, self._shrinking = shares, shrinking
        self._gradients = steepness * shares[..., None] * along

    def rewards(self, codes: Codes, seen: ShownSoFar, so_far: int, certain: Certain) -> Array:
        """Return (m,) how many more rewards each needs; NaN where that can't be said.

        codes: (n, K) of the latest rounds. so_far: rewards that came in the rounds seen.
        """
        size = seen.rounds.size
        here, due, gradient = self._of(codes, size)
        squares = np.square(gradient) @ self._shrinking.T
        reach = self._radius * np.sqrt(squares)  # (m, x)
        off = reach + bend_of(self._spans, due[:, None] + reach)
        more = seen.rounds / so_far  # rounds for each reward

        def sure(each: Codes, at: Codes) -> NDArray[np.bool_]:
            rounds = more[each] * _GRID[at]
            shown = seen.shown[each] + due[each] * rounds
            ends = share_interval(shown, seen.rounds[each] + rounds, seen.errors[each])
            low, high = due[each] - off[each, at], due[each] + off[each, at]
            return certain(*ends, low.clip(min=0.0), high.clip(max=1.0))

        numbers = np.full(size, math.nan)
        which = np.flatnonzero(here)
        which = which[sure(which, np.full(which.size, _GRID.size - 1))]
        low, high = np.zeros(which.size, dtype=np.int64), np.full(which.size, _GRID.size - 1)
        while (low < high).any():
            middle = (low + high) // 2
            enough = sure(which, middle)
            low, high = np.where(enough, low, np.minimum(middle + 1, high)), np.where(enough, middle, high)
        numbers[which] = _GRID[low]
        return numbers

    def _of(self, codes: Codes, size: int) -> tuple[Array, Array, Array]:
        """Return in how many of the latest rounds each occurs, its mean share, and its gradient (m, d)."""
        named = codes >= 0
        here = _times_seen(codes, size)
        there = np.maximum(here, 1.0)
        due = np.bincount(codes[named], self._shares[named], size) / there
        gradient = np.zeros((size, self._gradients.shape[2]))
        np.add.at(gradient, codes[named], self._gradients[named])
        return here, due, gradient / there[:, None]

    def likely(
        self, codes: Codes, seen: SharesSoFar, rounds: Array, entitled: Array, tolerance: float, growth: float
    ) -> Array:
        """Return (m,) how many more rewards it takes until a verdict is likely; NaN where that can't be said.

        entitled: (m, S) draws of the entitled shares so far.
        growth: by which part of the rounds so far each reward adds to them.
        """
        from scipy.special import ndtr  # slow to import

        here, due, gradient = self._of(codes, rounds.size)
        squares = np.square(gradient)
        start = squares.sum(axis=1, keepdims=True)
        shrinks = squares @ self._shrinking.T / np.where(start > 0.0, start, 1.0)  # (m, x)
        part = 1.0 / (1.0 + growth * _GRID)  # of the rounds by then that are over by now

        def by_then(now: Array) -> Array:
            return np.asarray(part * now[:, None] + (1.0 - part) * due[:, None])

        mean, variance = by_then(entitled.mean(axis=1)), entitled.var(axis=1)[:, None] * shrinks
        luck = _LUCK * (due * (1.0 - due) / np.maximum(rounds, 1.0))[:, None] * part
        error = np.square(seen.error)[:, None] * part
        least = 1.0 - tolerance
        below, between, above = np.ones((3, *mean.shape), dtype=np.bool_)
        for share, chance in ((seen.shown, luck), (seen.without_luck, error)):
            spread = np.sqrt(variance + chance) + 1e-300
            over = ndtr((least * by_then(share) - mean) / spread)  # probability that it is above
            under = ndtr((mean - by_then(share) / least) / spread)
            below, above = below & (under >= LEVEL), above & (over >= LEVEL)
            between = between & (1.0 - under - over >= LEVEL)
        sure = (below | between | above) & (here > 0)[:, None]
        return np.where(sure.any(axis=1), _GRID[sure.argmax(axis=1)], math.nan)


def _times_seen(codes: Codes, size: int) -> Array:
    """Return (m,) in how many rounds each code occurs."""
    rounds, _ = codes.shape
    cells = np.unique((np.arange(rounds)[:, None] * size + codes)[codes >= 0])
    return np.bincount(cells % size, minlength=size).astype(np.float64)


def _diagonalised(whole: Array, added: Array) -> tuple[Array, Array, float]:
    """Return QᵀL⁻¹, κ and ln|A| of A = `whole` and M = `added`."""
    factor = np.linalg.cholesky(whole)
    inverse = np.linalg.solve(factor, np.eye(len(whole)))
    rates, vectors = np.linalg.eigh(inverse @ added @ inverse.T)
    volume = 2.0 * float(np.log(np.diagonal(factor)).sum())
    return vectors.T @ inverse, np.maximum(rates, 0.0), volume
