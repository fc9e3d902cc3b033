"""The lift: what an agent's choices earn more than the caller's baseline, measured while both run.

With a `control_share` c, a coin decides who chooses: the baseline with probability c (control), else the
agent (live). For a reward y in [0, 1] and any guess g that was made before, the number

    (y - g) / (1 - c) of a live decision, -(y - g) / c of a control

has the agent's expected reward minus that of the baseline as its conditional mean. It is bounded, so that
`confidence_sequence` gives an interval that holds at all times. g is the mean of all rewards so far: a good
guess makes the number small, and the interval narrow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedfairx.errors import require
from fedfairx.evaluation.confidence_sequence import Mixture
from fedfairx.util.arrays import Array
from fedfairx.util.formatting import number

ERROR = 0.05


@dataclass(frozen=True)
class Lift:
    """What live decisions earn more than controls.

    value: the mean reward of a live decision minus that of a control.
    low, high: it lies between them at all times at once, with probability 1 - error.
    live, control: mean rewards of both.
    decisions: how many were compared, all with a reward.
    outside: rewards that lay outside of the reward range, and count as its nearest end.
    since: when the first of them was made, in seconds since 1970; None if that is not known.
    statement: all of this, in words.
    """

    value: float = math.nan
    low: float = -math.inf
    high: float = math.inf
    live: float = math.nan  # without any
    control: float = math.nan
    decisions: int = 0
    outside: int = 0
    error: float = ERROR
    since: float | None = None
    statement: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "statement", str(self))

    def __str__(self) -> str:
        if not self.decisions:
            return "There are too few rewards to compare live decisions with controls."
        verdict = (
            "Live decisions earn more than controls"
            if self.low > 0
            else "Live decisions earn less than controls"
            if self.high < 0
            else "It is not known yet whether live decisions earn more or less than controls"
        )
        clipped = f" {number(self.outside)} rewards lay outside of the reward range." if self.outside else ""
        return (
            f"{verdict}. The difference is {self.value:.3g} per decision, from {number(self.decisions)} "
            f"decisions; with probability {100 * (1 - self.error):g} % it is between {self.low:.3g} and "
            f"{self.high:.3g}.{clipped}"
        )


class LiftSoFar:
    """The lift of a log that grows; it keeps sums, not rewards."""

    def __init__(self, reward_range: tuple[float, float] = (0.0, 1.0), *, error: float = ERROR) -> None:
        low, high = reward_range
        require(low < high, "reward_range", "must be (low, high) with low < high", reward_range)
        self._low, self._size, self._error = low, high - low, error
        self.more, self.less = Mixture(), Mixture()  # of the lift, and of minus the lift
        self._counts, self._totals = np.zeros(2, dtype=int), np.zeros(2)  # of controls and live decisions
        self._outside = 0

    def add(self, rewards: Array, live: NDArray[np.bool_], control_shares: Array) -> None:
        """Add the next decisions, in the order in which they were made; all (n,).

        live: whether the agent chose; otherwise the baseline was taken.
        control_shares: the probability of the baseline, above 0 and below 1.
        """
        scaled = (rewards - self._low) / self._size
        part = scaled.clip(0.0, 1.0)
        self._outside += int((scaled != part).sum())
        before = self._totals.sum() + np.concatenate([[0.0], np.cumsum(part)[:-1]])
        count = self._counts.sum() + np.arange(part.size)
        guess = np.where(count > 0, before / np.maximum(count, 1), 0.5).clip(0.0, 1.0)
        agent, baseline = 1.0 / (1.0 - control_shares), 1.0 / control_shares
        values = (part - guess) * np.where(live, agent, -baseline)
        lowest = -np.maximum(guess * agent, (1.0 - guess) * baseline)
        highest = np.maximum((1.0 - guess) * agent, guess * baseline)
        self.more.add(values, least=lowest, floor=-1.0, top=1.0)
        self.less.add(-values, least=-highest, floor=-1.0, top=1.0)
        self._counts += np.bincount(live, minlength=2)
        self._totals += np.bincount(live, part, minlength=2)

    def answer(self) -> Lift:
        """The lift of all decisions so far."""
        if not self.more.count:
            return Lift(error=self._error)
        low, high = (
            sign * mixture.lower_limit(-1.0, 1.0, error=0.5 * self._error)
            for sign, mixture in ((1.0, self.more), (-1.0, self.less))
        )
        high = max(low, high)
        value = min(max(self.more.total / self.more.count, low), high)
        means = [
            self._low + self._size * float(total / count) if count else math.nan
            for total, count in zip(self._totals, self._counts, strict=True)
        ]
        return Lift(
            value=self._size * value,
            low=self._size * low,
            high=self._size * high,
            live=means[1],
            control=means[0],
            decisions=self.more.count,
            outside=self._outside,
            error=self._error,
        )
