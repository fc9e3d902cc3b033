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
        self._made: list[int] = []
        self._rewarded: list[int] = []

    def by_status(self, journal: Journal) -> dict[str, int]:
        """The number of decisions of each status."""
        with self._lock:
            made, ended, self._until = journal.counted(self._until)
            self._decisions += made
            for status, many in ended.items():
                self._ended[status] = self._ended.get(status, 0) + many
            found = dict(self._ended)
            found["pending"] = self._decisions - sum(found.values())
            return found

    def by_time(
        self, journal: Journal, *, since: float, width: float, count: int
    ) -> tuple[list[int], list[int]]:
        """Decisions and rewards in each of `count` intervals until now; past ones are not counted again."""
        with self._lock:
            if self._intervals != (since, width):
                self._intervals, self._made, self._rewarded = (since, width), [], []
            over = max(min(len(self._made), count) - 1, 0)
            start = since + over * width
            made, rewarded = by_time(journal, since=start, width=width, count=count - over)
            self._made = self._made[:over] + made
            self._rewarded = self._rewarded[:over] + rewarded
            return list(self._made), list(self._rewarded)
