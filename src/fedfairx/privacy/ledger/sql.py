"""Ledgers and counts of persons in a SQL database.

The database is a separate file (`sqlite.py`) or the database of the agent (`storage.privacy_ledger`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedfairx.errors import AlreadyObserved, LedgerMismatch, PrivacyError
from fedfairx.privacy.ledger.ledger import (
    SALT_BYTES,
    UNBOUND,
    Position,
    already_in_leaf,
    next_place,
    not_frozen,
    not_next,
    refuse_other_parameters,
    two_contents,
)
from fedfairx.privacy.release import NoCopy
from fedfairx.util.canonical_json import canonical

Row = tuple[Any, ...]
_POSITION = ("frozen", "total", "total_count", "leaf", "leaf_count", "clipped")


class Tables(NamedTuple):
    """Names of a ledger's tables."""

    parameters: str
    records: str
    releases: str
    position: str


class Access(NamedTuple):
    """Functions that execute a statement and return its rows."""

    read: Callable[[str, Row], list[Row]]
    write: Callable[[str, Row], list[Row]]


class LedgerDatabase(Protocol):
    """The database that a ledger writes to."""

    def reading(self) -> AbstractContextManager[Access]:
        """Give access for queries."""

    def transaction(self) -> AbstractContextManager[Access]:
        """Give access for one durable change, which is made as a whole or not at all."""

    def write_last(self, table: str, key: Row, statement: str, values: Row) -> None:
        """Inside a transaction, write the one row of `key`, now or when the transaction ends."""

    def waiting(self, table: str, key: Row) -> Row | None:
        """Return the values that `write_last` holds back for that row, if any."""


class SqlLedger(NoCopy):
    """A ledger whose rows are those of `key` in tables that may hold other ledgers too.

    Guarantees:
    - As `Ledger`; each method is one transaction, made as a whole or not at all.
    """

    def __init__(self, database: LedgerDatabase, tables: Tables, **key: int) -> None:
        self._database = database
        self._tables = tables
        self._key = key
        place = key or {"id": 1}
        self._place = tuple(place.values())
        self._save_position = (
            f"INSERT INTO {tables.position} ({', '.join((*place, *_POSITION))}) "
            f"VALUES ({', '.join('?' * (len(place) + len(_POSITION)))}) ON CONFLICT ({', '.join(place)}) "
            f"DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _POSITION)}"
        )

    def bind(self, parameters: Mapping[str, Any]) -> None:
        rows = self._ask("body", self._tables.parameters)
        if not rows:
            body = canonical(dict(parameters))
            place = next_place(bytes(32), secrets.token_bytes(SALT_BYTES), body)
            with self._database.transaction() as access:
                self._insert(access, self._tables.parameters, body=body.decode(), place=place)
            return
        # Through JSON and back, so that a tuple in one and a list in the other are the same.
        refuse_other_parameters(json.loads(rows[0][0]), json.loads(canonical(dict(parameters))))

    def position(self) -> Position | None:
        waiting = self._database.waiting(self._tables.position, self._place)
        if waiting is not None:
            return position_of(waiting[len(self._place) :])
        rows = self._ask(", ".join(_POSITION), self._tables.position)
        return position_of(rows[0]) if rows else None

    def _save(self, position: Position) -> None:
        """Inside a transaction, replace the position."""
        row = (*self._place, *row_of(position))
        self._database.write_last(self._tables.position, self._place, self._save_position, row)

    def add(self, record: str | None, position: Position) -> None:
        with self._database.transaction() as access:
            if record is not None:
                rows = self._find(access, "leaf", self._tables.records, "record = ?", record)
                if rows:
                    raise AlreadyObserved(already_in_leaf(rows[0][0]))
                self._insert(access, self._tables.records, record=record, leaf=position.frozen + 1)
            self._save(position)

    def give_leaf(self, position: Position) -> tuple[str, ...]:
        leaf, table = position.frozen + 1, self._tables.records
        with self._database.transaction() as access:
            of_leaf = tuple(str(row[0]) for row in self._find(access, "record", table, "leaf = ?", leaf))
            access.write(f"DELETE FROM {table} WHERE {self._here}leaf = ?", (*self._key.values(), leaf))
            self._save(position)
        return of_leaf

    def take_leaf(self, records: tuple[str, ...], position: Position) -> None:
        with self._database.transaction() as access:
            for record in records:
                rows = self._find(access, "leaf", self._tables.records, "record = ?", record)
                if rows:
                    raise AlreadyObserved(already_in_leaf(rows[0][0]))
                self._insert(access, self._tables.records, record=record, leaf=position.frozen + 1)
            self._save(position)

    def freeze(self, number: int, digest: str, position: Position) -> None:
        with self._database.transaction() as access:
            newest = "1 = 1 ORDER BY number DESC LIMIT 1"
            last = self._find(access, "number, place", self._tables.releases, newest)
            last = last or self._find(access, "0, place", self._tables.parameters)
            if not last:
                raise LedgerMismatch(UNBOUND)
            before, place = last[0]
            if number != before + 1:
                raise LedgerMismatch(not_next(before + 1, number))
            place = next_place(bytes(place), secrets.token_bytes(SALT_BYTES), digest.encode())
            self._insert(access, self._tables.releases, number=number, place=place)
            self._save(position)

    def place(self, number: int) -> bytes:
        rows = self._ask("place", self._tables.releases, "number = ?", number)
        if not rows:
            raise PrivacyError(not_frozen(number))
        return bytes(rows[0][0])

    def record(self, number: int, message: bytes) -> None:
        with self._database.transaction() as access:
            rows = self._find(access, "message", self._tables.releases, "number = ?", number)
            if not rows:
                raise LedgerMismatch(f"leaf {number} is not frozen, so release {number} can't be recorded")
            (stored,) = rows[0]
            if stored is None:
                self._change(access, "message", message, number)
            elif bytes(stored) != message:
                raise LedgerMismatch(two_contents(number))

    def message(self, number: int) -> bytes | None:
        rows = self._ask("message", self._tables.releases, "number = ? AND message IS NOT NULL", number)
        return bytes(rows[0][0]) if rows else None

    def mark_sent(self, number: int) -> None:
        with self._database.transaction() as access:
            recorded = "number = ? AND message IS NOT NULL"
            if self._find(access, "1", self._tables.releases, recorded, number):
                self._change(access, "sent", 1, number)

    def unsent(self) -> tuple[int, ...]:
        rows = self._ask("number", self._tables.releases, "message IS NOT NULL AND sent = 0 ORDER BY number")
        return tuple(row[0] for row in rows)

    def spent(self) -> int:
        rows = self._ask("MAX(number)", self._tables.releases, "message IS NOT NULL")
        return int(rows[0][0] or 0)

    def leaf_of(self, record: str | int) -> int | None:
        rows = self._ask("leaf", self._tables.records, "record = ?", str(record))
        return int(rows[0][0]) if rows else None

    # --- statements ----------------------------------------------------------------------------------

    def _ask(self, columns: str, table: str, where: str = "1 = 1", *values: Any) -> list[Row]:
        with self._database.reading() as access:
            return self._find(access, columns, table, where, *values)

    def _find(
        self, access: Access, columns: str, table: str, where: str = "1 = 1", *values: Any
    ) -> list[Row]:
        question = f"SELECT {columns} FROM {table} WHERE {self._here}{where}"
        return access.read(question, (*self._key.values(), *values))

    def _insert(self, access: Access, table: str, **columns: Any) -> None:
        row = self._key | columns
        marks = ", ".join("?" * len(row))
        access.write(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))

    def _change(self, access: Access, column: str, value: Any, number: int) -> None:
        """Set a column of a release."""
        statement = f"UPDATE {self._tables.releases} SET {column} = ? WHERE {self._here}number = ?"
        access.write(statement, (value, *self._key.values(), number))

    @property
    def _here(self) -> str:
        return "".join(f"{column} = ? AND " for column in self._key)


