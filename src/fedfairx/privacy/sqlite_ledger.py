"""The durable ledger: one SQLite file that survives kill -9 at any point.

`synchronous=FULL` makes every commit reach the disk before the method returns. While it is open, a lock file
beside it keeps others out (`file_lock.py`): two agents on one ledger would be two releases of one number.
Triggers keep releases and records append-only, whoever writes. A ledger put back from an old copy can't be
told from a crash by itself; peers can tell (`peers.py`), and what it releases has noise of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedfairx.arrays import Array
from fedfairx.errors import AlreadyObserved, LedgerMismatch, PrivacyError
from fedfairx.privacy.file_lock import FileLock
from fedfairx.privacy.ledger import (
    SALT_BYTES,
    Position,
    already_in_leaf,
    canonical,
    next_place,
    not_frozen,
    not_next,
    refuse_other_parameters,
    two_contents,
    unbound,
)
from fedfairx.privacy.sqlite_schema import APPLICATION, SAVE, SCHEMA
from fedfairx.privacy.unique import Unique

__all__ = ["SqliteLedger"]


class SqliteLedger(Unique):
    """A ledger in a file of its owner's. Use it as a context manager, or `close` it.

    A file that isn't there is an error unless `create=True`: a run whose ledger is gone can't go on.

    Guarantees:
    - As `Ledger`, and what a method has done survives kill -9 and power failure.
    - Only one process at a time has it open; another is refused, and so is a forked child.
    - The file is readable by its owner only: it holds exact sums.
    """

    def __init__(self, path: str | Path, *, create: bool = False) -> None:
        self.path = Path(path)
        file = self.path.resolve()  # however it is called, it is one file
        if not create and not file.exists():
            raise LedgerMismatch(
                f"there is no ledger {self.path}: a run can't go on without its own; "
                "create=True makes one, for a new run with a budget of its own"
            )
        self._guard = threading.RLock()
        self._lock = FileLock(file.with_name(file.name + ".lock"))
        try:
            self._connection = self._connect(file, create)
        except sqlite3.OperationalError as error:
            self._lock.free()
            raise LedgerMismatch(f"ledger {self.path} can't be opened: {error}; is it in use?") from error
        except sqlite3.DatabaseError as error:
            self._lock.free()
            raise LedgerMismatch(f"{self.path} is not a ledger: {error}") from error
        except BaseException:
            self._lock.free()
            raise
        _OPEN.add(self)

    def _connect(self, file: Path, create: bool) -> sqlite3.Connection:
        if not file.exists():
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        # Never opened but by SQLite from here on: closing a descriptor would drop SQLite's own locks.
        if os.stat(file).st_nlink > 1:
            raise LedgerMismatch(
                f"{self.path} has two names (hard links), and a lock guards only one of them"
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
            if tables == 0 and create:
                connection.executescript(
                    f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA application_id = {APPLICATION}; COMMIT;"
                )
            elif version != APPLICATION:
                raise LedgerMismatch(f"{self.path} is not a ledger of this version of fedfairx")
        except BaseException:
            connection.close()
            raise
        return connection

    def __enter__(self) -> SqliteLedger:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the file free."""
        with self._guard:
            if self in _OPEN:
                _OPEN.discard(self)
                self._connection.close()
                self._lock.free()

    def _disown(self) -> None:
        """In a forked child: the file stays the parent's."""
        _OPEN.discard(self)
        self._lock.free()
        # Closing it would end the parent's write-ahead log, so it is kept from ever being closed here.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        self._lock.check()
        with self._guard:
            if self._connection.in_transaction:  # one that Ctrl-C left open
                self._connection.execute("ROLLBACK")
            yield self._connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def bind(self, parameters: Mapping[str, Any]) -> None:
        with self._transaction() as connection:
            row = connection.execute("SELECT body FROM parameters").fetchone()
            if row is None:
                body = canonical(parameters)
                place = next_place(bytes(32), secrets.token_bytes(SALT_BYTES), body)
                connection.execute("INSERT INTO parameters VALUES (1, ?, ?)", (body.decode(), place))
                return
        # Through JSON and back, so that a tuple in one and a list in the other are the same.
        refuse_other_parameters(json.loads(row[0]), json.loads(json.dumps(dict(parameters))))

    def position(self) -> Position | None:
        row = self._row("SELECT frozen, total, total_count, leaf, leaf_count, clipped FROM position")
        if row is None:
            return None
        frozen, total, total_count, leaf, leaf_count, clipped = row
        return Position(frozen, _array(total), total_count, _array(leaf), leaf_count, clipped)

    def add(self, record: str | None, position: Position) -> None:
        with self._transaction() as connection:
            if record is not None:
                row = connection.execute("SELECT leaf FROM records WHERE record = ?", (record,)).fetchone()
                if row is not None:
                    raise AlreadyObserved(already_in_leaf(row[0]))
                connection.execute("INSERT INTO records VALUES (?, ?)", (record, position.frozen + 1))
            self._save(position)

    def freeze(self, number: int, digest: str, position: Position) -> None:
        with self._transaction() as connection:
            row = connection.execute(
                "SELECT number, place FROM releases UNION ALL SELECT 0, place FROM parameters "
                "ORDER BY number DESC LIMIT 1"
            ).fetchone()
            if row is None:
                raise LedgerMismatch(unbound())
            last, before = row
            if number != last + 1:
                raise LedgerMismatch(not_next(last + 1, number))
            place = next_place(before, secrets.token_bytes(SALT_BYTES), digest.encode())
            connection.execute("INSERT INTO releases (number, place) VALUES (?, ?)", (number, place))
            self._save(position)

    def place(self, number: int) -> bytes:
        row = self._row("SELECT place FROM releases WHERE number = ?", number)
        if row is None:
            raise PrivacyError(not_frozen(number))
        return bytes(row[0])

    def record(self, number: int, message: bytes) -> None:
        with self._transaction() as connection:
            row = connection.execute("SELECT message FROM releases WHERE number = ?", (number,)).fetchone()
            if row is None:
                raise LedgerMismatch(f"leaf {number} is not frozen, so release {number} can't be recorded")
            if row[0] is not None and row[0] != message:
                raise LedgerMismatch(two_contents(number))
            connection.execute("UPDATE releases SET message = ? WHERE number = ?", (message, number))

    def message(self, number: int) -> bytes | None:
        row = self._row("SELECT message FROM releases WHERE number = ?", number)
        return None if row is None else row[0]

    def mark_sent(self, number: int) -> None:
        with self._transaction() as connection:
            connection.execute(
                "UPDATE releases SET sent = 1 WHERE number = ? AND message IS NOT NULL", (number,)
            )

    def unsent(self) -> tuple[int, ...]:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT number FROM releases WHERE message IS NOT NULL AND sent = 0 ORDER BY number"
            ).fetchall()
        return tuple(row[0] for row in rows)

    def spent(self) -> int:
        row = self._row("SELECT number FROM releases WHERE message IS NOT NULL ORDER BY number DESC LIMIT 1")
        return 0 if row is None else int(row[0])

    def leaf_of(self, record: str | int) -> int | None:
        """The leaf that a record went into, for the owner; None when it never came."""
        row = self._row("SELECT leaf FROM records WHERE record = ?", str(record))
        return None if row is None else int(row[0])

    def _row(self, question: str, *values: Any) -> Any:
        with self._reading() as connection:
            return connection.execute(question, values).fetchone()

    def _save(self, position: Position) -> None:
        self._connection.execute(
            SAVE,
            (
                position.frozen,
                position.total.astype("<f8").tobytes(),
                position.total_count,
                position.leaf.astype("<f8").tobytes(),
                position.leaf_count,
                position.clipped,
            ),
        )


_OPEN: weakref.WeakSet[SqliteLedger] = weakref.WeakSet()


def _in_forked_child() -> None:
    for ledger in list(_OPEN):
        ledger._disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)


def _array(blob: bytes) -> Array:
    return np.frombuffer(blob, dtype="<f8").astype(np.float64)
