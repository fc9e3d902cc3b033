"""Durable ledgers and counts of persons: SQLite files that survive kill -9 at any point.

`synchronous=FULL` makes every commit reach the disk before the method returns. While a file is open, a lock
file beside it (`util.file_lock`) refuses other processes: two agents on one ledger would make two releases of
one number. Triggers keep releases and records append-only, whoever writes. A ledger restored from an old copy
looks like one after a crash; only peers can tell (`rollback.py`), and its releases get new noise.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

from fedfairx.errors import LedgerMismatch
from fedfairx.privacy.ledger.ledger import another_limit
from fedfairx.privacy.ledger.sql import Access, Row, SqlLedger, SqlPersons, Tables
from fedfairx.util.file_lock import FileLock
from fedfairx.util.fork_safety import watch
from fedfairx.util.sqlite_wal import end, lacks_wal, say_open, use_wal, without_wal

_LEDGER = 0x46465803  # application ids: "FFX", and the version of the tables
_PERSONS = 0x46465810


class SqliteFile:
    """A `LedgerDatabase` in a file, open in one process at a time; `schema` is a file of this package."""

    _open = False

    def __init__(self, path: Path, *, what: str, schema: str, application: int, create: bool) -> None:
        self._path, self._what = path, what
        file = path.resolve()  # one file may have several paths
        self._guard = threading.RLock()
        self._lock = FileLock(file.with_name(file.name + ".lock"))
        try:
            self.connection = self._connect(file, schema if create else None, application)
        except BaseException as error:
            self._lock.free()
            if isinstance(error, sqlite3.OperationalError):
                raise LedgerMismatch(f"{what} {path} can't be opened: {error}; is it in use?") from error
            if isinstance(error, sqlite3.DatabaseError):
                raise LedgerMismatch(f"{path} is not a {what}: {error}") from error
            raise
        self._end = weakref.finalize(self, end, self.connection, self._lock)  # also when the program ends
        self._open = True
        watch(self)

    def _connect(self, file: Path, schema: str | None, application: int) -> sqlite3.Connection:
        if not file.exists():
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        # From here on only SQLite opens the file: closing another descriptor would drop SQLite's locks.
        if os.stat(file).st_nlink > 1:
            raise LedgerMismatch(
                f"{self._path} has two names (hard links), and a lock guards only one of them"
            )
        for holder in (file, file.with_name(file.name + "-wal")):
            if holder.exists() and os.stat(holder).st_mode & 0o077:
                os.chmod(holder, 0o600)
        if lacks_wal(file):
            raise LedgerMismatch(without_wal(self._path))
        connection = sqlite3.connect(file, isolation_level=None, timeout=0.2, check_same_thread=False)
        try:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            (version,) = connection.execute("PRAGMA application_id").fetchone()
            (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            if version != application and (tables or schema is None):
                raise LedgerMismatch(f"{self._path} is not a {self._what} of this version of fedfairx")
            self._says_open = use_wal(connection)
            if tables == 0 and schema is not None:
                text = files("fedfairx.privacy.ledger").joinpath(schema).read_text(encoding="utf-8")
                connection.executescript(f"BEGIN IMMEDIATE;{text}PRAGMA application_id={application};COMMIT;")
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close the file and release its lock."""
        with self._guard:
            if self._open:
                self._open = False
                self._end()

    def disown(self) -> list[Any]:
        """In a forked child, leave the file to the parent."""
        self._open = False
        self._end.detach()
        return [self.connection]  # closing it would end the parent's write-ahead log

    @contextmanager
    def reading(self) -> Iterator[Access]:
        self._lock.check()
        with self._guard:
            if self.connection.in_transaction:  # left open by Ctrl-C
                self.connection.execute("ROLLBACK")
            yield Access(self._execute, self._execute)

    def _execute(self, statement: str, values: Row) -> list[Row]:
        return self.connection.execute(statement, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[Access]:
        with self.reading() as access:
            if not self._says_open:
                say_open(self.connection)
                self._says_open = True
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield access
            except BaseException:
                self.connection.execute("ROLLBACK")
                raise
            self.connection.execute("COMMIT")

    def write_last(self, table: str, key: Row, statement: str, values: Row) -> None:  # noqa: ARG002
        self.connection.execute(statement, values)

    def waiting(self, table: str, key: Row) -> Row | None:  # noqa: ARG002 (nothing waits)
        return None


class SqliteLedger(SqlLedger):
    """A ledger in a SQLite file. Use it as a context manager, or `close` it.

    A missing file is an error unless `create=True`: a run can't continue without its ledger.

    >>> with SqliteLedger("clinic.ledger", create=True) as ledger:
    ...     ledger.spent()
    0

    Guarantees:
    - As `Ledger`, and the effect of a method survives kill -9 and power failure.
    - Only one process at a time has it open; another one is refused, and so is a forked child.
    - Only its owner can read the file, because it holds exact sums.
    """

    def __init__(self, path: str | Path, *, create: bool = False) -> None:
        self.path = Path(path)
        if not create and not self.path.exists():
            raise LedgerMismatch(
                f"there is no ledger {self.path}: a run can't continue without its ledger; "
                "create=True makes one, for a new run with a new budget"
            )
        self._file = SqliteFile(
            self.path, what="ledger", schema="ledger.sql", application=_LEDGER, create=create
        )
        super().__init__(self._file, Tables("parameters", "records", "releases", "position"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and release its lock."""
        self._file.close()


class SqlitePersons(SqlPersons):
    """Counts of persons in a SQLite file, for a privatizer whose ledger is a file.

    >>> persons = SqlitePersons("clinic.persons")
    >>> persons.total()
    0
    >>> persons.close()

    Guarantees:
    - As `Persons`; the counts survive kill -9 and power failure.
    - Only its owner can read the file, because it holds the persons' ids.
    - Only one process at a time has it open; another one is refused, and so is a forked child.
    """

    def __init__(self, path: str | Path) -> None:
        self._file = SqliteFile(
            Path(path), what="file of persons", schema="persons.sql", application=_PERSONS, create=True
        )
        super().__init__(self._file, "persons")

    def bind(self, records: int) -> None:
        with self._file.transaction() as access:
            access.write("INSERT OR IGNORE INTO bound VALUES (1, ?)", (records,))
            ((stored,),) = access.read("SELECT records FROM bound", ())
        if stored != records:
            raise LedgerMismatch(another_limit(stored, records))

    def close(self) -> None:
        """Close the file and release its lock."""
        self._file.close()