class SqlPersons:
    """Counts whose rows are those of `key` in a table that may hold other counts too; `bind` is missing."""

    def __init__(self, database: LedgerDatabase, table: str, **key: int) -> None:
        self._database = database
        self._table = table
        self._key = tuple(key.values())
        self._here = "".join(f"{column} = ? AND " for column in key)
        columns, marks = ", ".join((*key, "person")), "?, " * len(key)
        self._add = (
            f"INSERT INTO {table} ({columns}, records) VALUES ({marks}?, ?) ON CONFLICT ({columns}) "
            f"DO UPDATE SET records = {table}.records + excluded.records"
        )

    def count(self, person: str, change: int) -> int:
        with self._database.transaction() as access:
            access.write(self._add, (*self._key, person, change))
            return self._sum(access, "person = ?", person)

    def of(self, person: str) -> int:
        with self._database.reading() as access:
            return self._sum(access, "person = ?", person)

    def total(self) -> int:
        with self._database.reading() as access:
            return self._sum(access, "1 = 1")

    def _sum(self, access: Access, where: str, *values: str) -> int:
        question = f"SELECT SUM(records) FROM {self._table} WHERE {self._here}{where}"
        return int(access.read(question, (*self._key, *values))[0][0] or 0)


def row_of(position: Position) -> Row:
    """Return a position as a row: the sums as little-endian bytes."""
    parts = vars(position).values()
    return tuple(part.astype("<f8").tobytes() if isinstance(part, np.ndarray) else part for part in parts)


def position_of(row: Row) -> Position:
    """Return the position of a row."""
    parts: Any = (v if isinstance(v, int) else np.frombuffer(v, "<f8").astype(np.float64) for v in row)
    return Position(*parts)
