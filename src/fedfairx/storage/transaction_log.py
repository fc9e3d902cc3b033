"""The log of a database: steps, each whole or not at all, on disk before they are acknowledged.

A step is buffered as rows and written when it ends, with whatever the privacy ledger wrote meanwhile, in
one transaction; `together` makes one transaction of several steps. When one fails, the transaction is
rolled back and whoever lives in memory is put back to what is on disk, by the same way as after a restart.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from itertools import groupby
from types import TracebackType
from typing import Any

from fedfairx.errors import (
    ClockWarning,
    FedFairXError,
    MessageRefused,
    StorageError,
    StorageUnavailable,
)
from fedfairx.storage.database import Database, Row
from fedfairx.storage.seals import DECISION, EVENT, OUTCOME, PLAIN_DECISION, PLAIN_OUTCOME


def insertion(table: str, names: str) -> tuple[int, str]:
    """The number of values of a sealed row, and the statement that inserts it."""
    count = len(names.split(", ")) + 1
    return count, f"INSERT INTO {table} ({names}, seal) VALUES ({', '.join('?' * count)})"


#: By how many values a row has. Each value takes time, so those that are as by default are left out.
_INSERTIONS = {
    "decisions": dict([insertion("decisions", PLAIN_DECISION), insertion("decisions", DECISION)]),
    "outcomes": dict([insertion("outcomes", PLAIN_OUTCOME), insertion("outcomes", OUTCOME)]),
    "events": dict([insertion("events", EVENT)]),
}


class StepCounter:
    """The number of the next step, which all that share a log share."""

    __slots__ = ("next",)

    def __init__(self, following: int = 0) -> None:
        self.next = following


class Log:
    """The one log of a database. `lock` is everybody's who lives in it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.lock = threading.RLock()
        self.numbers = StepCounter()
        self.end = 0  # the number after the last step on disk
        self.decisions: list[Row] = []  # of the open transaction, as what follows
        self.outcomes: list[Row] = []
        self.events: list[Row] = []
        self.keys: dict[tuple[int, str], int] = {}
        self.heads: dict[int, bytes] = {}  # of agents that have written, the digest of their last row
        self.latest: dict[Hashable, tuple[str, Row]] = {}  # statements of which only the last is done
        self.written = 0  # grows whenever a step writes anything
        self.restorers: list[Callable[[], None]] = []  # put what is in memory back to what is on disk
        self.committed: list[Callable[[], None]] = []  # called after each commit
        self.closing: list[Callable[[], None]] = []  # called before the database is closed
        self.agents: set[int] = set()  # that are open
        self.users = 1  # who have it open: the last to close it closes the database
        self.clock: Callable[[], int] = time.time_ns
        self.clock_went_back = 0  # how often
        self.mark_due = False  # a release is about to leave
        self.time = 0
        self._depth = 0
        self._begun = False
        self._settled = False  # rows of the open transaction are in it already
        self._failed = False
        self._stale = False
        self._closed = False
        self._read_end()

    def _read_end(self) -> None:
        """Where the log ends: the next number, and the latest time."""
        following, latest = 0, 0
        for table in ("decisions", "outcomes"):
            rows = self.database.execute(f"SELECT seq, time FROM {table} ORDER BY seq DESC LIMIT 1")
            for seq, when in rows:
                following, latest = max(following, seq + 1), max(latest, when)
        rows = self.database.execute("SELECT seq, time, body FROM events ORDER BY seq DESC LIMIT 1")
        for seq, when, body in rows:
            following, latest = max(following, seq + _steps_of(bytes(body))), max(latest, when)
        for (first,) in self.database.execute("SELECT MAX(first) FROM id_prefixes"):
            following = max(following, first or 0)
        self.end = following
        # A number that a failed step has had is not given again: somebody may have seen it.
        self.numbers.next, self.time = max(self.numbers.next, following), max(self.time, latest)

    def now(self) -> int:
        """Microseconds since 1970; never less than the last time. All steps of a transaction have one."""
        if self._depth:
            return self.time
        now = self.clock() // 1000
        if now < self.time:
            if not self.clock_went_back:
                warnings.warn(
                    "the clock went back: what is kept keeps its last time until the clock has caught up",
                    ClockWarning,
                    stacklevel=5,
                )
            self.clock_went_back += 1
            return self.time
        self.time = now
        return now

    # --- steps ---------------------------------------------------------------------------------------

    def step(self) -> Step:
        """A context: one step, which is on disk when it ends, unless an outer one holds it."""
        return Step(self)

    def write_last(self, key: Hashable, statement: str, values: Row) -> None:
        """Inside a step: do this when the transaction ends, unless another of the same key comes after it."""
        self.latest[key] = statement, values
        self.written += 1

    def write(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Inside a step: straight into its transaction."""
        if not self._begun:
            self.database.begin()
            self._begun = True
        self.written += 1
        return self.database.execute(statement, values)

    @property
    def closed(self) -> bool:
        return self._closed

    def enter(self) -> None:
        self.lock.acquire()
        if self._depth and not self._failed:  # the rule, in a group
            self._depth += 1
            return
        try:
            if self._closed:
                raise StorageUnavailable(f"{self.database.place} is closed")
            if self._failed:
                raise StorageUnavailable("an earlier step of these failed, so none of them will be kept")
            if self._depth == 0:
                if self._stale:
                    self._restore()
                self.now()  # the step's time; before anything changes, since the warning may be an error
        except BaseException:
            self.lock.release()
            raise
        self._depth += 1

    def leave(self, error: BaseException | None, written: int) -> None:
        """`written` is what it was at the start of the step."""
        self._depth -= 1
        if error is None and self._depth:
            self.lock.release()
            return
        try:
            # A step that was refused has changed nothing, and does no harm to those before it.
            if error is not None and not (_refusal(error) and self.written == written):
                self._failed = True
            if self._depth == 0:
                lost = self._failed and error is None  # somebody inside has caught it
                self._end()
                if lost:
                    raise StorageUnavailable("one of these steps failed, so none of them has been kept")
        finally:
            self.lock.release()

    def _end(self) -> None:
        failed, self._failed = self._failed, False
        try:
            if not failed and self.written:
                self._flush()
        except BaseException:
            failed = True
            raise
        finally:
            self._empty()
            if failed:
                self.heads.clear()
                self.database.rollback()
                self._stale = True
                with suppress(StorageError):  # the next step tries again
                    self._restore()
        if not failed:
            for after in self.committed:
                after()

    def settle(self) -> None:
        """Inside a step: put what is buffered into the transaction, where its questions see it."""
        buffers = {"decisions": self.decisions, "outcomes": self.outcomes, "events": self.events}
        if not any(buffers.values()):
            return
        if not self._begun:
            self.database.begin()
            self._begun = True
        for table, rows in buffers.items():
            for size, some in groupby(rows, len):
                self.database.execute_many(_INSERTIONS[table][size], list(some))
            rows.clear()
        self._settled = True

    def _flush(self) -> None:
        self.settle()
        if not self._begun:
            self.database.begin()
        for statement, values in self.latest.values():
            self.database.execute(statement, values)
        self.database.commit()
        if self._settled:
            self.end = self.numbers.next

    def _empty(self) -> None:
        self.decisions.clear()
        self.outcomes.clear()
        self.events.clear()
        self.keys.clear()
        self.latest.clear()
        self._begun, self._settled, self.written = False, False, 0

    def _restore(self) -> None:
        self._stale = False
        try:
            self._read_end()
            for restore in self.restorers:
                restore()
        except BaseException:
            self._stale = True
            raise

    def close(self) -> None:
        """Close the database, unless somebody else has the log open too."""
        with self.lock:
            self.users -= 1
            if self.users <= 0 and not self._closed:
                try:
                    for before in self.closing if not self._stale else ():
                        before()
                finally:
                    self._closed = True
                    self.database.close()


class Step:
    """What `Log.step` gives."""

    __slots__ = ("_log", "_written")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._written = 0

    def __enter__(self) -> Log:
        self._log.enter()
        self._written = self._log.written
        return self._log

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._log.leave(error, self._written)


def _refusal(error: BaseException) -> bool:
    """Whether a step was refused for what was asked of it, and not because the storage failed."""
    if isinstance(error, StorageError):
        return isinstance(error, MessageRefused)
    return isinstance(error, FedFairXError | Warning)


def event_body(body: bytes, steps: int = 1) -> bytes:
    """An event that takes several numbers says so in front."""
    return steps.to_bytes(8, "little") + body


def event_content(whole: bytes) -> bytes:
    """The body that `event_body` was given."""
    return whole[8:]


def _steps_of(body: bytes) -> int:
    return int.from_bytes(body[:8], "little")
