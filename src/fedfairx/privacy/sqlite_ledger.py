"""The durable ledger: one SQLite file that survives kill -9 at any point.

`synchronous=FULL` makes every commit reach the disk before the method returns. The file is locked while
it is open: two agents on one ledger would be two releases of one number. Triggers keep releases
append-only, whoever writes. A ledger put back from an old copy can't be told from a crash; the receiver's
refusal of a known number with other bytes is the guard.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedfairx.core.statistics import Array
from fedfairx.errors import AlreadyObserved, LedgerMismatch
from fedfairx.privacy.ledger import Position, already_in_leaf, refuse_other_parameters, two_contents

__all__ = ["SqliteLedger"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS parameters (id INTEGER PRIMARY KEY CHECK (id = 1), body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS records (record TEXT PRIMARY KEY, leaf INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS position (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    frozen INTEGER NOT NULL, total BLOB NOT NULL, total_count INTEGER NOT NULL,
    leaf BLOB NOT NULL, leaf_count INTEGER NOT NULL, clipped INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS releases (
    number INTEGER PRIMARY KEY, leaf_digest TEXT NOT NULL, message BLOB, sent INTEGER NOT NULL DEFAULT 0
);
CREATE TRIGGER IF NOT EXISTS one_content BEFORE UPDATE ON releases
WHEN OLD.number != NEW.number OR OLD.leaf_digest != NEW.leaf_digest OR OLD.sent > NEW.sent
    OR (OLD.message IS NOT NULL AND OLD.message IS NOT NEW.message)
BEGIN SELECT RAISE(ABORT, 'releases are append-only'); END;
CREATE TRIGGER IF NOT EXISTS no_removal BEFORE DELETE ON releases
BEGIN SELECT RAISE(ABORT, 'releases are append-only'); END;
CREATE TRIGGER IF NOT EXISTS one_leaf BEFORE UPDATE ON records
BEGIN SELECT RAISE(ABORT, 'a record stays in its leaf'); END;
"""


class SqliteLedger:
    """A ledger in a file of its owner's. Use it as a context manager, or `close` it.

    Guarantees:
    - As `Ledger`, and what a method has done survives kill -9 and power failure.
    - Only one process at a time has it open; another is refused.
    - The file is readable by its owner only: it holds exact sums.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        self._connection = sqlite3.connect(
            self.path, isolation_level=None, timeout=0.2, check_same_thread=False
        )
        try:
            self._connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.executescript(_SCHEMA)
            with self._transaction():
                pass
        except sqlite3.OperationalError as error:
            self._connection.close()
            raise LedgerMismatch(f"ledger {self.path} can't be opened: {error}; is it in use?") from error
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise LedgerMismatch(f"{self.path} is not a ledger: {error}") from error

    def __enter__(self) -> SqliteLedger:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the file free."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def bind(self, parameters: Mapping[str, Any]) -> None:
        with self._transaction() as connection:
            row = connection.execute("SELECT body FROM parameters").fetchone()
            if row is None:
                body = json.dumps(dict(parameters), sort_keys=True)
                connection.execute("INSERT INTO parameters VALUES (1, ?)", (body,))
                return
        # Through JSON and back, so that a tuple in one and a list in the other are the same.
        refuse_other_parameters(json.loads(row[0]), json.loads(json.dumps(dict(parameters))))

    def position(self) -> Position | None:
        row = self._connection.execute(
            "SELECT frozen, total, total_count, leaf, leaf_count, clipped FROM position"
        ).fetchone()
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
            last = connection.execute("SELECT COALESCE(MAX(number), 0) FROM releases").fetchone()[0]
            if number != last + 1:
                raise LedgerMismatch(f"leaf {last + 1} is the next to freeze, got leaf {number}")
            connection.execute("INSERT INTO releases (number, leaf_digest) VALUES (?, ?)", (number, digest))
            self._save(position)

    def record(self, number: int, message: bytes) -> None:
        with self._transaction() as connection:
            row = connection.execute("SELECT message FROM releases WHERE number = ?", (number,)).fetchone()
            if row is None:
                raise LedgerMismatch(f"leaf {number} is not frozen, so release {number} can't be recorded")
            if row[0] is not None and row[0] != message:
                raise LedgerMismatch(two_contents(number))
            connection.execute("UPDATE releases SET message = ? WHERE number = ?", (message, number))

    def message(self, number: int) -> bytes | None:
        row = self._connection.execute("SELECT message FROM releases WHERE number = ?", (number,)).fetchone()
        return None if row is None else row[0]

    def mark_sent(self, number: int) -> None:
        with self._transaction() as connection:
            connection.execute(
                "UPDATE releases SET sent = 1 WHERE number = ? AND message IS NOT NULL", (number,)
            )

    def unsent(self) -> tuple[int, ...]:
        rows = self._connection.execute(
            "SELECT number FROM releases WHERE message IS NOT NULL AND sent = 0 ORDER BY number"
        )
        return tuple(row[0] for row in rows)

    def spent(self) -> int:
        row = self._connection.execute(
            "SELECT number FROM releases WHERE message IS NOT NULL ORDER BY number DESC LIMIT 1"
        ).fetchone()
        return 0 if row is None else int(row[0])

    def leaf_of(self, record: str | int) -> int | None:
        """The leaf that a record went into, for the owner; None when it never came."""
        row = self._connection.execute("SELECT leaf FROM records WHERE record = ?", (str(record),)).fetchone()
        return None if row is None else int(row[0])

    def _save(self, position: Position) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO position VALUES (1, ?, ?, ?, ?, ?, ?)",
            (
                position.frozen,
                position.total.astype("<f8").tobytes(),
                position.total_count,
                position.leaf.astype("<f8").tobytes(),
                position.leaf_count,
                position.clipped,
            ),
        )


def _array(blob: bytes) -> Array:
    return np.frombuffer(blob, dtype="<f8").astype(np.float64)
