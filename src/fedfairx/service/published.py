"""What those who are no admins may know of rewards: what whole batches of them say, in three digits.

A number that moves with each reward tells each reward to whoever knows the contexts: an agent of their own,
given the same decisions, shows which reward moves it just so. Rounding alone does not help: shares in tenths
of a percent still tell most rewards after ten thousand of them. So numbers move by batches, whose rewards
enter as Σxy: d numbers for at least 10 d rewards.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedfairx.arrays import Array
from fedfairx.fairness import Draws, Exposure, Row, Share
from fedfairx.storage.glances import learnt
from fedfairx.storage.queries import Queries

__all__ = ["Published", "batch_of", "coarse"]

LEAST = 100  # rewards in a batch,
FOR_EACH = 10  # and for each number of θ
DIGITS = 1_000  # shares are in tenths of a percent


def batch_of(dimension: int) -> int:
    """Rewards in a batch."""
    return max(LEAST, FOR_EACH * dimension)


class Published:
    """(Σxxᵀ, Σxy) over whole batches of rewards, read from the log from number `first` on."""

    def __init__(self, journal: Queries, dimension: int, *, first: int) -> None:
        self.gram: Array = np.zeros((dimension, dimension))
        self.moment: Array = np.zeros(dimension)
        self.end: int | None = None  # the number after the last reward in it; None before the first batch
        self._journal = journal
        self._next = first

    def bring_up(self) -> None:
        """Take the batches that are whole by now."""
        d, batch = self.moment.size, batch_of(self.moment.size)
        while rows := learnt(self._journal, first=self._next, limit=batch):
            if len(rows) < batch:
                return
            chosen = np.stack([np.frombuffer(x, "<f8")[a * d : (a + 1) * d] for _, x, a, _ in rows])
            rewards = np.array([reward for *_, reward in rows])
            known = np.isfinite(rewards)
            self.gram += chosen[known].T @ chosen[known]
            self.moment += chosen[known].T @ rewards[known]
            self.end = self._next = rows[-1][0] + 1


def coarse(table: Exposure) -> Exposure:
    """The table with entitlements in three digits, intervals made wider, and nothing of the policies."""
    return replace(
        table,
        actions=tuple(map(_coarse, table.actions)),
        groups=tuple(map(_coarse, table.groups)),
        draws=Draws(table.draws.decisions, _power_of_ten(table.draws.p_value)),
    )


def _coarse(row: Row) -> Row:
    low, high = math.floor(row.entitled.low * DIGITS), math.ceil(row.entitled.high * DIGITS)
    value = round(row.entitled.value * DIGITS) / DIGITS if math.isfinite(row.entitled.value) else math.nan
    return replace(row, policy=math.nan, entitled=Share(value, low / DIGITS, high / DIGITS))


def _power_of_ten(p_value: float) -> float:
    """1, 0.1 or 0.01, the least that is no less; 0.01 is where the verdict changes."""
    return next(power for power in (0.01, 0.1, 1.0) if p_value <= power)
