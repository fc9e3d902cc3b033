"""A test for change: whether rewards contradict one parameter that never changes, at all times.

docs/explanation/exposure-proofs.md has the proof. Rewards come in batches, with sums G = Σxxᵀ and b = Σxy. If
θ* is the parameter of a stretch of rewards whose noise is σ-sub-Gaussian, then

    ln M(θ*) = ½ (b - Gθ*)ᵀ(G + λI)⁻¹(b - Gθ*)/σ² - ½ ln|I + G/λ|

is the logarithm of a supermartingale that starts at 1, and so is the product of that before a moment s and
that after it. The evidence for a change is a weighted sum over s, and over λ before and after s, of the
product at the θ that makes it least. Where each reward is of one action, half of the weight is on a change of
all of them, and half on a change of a single one: else each would have to be paid for, though one changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedfairx.fairness.decision_log import Codes
from fedfairx.util.arrays import Array
from fedfairx.util.formatting import number

ERROR = 0.01  # the probability, at most, of an alarm if there is no change
_COLUMNS = "columns of features and names"
MOST_FEATURES = 200  # beyond, sums at all moments would take too much memory
#: λ before the change: the best depends on how many rewards came before.
_BEFORE: Array = np.exp2(4.0 * np.arange(6))
_AFTER: Array = np.array([4.0, 64.0])  # λ after it: a coordinate of θ changes by about σ/2, or σ/8
_NEAR = 4  # moments that are looked at in each doubling of the distance
_SHOWN = 1e9  # evidence is not shown beyond
_ROUNDING = 1e-10  # of the trace, added where matrices may be singular


class Stretch(NamedTuple):
    """Sums over a stretch of rewards; n stretches or 1, each in B blocks of p coordinates."""

    gram: Array  # (n, B, p, p)
    moment: Array  # (n, B, p)


@dataclass(frozen=True)
class Change:
    """Whether rewards contradict a model that never changes.

    evidence: the largest so far, as odds; at most 1e9.
    rewards: how many were tested, in whole batches.
    before: how many of them came before the moment at which merit has most likely changed.
    needed: how many rewards the first batch takes, if that is known; 0 if there are too many features and
        names.
    alarm: whether it has reached 100, which has a probability of at most 1 % if nothing changes.
    statement: all of this, in words.
    """

    evidence: float = 0.0
    rewards: int = 0
    before: int = 0
    needed: int | None = None
    alarm: bool = field(init=False, repr=False)
    statement: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "alarm", self.evidence >= 1.0 / ERROR)
        object.__setattr__(self, "statement", str(self))

    def __str__(self) -> str:
        if not self.rewards and self.needed == 0:
            return f"Whether merit changes is not tested with more than {MOST_FEATURES} {_COLUMNS}."
        if not self.rewards:
            takes = "" if self.needed is None else f": it takes {number(self.needed)}"
            return f"There are too few rewards to test whether merit changes{takes}."
        since = (
            f" It is no longer tested: there are more than {MOST_FEATURES} {_COLUMNS}."
            if self.needed == 0
            else ""
        )
        if not self.alarm:
            most = f"was at most {self.evidence:.2g}" if self.evidence > 1.0 else "never reached 1"
            return (
                f"{number(self.rewards)} rewards fit a model that never changes: the evidence against it "
                f"{most} : 1, and {1 / ERROR:g} : 1 would be an alarm.{since}"
            )
        beyond = f"more than {_SHOWN:,.0f}".replace(",", " ")
        odds = f"{number(self.evidence) if self.evidence < _SHOWN else beyond} : 1"
        return (
            f"Rewards contradict a model that never changes, by {odds}: those after the first "
            f"{number(self.before)} differ most from those before. Either merit has changed, or rewards are "
            f"not as the model assumes. Where neither is so, at most 1 agent in {1 / ERROR:g} ever gets this "
            f"alarm.{since}"
        )


def batch_of(dimension: int) -> int:
    """How many rewards a batch should have: many for each number of θ, since every batch costs as much."""
    return max(100, 10 * dimension)


class ChangeTest:
    """The test, batch by batch.

    What people differ by beside their features must be among the columns, one for each of them: else that
    others come than before would look like a change.

    noise_sd: σ, an upper limit.
    separate: whether every reward is of one coordinate, as those of actions without features.
    """

    def __init__(self, noise_sd: float, *, separate: bool = False) -> None:
        self.change = Change()
        self._variance = noise_sd**2
        self._separate = separate
        self._total: Stretch | None = None
        self._moments: dict[int, tuple[int, Stretch]] = {}  # by number of batches: rewards, and their sums
        self._first = 0  # blocks of the first batch
        self._batches = 0
        self._largest = -math.inf  # ln of the largest evidence so far

    def add(self, contexts: Array, rewards: Array) -> None:
        """Take a batch of contexts (n, d), d at least that of the last batch, and rewards (n,)."""
        if self._separate:
            squares = np.square(contexts).sum(axis=0)
            self._take(Stretch(squares[None, :, None, None], (contexts.T @ rewards)[None, :, None]), rewards)
        elif contexts.shape[1] <= MOST_FEATURES:
            gram, moment = contexts.T @ contexts, contexts.T @ rewards
            self._take(Stretch(gram[None, None], moment[None, None]), rewards)

    def add_separate(self, places: Codes, weights: Array, rewards: Array, dimension: int) -> None:
        """The same for rewards (n,) of one coordinate each, at these places (n,), times weights (n,)."""
        squares: Array = np.bincount(places, np.square(weights), dimension).astype(np.float64)
        moment: Array = np.bincount(places, weights * rewards, dimension).astype(np.float64)
        self._take(Stretch(squares[None, :, None, None], moment[None, :, None]), rewards)

    def _take(self, batch: Stretch, rewards: Array) -> None:
        dimension = batch.moment.shape[1] if self._separate else batch.moment.shape[2]
        if self._total is not None:
            self._total = self._grown(self._total, dimension)
            self._moments = {
                at: (count, self._grown(sums, dimension))
                for at, (count, sums) in self._moments.items()
                if _looked_at(at, self._batches + 1)
            }
            self._moments[self._batches] = self.change.rewards, self._total
            batch = Stretch(*(old + new for old, new in zip(self._total, batch, strict=True)))
        else:
            self._first = batch.moment.shape[1]
        self._total = batch
        self._batches += 1
        self._look(self.change.rewards + rewards.size)

    def _grown(self, sums: Stretch, dimension: int) -> Stretch:
        """The sums with zeros for coordinates that have come since: actions, or columns of features."""
        axes = (1,) if self._separate else (2, 3)
        more = dimension - sums.moment.shape[axes[0]]
        if not more:
            return sums
        return Stretch(
            *(np.pad(part, [(0, more if axis in axes else 0) for axis in range(part.ndim)]) for part in sums)
        )

    def _look(self, rewards: int) -> None:
        before = self.change.before
        if self._moments:
            assert self._total is not None
            counts, sums = zip(*self._moments.values(), strict=True)
            first = Stretch(*(np.concatenate(part) for part in zip(*sums, strict=True)))
            rest = Stretch(*(all_ - part for all_, part in zip(self._total, first, strict=True)))
            weights = single_weights(self._first, first.moment.shape[1]) if self._separate else None
            logs = log_evidence(first, rest, self._variance, weights)
            logs -= np.log([at * (at + 1.0) for at in self._moments])  # weights that sum to 1
            whole = float(np.logaddexp.reduce(logs))
            if whole > self._largest:
                self._largest, before = whole, counts[int(logs.argmax())]
        evidence = _SHOWN if self._largest >= math.log(_SHOWN) else math.exp(self._largest)
        self.change = Change(evidence, rewards, before)


def _looked_at(at: int, now: int) -> bool:
    """Whether a change after `at` batches is still looked at after `now`: the longer ago, the fewer are."""
    apart = 1 << max((now - at) // _NEAR, 1).bit_length() - 1
    return at % apart == 0


def single_weights(first: int, blocks: int) -> Array:
    """(blocks,) the weight of a change of each block alone; `first` of them were there from the beginning.

    They sum to at most 1, and stay as they are when others come, as the proof needs.
    """
    later = np.arange(1.0, blocks - first + 1.0)
    return np.concatenate([np.ones(first), 1.0 / (later * (later + 1.0))]) / (first + 1.0)


def log_evidence(before: Stretch, after: Stretch, variance: float, weights: Array | None = None) -> Array:
    """(n,) ln of the mean, over λ before and after a change, of M before it times M after it, at the worst θ.

    weights: (B,) of a change of each block alone; half of the evidence is then for one of these.
    """
    early, late = _Quadratic.of(before, _BEFORE), _Quadratic.of(after, _AFTER)
    pairs = ((one[:, None] + two).reshape(-1, *two.shape[1:]) for one, two in zip(early, late, strict=True))
    both = _Quadratic(*pairs)
    logs = 0.5 * (np.maximum(both.least, 0.0) / variance - both.volume)
    evidence = logs.sum(axis=-1)
    if weights is not None:
        single = np.logaddexp.reduce(logs + np.log(weights), axis=-1)
        evidence = np.logaddexp(evidence, single) - math.log(2.0)
    return np.asarray(np.logaddexp.reduce(evidence) - math.log(len(evidence)))


class _Quadratic(NamedTuple):
    """(b - Gθ)ᵀ(G + λI)⁻¹(b - Gθ) as a function of θ, and ln|I + G/λ|, for r values of λ."""

    square: Array  # (r, n, B, p, p)
    linear: Array  # (r, n, B, p)
    constant: Array  # (r, n, B)
    volume: Array  # (r, n, B)

    @classmethod
    def of(cls, sums: Stretch, ridges: Array) -> _Quadratic:
        gram, moment = sums
        ridge = ridges[:, None, None, None, None]
        whole = gram + ridge * np.eye(gram.shape[-1])
        solved = np.linalg.solve(whole, np.concatenate([gram, moment[..., None]], axis=-1)[None])
        linear, constant = gram @ solved[..., -1:], (moment * solved[..., -1]).sum(axis=-1)
        volume = np.linalg.slogdet(whole / ridge)[1]
        return cls(gram @ solved[..., :-1], linear[..., 0], constant, volume)

    @property
    def least(self) -> Array:
        """(r, n, B) its least value over θ."""
        size = np.trace(self.square, axis1=-2, axis2=-1)[..., None, None] + 1e-300
        square = self.square + _ROUNDING * size * np.eye(self.square.shape[-1])
        best = np.linalg.solve(square, self.linear[..., None])[..., 0]
        return np.asarray(self.constant - (self.linear * best).sum(axis=-1))
