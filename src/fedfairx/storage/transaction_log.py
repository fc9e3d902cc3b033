"""The log of a database: transactions, whose steps are on disk before they are acknowledged.

Rows are buffered and written when a transaction ends, together with whatever the privacy ledger wrote
meanwhile; a transaction inside another one is a part of it. When one fails, it is rolled back, and agents in
memory are restored from what is on disk, in the same way as after a restart.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

from fedfairx.errors import (
    ClockWarning,
    FedFairXError,
    MessageRefused,
    StorageError,
    StorageUnavailable,
)
from fedfairx.storage.database import Database, LastRow, Row, damaged
from fedfairx.storage.rows import HEAD, INSERTIONS, TABLES, Insertion
from fedfairx.storage.seals import SALT, WITHOUT_SALT, salts

#: By table: where a step is, by number and digest.
_STEPS = {table: f"{table} WHERE seq = ? AND {WITHOUT_SALT} = ?" for table in TABLES}


class StepCounter:
    """The number of the next step, shared by all users of a log."""

    __slots__ = ("next",)

    def __init__(self, following: int = 0) -> None:
        self.next = following


class Log:
    """The one log of a database. All agents in it share `lock`.

    >>> from fedfairx.storage.open_log import open_log
    >>> log = open_log("log.db")
    >>> log.close()
    >>> log.closed
    True
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.lock = threading.RLock()
        self.transaction = Transaction(self)
        self.numbers = StepCounter()
        self.end = 0  # the number after the last step on disk
        self.rows: dict[Insertion, list[Row]] = {each: [] for each in INSERTIONS}  # buffered
        self.statuses: dict[int, str] = {}  # of decisions that ended in the open transaction, by number
        self.keys: dict[tuple[int, str], int] = {}  # decisions of the open transaction, by agent and key
        self.heads: dict[int, bytes] = {}  # the digest of the last row, by agent
        self.salts = salts()  # of the seals to come
        self.latest: dict[Hashable, tuple[str, Row]] = {}  # see `write_last`
        self.written = 0  # grows with each write of the open transaction
        self.restorers: list[Callable[[], None]] = []  # restore state in memory from what is on disk
        self.committed: dict[int, Callable[[], None]] = {}  # by agent: called after each commit of its rows
        self.touched: set[int] = set()  # agents with rows in the open transaction
        self.closing: list[
            Callable[[], None]
        ] = []  # called before the database is closed, the last one first
        self.agents: set[int] = set()  # numbers of the open agents
        self.prefixes: dict[int, str] = {}  # of ids, by agent, drawn since the log was opened
        self.users = 1  # the last one to close the log closes the database
        self.clock: Callable[[], int] = time.time_ns
        self.clock_went_back = 0  # how often
        self.mark_due = False  # a release was made: write the mark (`leave_mark`) after the commit
        self.time = 0
        self._depth = 0
        self._begun = False
        self._briefly = False  # see `take_at_once`
        self._settled = False  # buffered rows were written into the open transaction
        self._newest: tuple[str, Row] | None = None  # see `note_row`
        self._failed = False
        self._stale = False
        self._closed = False
        self._read_end()

    def _read_end(self) -> None:
        """Read the next number and the latest time."""
        following, latest, newest = 0, 0, -1
        for table, head in (
            ("decisions", "NULL"),
            ("outcomes", "NULL"),
            ("events", f"SUBSTR(body, 1, {HEAD})"),
        ):
            question = f"SELECT seq, time, {head}, seal FROM {table} ORDER BY seq DESC LIMIT 1"
            for seq, when, count, seal in self.database.execute(question):
                if not isinstance(seq, int) or not isinstance(when, int):
                    raise damaged(self.database.place, f"the last row of {table} has no number or no time")
                steps = 1 if count is None else int.from_bytes(count, "little")
                following, latest = max(following, seq + steps), max(latest, when)
                if seq > newest:
                    newest = seq
                    self.note_step(table, seq, seal)
        ((first,),) = self.database.execute("SELECT COALESCE(MAX(first), 0) FROM id_prefixes")
        self.end = following = max(following, first)
        self._know()
        # The number of a failed step is not used again: somebody may have seen it.
        self.numbers.next, self.time = max(self.numbers.next, following), max(self.time, latest)

    def now(self) -> int:
        """Microseconds since 1970, never less than the last time; the same for all steps of a transaction."""
        if self._depth:
            return self.time
        now = self.clock() // 1000
        if now < self.time:
            if not self.clock_went_back:
                warnings.warn(
                    "the clock went back: steps get the last time until the clock has caught up",
                    ClockWarning,
                    stacklevel=5,
                )
            self.clock_went_back += 1
            return self.time
        self.time = now
        return now

    # --- steps ---------------------------------------------------------------------------------------

    def write_last(self, key: Hashable, statement: str, values: Row) -> None:
        """Inside a transaction: execute this when it ends, unless a later call has the same key."""
        self.latest[key] = statement, values
        self.written += 1

    def write(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Inside a transaction: execute a statement."""
        self._begin()
        self.written += 1
        return self.database.execute(statement, values)

    def note_row(self, where: str, values: Row) -> None:
        """Inside a transaction: note a row that it writes, by which it is recognised later (`LastRow`)."""
        self._newest = where, values

    def note_step(self, table: str, number: int, seal: bytes) -> None:
        """`note_row` of a step, which is recognised even after it has lost its content."""
        self.note_row(_STEPS[table], (number, bytes(seal[: SALT.start])))

    def _know(self) -> None:
        """After a commit: what must be in the database from now on."""
        if self._newest is not None:
            self.database.last_row = LastRow(*self._newest, self.end)
            self._newest = None

    def _begin(self) -> None:
        if not self._begun:
            self.database.begin(briefly=self._briefly)
            self._begun = True

    def take_at_once(self) -> bool:
        """Whether the next step waits for no thread and no server.

        If so, this thread holds `lock` until it calls `let_go`. A transaction then raises `Busy` soon, and is
        undone, if another process is writing.
        """
        if not self.lock.acquire(blocking=False):
            return False
        self._briefly = self.database.local and not (self._depth or self._closed or self._stale)
        if not self._briefly:
            self.lock.release()
        return self._briefly

    def let_go(self) -> None:
        """End what `take_at_once` began."""
        self._briefly = False
        self.lock.release()

    def show_life(self) -> None:
        """Of a service, at intervals: show that it is not paused, else a standby takes the database from it.

        One that has lost the lock meanwhile takes it again, or learns that another process has had it.
        """
        if not self.database.show_life() and self.lock.acquire(blocking=False):
            try:
                with suppress(StorageError):  # the next step says so
                    self.database.check_last_row()
            finally:
                self.lock.release()

    @property
    def in_transaction(self) -> bool:
        """Whether this thread is inside a transaction."""
        if not self.lock.acquire(blocking=False):
            return False  # another thread is
        try:
            return self._depth > 0
        finally:
            self.lock.release()

    @property
    def closed(self) -> bool:
        return self._closed

    def enter(self) -> None:
        self.lock.acquire()
        if self._depth and not self._failed:  # the usual case, in a group of steps
            self._depth += 1
            return
        try:
            if self._closed:
                raise StorageUnavailable(f"{self.database.place} is closed")
            if self._failed:
                raise StorageUnavailable("an earlier step failed, so none of these steps will be stored")
            if self._depth == 0:
                if self._stale:
                    self._restore()
                self.now()  # the step's time; before anything changes, since the warning may be an error
        except BaseException:
            self.lock.release()
            raise
        self._depth += 1

    def leave(self, error: BaseException | None, written: int) -> None:
        """End a transaction; `written` is the count of writes at its start."""
        self._depth -= 1
        if error is None and self._depth:
            self.lock.release()
            return
        try:
            # A step that was refused has changed nothing: those before it are still good.
            refused = error is not None and _refusal(error) and self.written == written
            if error is not None and (self.database.ended or not refused):
                self._failed = True
            if self._depth == 0:
                lost = self._failed and error is None  # the error was caught inside
                self._end()
                if lost:
                    raise StorageUnavailable("one of these steps failed, so none of them was stored")
        finally:
            self.lock.release()

    def _end(self) -> None:
        failed, self._failed = self._failed, False
        touched, self.touched = self.touched, set()
        try:
            if not failed and self.written:
                self._flush()
        except BaseException:
            failed = True
            raise
        finally:
            self._empty()
            if failed:
                self.database.rollback()
                self._stale = True
                with suppress(StorageError):  # the next step tries again
                    self._restore()
        if not failed:
            for agent in touched:
                if agent in self.committed:
                    self.committed[agent]()

    def settle(self) -> None:
        """Inside a transaction: write the buffered rows, so that its queries see them."""
        if not any(self.rows.values()):
            return
        self._begin()
        for (table, statement), rows in self.rows.items():
            if rows:
                self.database.execute_many(statement, rows)
                self.note_step(table, rows[-1][0], rows[-1][-1])
                rows.clear()
        self._settled = True

    def _flush(self) -> None:
        if self.written == 1 and not self._begun and not self.latest:  # one row, as most often
            for insertion, rows in self.rows.items():
                if rows:
                    row = rows[0]
                    self.database.insert(insertion.statement, row, briefly=self._briefly)
                    self.note_step(insertion.table, row[0], row[-1])
                    break
            self.end = self.numbers.next
            self._know()
            return
        self.settle()
        self._begin()
        for statement, values in self.latest.values():
            self.database.execute(statement, values)
        self.database.commit()
        if self._settled:
            self.end = self.numbers.next
        self._know()

    def _empty(self) -> None:
        for rows in self.rows.values():
            if rows:
                rows.clear()
        self.statuses.clear()
        self.keys.clear()
        self.latest.clear()
        self._begun, self._settled, self.written, self._newest = False, False, 0, None

    def _restore(self) -> None:
        self._stale = False
        self.heads.clear()
        try:
            self.database.check_last_row()
            self._read_end()
            for restore in self.restorers:
                restore()
        except BaseException:
            self._stale = True
            raise

    def close(self) -> None:
        """Close the database, unless the log has other users."""
        with self.lock:
            self.users -= 1
            if self.users <= 0 and not self._closed:
                try:
                    for before in reversed(self.closing) if not self._stale else ():
                        before()
                finally:
                    self._closed = True
                    self.database.close()


class Transaction:
    """The context manager `Log.transaction`: what happens inside is on disk when the outermost one ends."""

    __slots__ = ("_log", "_written")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._written: list[int] = []  # counts of writes at the start of each one that is open

    def __enter__(self) -> Log:
        self._log.enter()
        self._written.append(self._log.written)
        return self._log

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._log.leave(error, self._written.pop())


def _refusal(error: BaseException) -> bool:
    """Whether something was refused because of its input, and not because the storage failed."""
    if isinstance(error, StorageError):
        return isinstance(error, MessageRefused)
    return isinstance(error, FedFairXError | Warning)
