"""A database in a SQLite file: write-ahead log, every commit on disk, one process at a time.

The lock is on a file beside it (`util/file_lock.py`), which also says who holds it, and holds the mark by
which an older copy of the database is detected.
"""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from fedfairx.errors import (
    LedgerMismatch,
    PrivacyError,
    StateError,
    StorageError,
    StorageUnavailable,
    require,
)
from fedfairx.storage.database import Access, Busy, InUse, LastRow, Row, damaged
from fedfairx.util.file_lock import FileLock
from fedfairx.util.fork_safety import watch
from fedfairx.util.sqlite_wal import SAVED, end, header_of, lacks_wal, say_open, use_wal, without_wal

APPLICATION = 0x46465841  # "FFXA"
PATIENCE = 2.0  # seconds until a lock that another process holds is an error
BRIEFLY = 0.1  # the same for those who hold up others meanwhile
#: Seconds for which a check of the lock is good for single rows: the table itself refuses a number twice.
RECENTLY = 0.01
#: Rows that one statement inserts: other threads may run between statements, and then this one has to wait.
AT_ONCE = 128
_NEW = {"new": True}  # the mark beside a file that has just been made, and is still empty
_SAVED_HEADER = SAVED.to_bytes(4, "big") + bytes(4) + APPLICATION.to_bytes(4, "big")
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_MISMATCH", "SQLITE_SCHEMA", "SQLITE_FORMAT")


