"""A ledger whose rows lie in the tables of a database: its rules, whatever the database.

Where the rows lie, how they are read and what a transaction is say those who are made of it: a file of its
own (`sqlite_ledger`), or the database of the agent (`storage.ledger`).
"""

from __future__ import annotations

import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from fedfairx.errors import AlreadyObserved, LedgerMismatch, PrivacyError
from fedfairx.privacy.ledger.ledger import (
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
from fedfairx.util.arrays import Array
from fedfairx.util.no_copy import NoCopy

Row = tuple[Any, ...]


class Tables(NamedTuple):
    """Their names."""

    parameters: str
    records: str
    releases: str
    position: str


class Access(NamedTuple):
    """How statements are done, in a transaction or for a question by itself."""

    read: Callable[[str, Row], list[Row]]
    write: Callable[[str, Row], object]


class TableLedger(NoCopy, ABC):
    """As `Ledger`. Its rows are those of `key` in tables that may hold other ledgers', too.

    Guarantees:
    - As `Ledger`; each method is one transaction, whole or not at all.
    """

    def __init__(self, tables: Tables, **key: int) -> None:
        self._tables = tables
        self._key = key

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Access]:
        """For questions."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Access]:
        """One durable change."""

    @abstractmethod
    def _save(self, position: Position) -> None:
        """Inside a transaction: in the place of the one before."""

    def bind(self, parameters: Mapping[str, Any]) -> None:
        rows = self._ask("body", self._tables.parameters)
        if not rows:
            body = canonical(parameters)
            place = next_place(bytes(32), secrets.token_bytes(SALT_BYTES), body)
            with self._transaction() as access:
                self._insert(access, self._tables.parameters, body=body.decode(), place=place)
            return
        # Through JSON and back, so that a tuple in one and a list in the other are the same.
        refuse_other_parameters(json.loads(rows[0][0]), json.loads(json.dumps(dict(parameters))))

    def position(self) -> Position | None:
        columns = "frozen, total, total_count, leaf, leaf_count, clipped"
        rows = self._ask(columns, self._tables.position)
        return position_of(rows[0]) if rows else None

    def add(self, record: str | None, position: Position) -> None:
        with self._transaction() as access:
            if record is not None:
                rows = self._find(access, "leaf", self._tables.records, "record = ?", record)
                if rows:
                    raise AlreadyObserved(already_in_leaf(rows[0][0]))
                self._insert(access, self._tables.records, record=record, leaf=position.frozen + 1)
            self._save(position)

    def freeze(self, number: int, digest: str, position: Position) -> None:
        with self._transaction() as access:
            newest = "1 = 1 ORDER BY number DESC LIMIT 1"
            last = self._find(access, "number, place", self._tables.releases, newest)
            last = last or self._find(access, "0, place", self._tables.parameters)
            if not last:
                raise LedgerMismatch(unbound())
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
        with self._transaction() as access:
            rows = self._find(access, "message", self._tables.releases, "number = ?", number)
            if not rows:
                raise LedgerMismatch(f"leaf {number} is not frozen, so release {number} can't be recorded")
            (kept,) = rows[0]
            if kept is None:
                self._change(access, "message", message, number)
            elif bytes(kept) != message:
                raise LedgerMismatch(two_contents(number))

    def message(self, number: int) -> bytes | None:
        rows = self._ask("message", self._tables.releases, "number = ? AND message IS NOT NULL", number)
        return bytes(rows[0][0]) if rows else None

    def mark_sent(self, number: int) -> None:
        with self._transaction() as access:
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
        with self._reading() as access:
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
        """Of a release."""
        statement = f"UPDATE {self._tables.releases} SET {column} = ? WHERE {self._here}number = ?"
        access.write(statement, (value, *self._key.values(), number))

    @property
    def _here(self) -> str:
        return "".join(f"{column} = ? AND " for column in self._key)


def row_of(position: Position) -> Row:
    """A position as it is kept."""
    return (
        position.frozen,
        position.total.astype("<f8").tobytes(),
        position.total_count,
        position.leaf.astype("<f8").tobytes(),
        position.leaf_count,
        position.clipped,
    )


def position_of(row: Row) -> Position:
    """What `row_of` kept."""
    frozen, total, total_count, leaf, leaf_count, clipped = row
    return Position(frozen, _array(total), total_count, _array(leaf), leaf_count, clipped)


def _array(blob: bytes) -> Array:
    return np.frombuffer(blob, dtype="<f8").astype(np.float64)
