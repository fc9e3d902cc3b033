"""What an agent earns: the mean reward, and its lift over controls."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from fedfairx.evaluation.lift import Lift, LiftSoFar
from fedfairx.storage.journal import Journal
from fedfairx.storage.records import StoredDecision

DAY = 86_400.0  # seconds that a reward is waited for where there is no window


@dataclass(frozen=True)
class Earnings:
    """The mean of `rewards` rewards, and the lift of decisions.

    lift: None without a `control_share`.
    """

    mean: float | None = None
    rewards: int = 0
    lift: Lift | None = None


class LiftReader:
    """Reads the lift from the log, from number `first` on.

    Decisions are taken in the order in which they were made, up to the first one that may still get its
    reward: an order by rewards would prefer whatever is rewarded sooner. A decision waits for the `window`,
    or for a day if there is none; later rewards are not counted.
    """

    def __init__(
        self, journal: Journal, *, first: int, reward_range: tuple[float, float], wait: float | None
    ) -> None:
        self._journal = journal
        self._wait = DAY if wait is None else wait
        self._so_far = LiftSoFar(reward_range)
        self._last = first - 1  # the number of the last decision read
        self._since: float | None = None  # when the first decision in it was made

    def update(self) -> Lift:
        """The lift with what has come by now."""
        found: list[tuple[float, bool, float]] = []
        last, since = self._last, self._since
        for decision in self._journal.decisions(after_seq=last):
            if decision.status == "pending" and decision.time > time.time() - self._wait:
                break
            last, reward = decision.seq, mean_reward(decision)
            if reward is None or not 0.0 < decision.control_share < 1.0:
                continue
            since = since or decision.time
            found.append((reward, decision.mode == "live", decision.control_share))
        if found:
            self._so_far.add(*map(np.array, zip(*found, strict=True)))
        self._last, self._since = last, since  # only after everything was read
        return replace(self._so_far.answer(), since=self._since)


def mean_reward(decision: StoredDecision) -> float | None:
    """The mean reward of what a decision showed; None if none came."""
    if not decision.slots:
        return decision.reward
    rewards = [slot.reward for slot in decision.slots if slot.reward is not None]
    return sum(rewards) / len(rewards) if rewards else None