class SqliteDatabase:
    """A `Database` in a file that only its owner may read: it holds contexts, rewards and keys."""

    _open = False
    _forked = False
    _says_open = False  # or somebody else has to say it
    _waits = PATIENCE  # see `_wait`
    _checked = -math.inf
    local = True
    last_row: LastRow | None = None
    ended: StorageError | None = None

    def __init__(self, path: str, *, access: Access = "own", content: bytes = b"") -> None:
        self.place = path
        self.unmark = f"remove {path}.lock"
        self._translated = _Translated(path)
        file = Path(path).resolve()  # one file may have several paths
        if file.is_dir():
            raise StateError(f"{path} is a folder: name the database in it, such as agent.db")
        if access == "read" and not file.exists():
            raise StateError(f"there is no file {path}")
        self._guard = threading.RLock()
        self._reader: sqlite3.Connection | None = None
        self._file = file
        self._lock: FileLock | None = None
        try:
            if access == "own":
                self._lock = FileLock(file.with_name(file.name + ".lock"))
        except LedgerMismatch as error:
            raise InUse(str(error)) from None
        except PrivacyError as error:  # the lock file is a link
            raise StateError(str(error)) from None
        except OSError as error:
            raise StorageUnavailable(f"{path} can't be opened: {error.strerror}") from error
        try:
            with self._translated:
                if access == "memory":
                    self._writer = self._reader = _in_memory(content)
                elif lacks_wal(file):
                    raise StateError(without_wal(path))
                elif access == "read":
                    self._writer = self._reader = self._read_only(file)
                else:
                    self._writer = self._connect(file)
        except BaseException:
            if self._lock is not None:
                self._lock.free()
            raise
        self._says_open |= access != "own"
        self._end = weakref.finalize(self, end, self._writer, self._lock)  # also when the program ends
        self._open = True
        watch(self)

    def _connect(self, file: Path) -> sqlite3.Connection:
        begins = self.mark == _NEW
        if not file.exists():
            if not self.mark:
                begins = True
                self.leave_mark(_NEW)  # a process that dies now leaves an empty file
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        elif self._lock is not None and file.stat().st_size == 0 and not begins:
            raise StateError(
                f"{self.place} has 0 bytes: what was in it is lost. Restore a backup; or remove the file and "
                f"{self.place}.lock, for a new agent"
            )
        # From here on only SQLite opens the file: closing another descriptor would drop SQLite's locks.
        if os.stat(file).st_nlink > 1:
            raise StateError(f"{self.place} has two names (hard links), and a lock guards only one of them")
        for holder in (file, file.with_name(file.name + "-wal")):
            if holder.exists() and os.stat(holder).st_mode & 0o077:
                os.chmod(holder, 0o600)
        connection = _connection(file)
        try:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            if tables == 0:
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
            elif application != APPLICATION:
                raise StateError(f"{self.place} is a SQLite file, but no durable agent's; name another one")
            self._says_open = use_wal(connection)
            if begins:
                self.leave_mark({})
            connection.execute("PRAGMA secure_delete=ON")  # what is deleted is overwritten
        except BaseException:
            connection.close()
            raise
        return connection

    def _read_only(self, file: Path) -> sqlite3.Connection:
        """A connection to what is committed now, which changes neither the file nor its folder."""
        closed = not file.with_name(file.name + "-wal").exists()  # then everything is in the main file
        address = f"{file.as_uri()}?mode=ro{'&immutable=1' if closed else ''}"
        connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=PATIENCE)
        try:
            connection.execute("BEGIN")
            if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION,):
                raise StateError(f"{self.place} is a SQLite file, but no durable agent's; name another one")
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def mark(self) -> dict[str, Any]:
        mark = {} if self._lock is None else self._lock.before.get("mark", {})
        return mark if isinstance(mark, dict) else {}

    def leave_mark(self, mark: dict[str, Any]) -> None:
        if self._lock is not None:
            self._lock.leave(mark)

    def check_last_row(self) -> None:
        """Do nothing: an open file stays the same, whatever is put in its place."""

    def overwrite_deleted(self) -> None:
        self.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # pages themselves are overwritten by secure_delete

    def _check(self) -> None:
        """Raise in a forked child, or if the lock was lost."""
        if self._lock is not None:
            try:
                self._lock.check()
            except PrivacyError:
                if self._open:
                    self.ended = StorageUnavailable(
                        f"the lock of {self.place} was removed, so another process may have it: nothing more "
                        "was written. Start this process again"
                    )
                raise

    def begin(self, *, briefly: bool = False) -> None:
        with self._translated:
            self._prepare()
            self._wait(BRIEFLY if briefly else PATIENCE)
            self._writer.execute("BEGIN IMMEDIATE")

    def insert(self, statement: str, row: Row, *, briefly: bool = False) -> None:
        now = time.monotonic()
        if self._forked or now >= self._checked + RECENTLY or self._writer.in_transaction:
            with self._translated:
                self._prepare()
            self._checked = now
        self._wait(BRIEFLY if briefly else PATIENCE)
        try:
            self._writer.execute(statement, row)  # a third faster than with BEGIN and COMMIT
        except sqlite3.Error as error:
            raise _meaning(error, self.place) from error

    def _prepare(self) -> None:
        """What comes before a transaction."""
        self._check()
        if self._writer.in_transaction:  # one that Ctrl-C left open
            self._writer.execute("ROLLBACK")
        if not self._says_open:
            say_open(self._writer)
            self._says_open = True

    def _wait(self, seconds: float) -> None:
        """How long statements wait from now on until another process frees the file."""
        if seconds != self._waits:
            self._writer.execute(f"PRAGMA busy_timeout = {1000 * seconds:.0f}")
            self._waits = seconds

    def commit(self) -> None:
        with self._translated:
            self._writer.execute("COMMIT")

    def rollback(self) -> None:
        with suppress(sqlite3.Error):  # the next `begin` tries again
            if not self._forked and self._writer.in_transaction:
                self._writer.execute("ROLLBACK")

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        if not self._writer.in_transaction:  # `begin` has checked
            with self._translated:
                self._check()
                self._wait(PATIENCE)
        try:
            return self._writer.execute(statement, values).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise _meaning(error, self.place) from error

    def execute_many(self, statement: str, rows: Sequence[Row]) -> None:
        with self._translated:
            most = self._writer.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
            start, width = 0, AT_ONCE
            while start < len(rows):
                while width > 1 and (width > len(rows) - start or width * len(rows[0]) > most):
                    width //= 2
                some = rows[start : start + width]
                self._writer.execute(_repeated(statement, width), list(chain.from_iterable(some)))
                start += width

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._translated, self._guard:
            self._check()
            if self._reader is None:
                self._reader = _connection(self._file)
                self._reader.execute("PRAGMA query_only=ON")
            return self._reader.execute(statement, values).fetchall()

    def space(self) -> tuple[int, int | None]:
        files = (self._file.with_name(f"{self._file.name}{end}") for end in ("", "-wal", "-shm"))
        with self._translated:
            size = sum(file.stat().st_size for file in files if file.exists())
            return size, shutil.disk_usage(self._file.parent).free

    def show_life(self) -> bool:
        """Return that it has: of a process on the same machine the system knows whether it is paused."""
        return True

    def tables(self) -> set[str]:
        return {name for (name,) in self.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def content(self) -> bytes:
        """The bytes of a file that holds all of a database in memory."""
        return self._writer.serialize()

    def types(self, statement: str) -> str:
        return statement

    def close(self) -> None:
        with self._guard:
            if self._open:
                self._open = False
                if self._reader is not None:
                    self._reader.close()
                self._end()

    def disown(self) -> list[Any]:
        """In a forked child: leave the file to the parent."""
        self._open, self._forked = False, True
        self._end.detach()
        return [connection for connection in (self._writer, self._reader) if connection is not None]


class _Translated:
    """A context manager that raises our errors for those of SQLite, the system and the lock."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            return
        if isinstance(error, PrivacyError):  # raised by the lock
            raise StorageUnavailable(str(error).replace("this ledger", self._place)) from None
        if isinstance(error, sqlite3.Error | UnicodeDecodeError):
            raise _meaning(error, self._place) from error
        if isinstance(error, OSError):
            raise StorageUnavailable(f"{self._place} can't be used: {error.strerror}") from error


@lru_cache(maxsize=64)
def _repeated(statement: str, times: int) -> str:
    """An INSERT of one row, changed into one of `times` rows."""
    head, _, values = statement.partition(" VALUES ")
    return f"{head} VALUES {', '.join([values] * times)}"


def _connection(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(file, isolation_level=None, timeout=PATIENCE, check_same_thread=False)


def _in_memory(content: bytes) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    if content:
        connection.deserialize(content)
    else:
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {SAVED}")
    return connection


def require_replaceable(path: str | os.PathLike[str]) -> None:
    """Refuse to save an agent over anything but one that was saved, and that nobody has opened since."""
    file = Path(os.path.realpath(path))
    beside = [name for end in ("-wal", "-journal") if file.with_name(name := file.name + end).exists()]
    text = "must be a new file, or one that save wrote and no agent was opened in"
    require(not beside, "path", text, str(path), f"beside it is {''.join(beside[:1])}")
    require(not file.exists() or header_of(file)[60:72] == _SAVED_HEADER, "path", text, str(path))


def _meaning(error: sqlite3.Error | UnicodeDecodeError, place: str) -> StorageError:
    """The error to raise: by SQLite's error name, a retry may succeed or not."""
    if isinstance(error, UnicodeDecodeError):  # an error message quotes damaged bytes
        return damaged(place, "it holds no UTF-8")
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(_DAMAGED) or isinstance(error, sqlite3.IntegrityError | sqlite3.DataError):
        return damaged(place, str(error))
    if name.startswith("SQLITE_BUSY"):
        return Busy(f"{place} can't be used for now: {error}; nothing has changed")
    if isinstance(error, sqlite3.OperationalError) and not name.startswith("SQLITE_ERROR"):
        return StorageUnavailable(f"{place} can't be used for now: {error}; nothing has changed")
    if "no such" in str(error):  # a table or a column
        return damaged(place, str(error))
    return StateError(f"{place} can't be read: {error}")
