"""What an agent earns: the mean reward, and its lift over controls, by whole batches (`published.py`)."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from fedfairx.evaluation.lift import Lift, LiftSoFar
from fedfairx.service.published import DIGITS, FOR_EACH
from fedfairx.storage.journal import NOW, Journal
from fedfairx.storage.queries import last_compared
from fedfairx.storage.records import StoredDecision
from fedfairx.storage.replacement import replaced_between

DAY = 86_400.0  # seconds that a reward is waited for where there is no window


@dataclass(frozen=True)
class Earnings:
    """The mean of `rewards` rewards, and the lift of decisions, in three digits.

    lift: None without a `control_share`.
    """

    mean: float | None = None
    rewards: int = 0
    lift: Lift | None = None

    @classmethod
    def of(cls, total: float, count: int, reader: LiftReader | None) -> Earnings:
        """From the sum and the number of rewards."""
        mean = float(f"{total / count:.3g}") if count else None
        return cls(mean, count, None if reader is None else reader.lift)


class LiftReader:
    """Reads the lift from the log, from number `first` on.

    Decisions are taken in the order in which they were made, up to the first one that may still get its
    reward: an order by rewards would prefer whatever is rewarded sooner. A decision waits for the `window`,
    or for a day if there is none; later rewards are not counted. A batch has at least ten decisions of either
    kind, since a mean of one reward would reveal it. A reward that is replaced counts from the next batch on.
    """

    def __init__(
        self, journal: Journal, *, first: int, reward_range: tuple[float, float], wait: float | None
    ) -> None:
        self._journal = journal
        self._first = first
        self._reward_range = reward_range
        self._unit = (reward_range[1] - reward_range[0]) / DIGITS
        self._wait = DAY if wait is None else wait
        self._end: int | None = None  # the number after the last reward in it
        self.lift = Lift()
        self._since: float | None = None  # when the first decision in it was made
        self._start_over()

    def _start_over(self) -> None:
        self._so_far = LiftSoFar(self._reward_range)
        self._last = self._first - 1  # the number of the last decision read
        self._batch: list[tuple[float, bool, float]] = []
        self._kinds = [0, 0]  # controls and live decisions in it

    def update(self, batch: int) -> None:
        """Add the batches that are complete by now; start over if rewards were replaced meanwhile."""
        last = self._read(batch)
        if last is None:
            return
        end = last_compared(self._journal, first=self._first, last=last) + 1
        if replaced_between(self._journal, end if self._end is None else self._end, NOW):
            self._start_over()
            self._read(batch, as_of=end)
        self._end = end
        self.lift = replace(_coarse(self._so_far.answer(), self._unit), since=self._since)

    def _read(self, batch: int, *, as_of: int | None = None) -> int | None:
        """Read on, and return the number of the last decision in a batch; None if none is complete."""
        whole = None
        for decision in self._journal.decisions(after_seq=self._last, as_of=as_of):
            if decision.status == "pending" and decision.time > time.time() - self._wait:
                break
            self._last = decision.seq
            reward = mean_reward(decision)
            if reward is None or not 0.0 < decision.control_share < 1.0:
                continue
            self._since = self._since or decision.time
            live = decision.mode == "live"
            self._batch.append((reward, live, decision.control_share))
            self._kinds[live] += 1
            if len(self._batch) >= batch and min(self._kinds) >= FOR_EACH:
                self._so_far.add(*map(np.array, zip(*self._batch, strict=True)))
                self._batch, self._kinds, whole = [], [0, 0], decision.seq
        return whole


def mean_reward(decision: StoredDecision) -> float | None:
    """The mean reward of what a decision showed; None if none came."""
    if not decision.slots:
        return decision.reward
    rewards = [slot.reward for slot in decision.slots if slot.reward is not None]
    return sum(rewards) / len(rewards) if rewards else None


def _coarse(lift: Lift, unit: float) -> Lift:
    """The lift in thousandths of the reward range, with a wider interval."""
    rounded = [round(each / unit) for each in (lift.value, lift.live, lift.control)]
    rounded += [math.floor(lift.low / unit), math.ceil(lift.high / unit)]
    value, live, control, low, high = (round(unit * each, 12) for each in rounded)
    return replace(lift, value=value, low=low, high=high, live=live, control=control)
