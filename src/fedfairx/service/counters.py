"""Counts of decisions and rewards, updated with what is new since the last call."""

from __future__ import annotations

import threading

from fedfairx.storage.journal import Journal
from fedfairx.storage.queries import by_time
from fedfairx.storage.records import STATUSES


class DecisionCounters:
    """Numbers of decisions by status and by interval of time. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._decisions = 0
        self._ended = dict.fromkeys(STATUSES, 0)
        self._until = 0  # steps before this number are counted
        self._intervals: tuple[float, float] = (0.0, 0.0)  # since and width of the lists below
        self._decisions_by_time: list[int] = []
        self._rewards_by_time: list[int] = []

    def by_status(self, journal: Journal) -> dict[str, int]:
        """The number of decisions of each status."""
        with self._lock:
            decisions, ended, self._until = journal.counted(self._until)
            self._decisions += decisions
            for status, many in ended.items():
                self._ended[status] = self._ended.get(status, 0) + many
            counts = dict(self._ended)
            counts["pending"] = self._decisions - sum(counts.values())
            return counts

    def by_time(
        self, journal: Journal, *, since: float, width: float, count: int
    ) -> tuple[list[int], list[int]]:
        """Decisions and rewards in each of `count` intervals until now; past ones are not counted again."""
        with self._lock:
            if self._intervals != (since, width):
                self._intervals, self._decisions_by_time, self._rewards_by_time = (since, width), [], []
            over = max(min(len(self._decisions_by_time), count) - 1, 0)
            start = since + over * width
            decisions, rewards = by_time(journal, since=start, width=width, count=count - over)
            self._decisions_by_time = self._decisions_by_time[:over] + decisions
            self._rewards_by_time = self._rewards_by_time[:over] + rewards
            return list(self._decisions_by_time), list(self._rewards_by_time)
