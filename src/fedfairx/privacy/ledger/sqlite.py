"""Durable ledgers and counts of persons: SQLite files that survive kill -9 at any point.

`synchronous=FULL` makes every commit reach the disk before the method returns. While a file is open, a lock
file beside it keeps others out (`util.file_lock`): two agents on one ledger would be two releases of one
number. Triggers keep releases and records append-only, whoever writes. A ledger restored from an old copy
can't be told from a crash by itself; peers can tell (`rollback.py`), and what it releases has noise of its
own.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from fedfairx.errors import LedgerMismatch
from fedfairx.privacy.ledger.persons import another_limit
from fedfairx.privacy.ledger.sql import Access, Row, SqlLedger, SqlPersons, Tables
from fedfairx.util.file_lock import FileLock
from fedfairx.util.fork_safety import watch


class SqliteFile:
    """A database file of its owner's, as `LedgerDatabase`; opened by one process at a time."""

    _open = False

    def __init__(self, path: Path, *, what: str, schema: str, application: int, create: bool) -> None:
        self._path, self._what = path, what
        file = path.resolve()  # however it is called, it is one file
        self._guard = threading.RLock()
        self._lock = FileLock(file.with_name(file.name + ".lock"))
        try:
            self.connection = self._connect(file, schema if create else None, application)
        except sqlite3.OperationalError as error:
            self._lock.free()
            raise LedgerMismatch(f"{what} {path} can't be opened: {error}; is it in use?") from error
        except sqlite3.DatabaseError as error:
            self._lock.free()
            raise LedgerMismatch(f"{path} is not a {what}: {error}") from error
        except BaseException:
            self._lock.free()
            raise
        self._open = True
        watch(self)

    def _connect(self, file: Path, schema: str | None, application: int) -> sqlite3.Connection:
        if not file.exists():
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        # Never opened but by SQLite from here on: closing a descriptor would drop SQLite's own locks.
        if os.stat(file).st_nlink > 1:
            raise LedgerMismatch(
                f"{self._path} has two names (hard links), and a lock guards only one of them"
            )
        for holder in (file, file.with_name(file.name + "-wal")):
            if holder.exists() and os.stat(holder).st_mode & 0o077:
                os.chmod(holder, 0o600)
        connection = sqlite3.connect(file, isolation_level=None, timeout=0.2, check_same_thread=False)
        try:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            (version,) = connection.execute("PRAGMA application_id").fetchone()
            (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            if tables == 0 and schema is not None:
                connection.executescript(
                    f"BEGIN IMMEDIATE; {schema} PRAGMA application_id = {application}; COMMIT;"
                )
            elif version != application:
                raise LedgerMismatch(f"{self._path} is not a {self._what} of this version of fedfairx")
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close the file and release its lock."""
        with self._guard:
            if self._open:
                self._open = False
                self.connection.close()
                self._lock.free()

    def disown(self) -> list[Any]:
        """In a forked child: the file stays the parent's."""
        self._open = False
        self._lock.free()
        return [self.connection]  # closing it would end the parent's write-ahead log

    @contextmanager
    def reading(self) -> Iterator[Access]:
        self._lock.check()
        with self._guard:
            if self.connection.in_transaction:  # one that Ctrl-C left open
                self.connection.execute("ROLLBACK")
            yield Access(self._execute, self._execute)

    def _execute(self, statement: str, values: Row) -> list[Row]:
        return self.connection.execute(statement, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[Access]:
        with self.reading() as access:
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
    """A ledger in a file of its owner's. Use it as a context manager, or `close` it.

    A file that isn't there is an error unless `create=True`: a run whose ledger is gone can't go on.

    Guarantees:
    - As `Ledger`, and what a method has done survives kill -9 and power failure.
    - Only one process at a time has it open; another is refused, and so is a forked child.
    - The file is readable by its owner only: it holds exact sums.
    """

    def __init__(self, path: str | Path, *, create: bool = False) -> None:
        self.path = Path(path)
        if not create and not self.path.exists():
            raise LedgerMismatch(
                f"there is no ledger {self.path}: a run can't go on without its own; "
                "create=True makes one, for a new run with a budget of its own"
            )
        self._file = SqliteFile(
            self.path, what="ledger", schema=_LEDGER_SCHEMA, application=_LEDGER, create=create
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
    """Counts in a file of the owner's, for a privatizer whose ledger is a file.

    Guarantees:
    - As `Persons`; what was counted survives kill -9 and power failure.
    - Only its owner may read the file: it holds the persons' ids.
    - Only one process at a time has it open; another is refused, and so is a forked child.
    """

    def __init__(self, path: str | Path) -> None:
        self._file = SqliteFile(
            Path(path), what="file of persons", schema=_PERSONS_SCHEMA, application=_PERSONS, create=True
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


_LEDGER = 0x46465802  # application ids: "FFX", and the version of the tables
_PERSONS = 0x46465810

_TABLES = """
CREATE TABLE parameters (id INTEGER PRIMARY KEY CHECK (id = 1), body TEXT NOT NULL, place BLOB NOT NULL);
CREATE TABLE records (record TEXT PRIMARY KEY, leaf INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE position (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    frozen INTEGER NOT NULL, total BLOB NOT NULL, total_count INTEGER NOT NULL,
    leaf BLOB NOT NULL, leaf_count INTEGER NOT NULL, clipped INTEGER NOT NULL
);
CREATE TABLE releases (
    number INTEGER PRIMARY KEY, place BLOB NOT NULL, message BLOB, sent INTEGER NOT NULL DEFAULT 0
);
"""

# (name, event, when it is refused). REPLACE removes rows without asking a DELETE trigger, so a row that is
# there is guarded on INSERT too.
_RULES = [
    (
        "one_content",
        "UPDATE ON releases",
        "OLD.number != NEW.number OR OLD.place != NEW.place OR OLD.sent > NEW.sent "
        "OR (OLD.message IS NOT NULL AND OLD.message IS NOT NEW.message)",
    ),
    ("one_release", "INSERT ON releases", "EXISTS (SELECT 1 FROM releases WHERE number = NEW.number)"),
    ("releases_stay", "DELETE ON releases", "1"),
    ("one_leaf", "UPDATE ON records", "1"),
    ("one_record", "INSERT ON records", "EXISTS (SELECT 1 FROM records WHERE record = NEW.record)"),
    ("records_stay", "DELETE ON records", "1"),
    ("one_run", "UPDATE ON parameters", "1"),
    ("one_parameters", "INSERT ON parameters", "EXISTS (SELECT 1 FROM parameters)"),
    ("parameters_stay", "DELETE ON parameters", "1"),
    ("onwards", "UPDATE ON position", "NEW.frozen < OLD.frozen"),
    ("onwards_too", "INSERT ON position", "EXISTS (SELECT 1 FROM position WHERE frozen > NEW.frozen)"),
    ("position_stays", "DELETE ON position", "1"),
]

_LEDGER_SCHEMA = _TABLES + "".join(
    f"CREATE TRIGGER {name} BEFORE {event} WHEN {broken} "
    f"BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: {name}'); END;\n"
    for name, event, broken in _RULES
)

_PERSONS_SCHEMA = """
CREATE TABLE persons (person TEXT PRIMARY KEY, records INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE bound (id INTEGER PRIMARY KEY CHECK (id = 1), records INTEGER NOT NULL);
"""
