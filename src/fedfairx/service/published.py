"""What callers without the role admin may know of rewards: statistics of whole batches, in three digits.

A number that changes with each reward reveals each reward to anybody who knows the contexts: they can replay
the same decisions in another agent, and see which reward gives that change. Rounding alone does not help:
shares in tenths of a percent still reveal most of ten thousand rewards. So numbers change by batches, whose
rewards enter as Σxy: d numbers for at least 10 d rewards.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedfairx.core.agent_kernels import LARGEST
from fedfairx.fairness import Draws, Exposure, Row, Share
from fedfairx.fairness.change_test import ChangeTest
from fedfairx.fairness.credible import OverTime
from fedfairx.storage.journal import NOW, Journal
from fedfairx.storage.queries import records, reward_numbers
from fedfairx.util.arrays import Array

LEAST = 100  # rewards in a batch
FOR_EACH = 10  # rewards in a batch, for each number of θ
DIGITS = 1_000  # shares are in tenths of a percent


def batch_of(dimension: int) -> int:
    """The number of rewards in a batch."""
    return max(LEAST, FOR_EACH * dimension)


class Sums:
    """(Σxxᵀ, Σxy) over records."""

    def __init__(self, dimension: int) -> None:
        self.gram: Array = np.zeros((dimension, dimension))
        self.moment: Array = np.zeros(dimension)

    def copy(self, dimension: int) -> Sums:
        """A copy, in a larger dimension if actions were added."""
        copy, old = Sums(dimension), self.moment.size
        copy.gram[:old, :old], copy.moment[:old] = self.gram, self.moment
        return copy

    def add(self, contexts: Array, rewards: Array) -> None:
        sound = np.abs(rewards) <= LARGEST  # a private agent takes any number, and learns larger ones as 0
        self.gram += contexts[sound].T @ contexts[sound]
        self.moment += contexts[sound].T @ rewards[sound]


class Published:
    """Sums over whole batches of rewards, read from the log from number `first` on.

    They are as of the last batch: a reward that is replaced later counts from the next batch on, also after a
    restart, since else they would change with that reward alone.
    """

    def __init__(self, journal: Journal, *, first: int, test: ChangeTest) -> None:
        self.sums = Sums(0)
        self.test = test  # whether their parameter changes
        self.end: int | None = None  # the number after the last reward in it; None before the first batch
        self.count, self.total = 0, 0.0  # of rewards
        self._journal = journal
        self._next = first

    def next_end(self, dimension: int) -> int | None:
        """The `end` with the batches that are complete by now; None if there is no further one."""
        numbers, size = reward_numbers(self._journal, first=self._next), batch_of(dimension)
        whole = len(numbers) // size * size
        return numbers[whole - 1] + 1 if whole else None

    def update(self, dimension: int, end: int | None) -> None:
        """Add the batches before `end`, which is the `next_end`."""
        sums, size = self.sums.copy(dimension), batch_of(dimension)
        if end is not None:
            parts = records(self._journal, dimension, first=self._next, end=end, page=size)
            for _, contexts, rewards in parts:
                sums.add(contexts, rewards)
                sound = np.abs(rewards) <= LARGEST
                self.test.add(contexts[sound], rewards[sound])
                self.count += int(sound.sum())
                self.total += float(rewards[sound].sum())
            self.end = self._next = end
        self.sums = sums

    def latest(self, dimension: int) -> tuple[float, int]:
        """The sum and the number of all rewards by now. Both change with each reward: for admins alone."""
        total, count = self.total, self.count
        for _, _, rewards in records(self._journal, dimension, first=self._next, end=NOW):
            sound = np.abs(rewards) <= LARGEST
            total, count = total + float(rewards[sound].sum()), count + int(sound.sum())
        return total, count


def coarse(table: Exposure) -> Exposure:
    """The table with entitlements in three digits, wider intervals, no policies and no probabilities."""
    return replace(
        table,
        actions=tuple(map(_coarse, table.actions)),
        groups=tuple(map(_coarse, table.groups)),
        draws=Draws(table.draws.decisions, _power_of_ten(table.draws.p_value)),
        over_time=None if table.over_time is None else _coarse_over_time(table.over_time),
    )


def _coarse(row: Row) -> Row:
    estimate = None if row.estimate is None else _coarse_share(row.estimate)
    likely = row.likely
    if likely is not None:  # its probabilities rest on policies
        likely = replace(likely, below=math.nan, in_line=math.nan, above=math.nan)
    entitled = _coarse_share(row.entitled)
    return replace(row, policy=math.nan, entitled=entitled, estimate=estimate, likely=likely)


def _coarse_share(share: Share) -> Share:
    low, high = math.floor(share.low * DIGITS), math.ceil(share.high * DIGITS)
    return Share(_rounded(share.value), low / DIGITS, high / DIGITS)


def _rounded(value: float) -> float:
    return round(value * DIGITS) / DIGITS if math.isfinite(value) else math.nan


def _coarse_over_time(shares: OverTime) -> OverTime:
    entitled = {name: [_rounded(share) for share in each] for name, each in shares.entitled.items()}
    return replace(shares, entitled=entitled)


def coarse_estimates(means: Array, sds: Array) -> tuple[Array, Array]:
    """θ and its sds, rounded to a power of ten between a half and a twentieth of each sd.

    Further digits would say nothing of θ, and much of single rewards.
    """
    unit = 10.0 ** np.floor(np.log10(np.maximum(sds, 1e-300) / 2.0))
    return np.round(means / unit) * unit, np.round(sds / unit) * unit


def _power_of_ten(p_value: float) -> float:
    """The least of 0.01, 0.1 and 1 that is not below; 0.01 is where the verdict changes."""
    return next(power for power in (0.01, 0.1, 1.0) if p_value <= power)
