"""The privacy ledger of one run, and its counts of persons, in the agent's database and transactions.

A record, a leaf or a message is stored in the same transaction as the agent's step, so no release is half
made.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

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
from fedfairx.storage.database import Row
from fedfairx.storage.transaction_log import Log
from fedfairx.util.canonical_json import canonical

_HERE = "agent = ? AND run = ?"
_POSITION = ("frozen", "total", "total_count", "leaf", "leaf_count", "clipped")
_SAVE = (
    f"INSERT INTO ledger_positions (agent, run, {', '.join(_POSITION)}) "
    f"VALUES ({', '.join('?' * (2 + len(_POSITION)))}) ON CONFLICT (agent, run) "
    f"DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _POSITION)}"
)
_COUNT = (
    "INSERT INTO ledger_persons (agent, run, person, records) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (agent, run, person) DO UPDATE SET records = ledger_persons.records + excluded.records"
)


class StoredLedger(NoCopy):
    """As `Ledger`, for run number `run` of an agent; each method is one transaction."""

    def __init__(self, log: Log, agent: int, run: int) -> None:
        self._log = log
        self._key = agent, run
        self._position = "ledger_positions", agent, run

    def bind(self, parameters: Mapping[str, Any]) -> None:
        rows = self._ask("body", "ledgers")
        if not rows:
            body = canonical(dict(parameters))
            place = next_place(bytes(32), secrets.token_bytes(SALT_BYTES), body)
            with self._log.transaction:
                self._insert("ledgers", body=body.decode(), place=place)
            return
        # Through JSON and back, so that a tuple in one and a list in the other are the same.
        refuse_other_parameters(json.loads(rows[0][0]), json.loads(canonical(dict(parameters))))

    def position(self) -> Position | None:
        waiting = self._log.latest.get(self._position)
        if waiting is not None:
            return position_of(waiting[1][len(self._key) :])
        rows = self._ask(", ".join(_POSITION), "ledger_positions")
        return position_of(rows[0]) if rows else None

    def _save(self, position: Position) -> None:
        """Inside a transaction, replace the position."""
        self._log.write_last(self._position, _SAVE, (*self._key, *row_of(position)))

    def add(self, record: str | None, position: Position) -> None:
        with self._log.transaction:
            if record is not None:
                rows = self._ask("leaf", "ledger_records", "record = ?", record)
                if rows:
                    raise AlreadyObserved(already_in_leaf(rows[0][0]))
                self._insert("ledger_records", record=record, leaf=position.frozen + 1)
            self._save(position)

    def give_leaf(self, position: Position) -> tuple[str, ...]:
        leaf, table = position.frozen + 1, "ledger_records"
        with self._log.transaction:
            of_leaf = tuple(str(row[0]) for row in self._ask("record", table, "leaf = ?", leaf))
            self._log.write(f"DELETE FROM {table} WHERE {_HERE} AND leaf = ?", (*self._key, leaf))
            self._save(position)
        return of_leaf

    def take_leaf(self, records: tuple[str, ...], position: Position) -> None:
        with self._log.transaction:
            for record in records:
                rows = self._ask("leaf", "ledger_records", "record = ?", record)
                if rows:
                    raise AlreadyObserved(already_in_leaf(rows[0][0]))
                self._insert("ledger_records", record=record, leaf=position.frozen + 1)
            self._save(position)

    def freeze(self, number: int, digest: str, position: Position) -> None:
        with self._log.transaction:
            newest = "1 = 1 ORDER BY number DESC LIMIT 1"
            last = self._ask("number, place", "ledger_releases", newest)
            last = last or self._ask("0, place", "ledgers")
            if not last:
                raise LedgerMismatch(UNBOUND)
            before, place = last[0]
            if number != before + 1:
                raise LedgerMismatch(not_next(before + 1, number))
            place = next_place(bytes(place), secrets.token_bytes(SALT_BYTES), digest.encode())
            self._insert("ledger_releases", number=number, place=place)
            self._save(position)

    def place(self, number: int) -> bytes:
        rows = self._ask("place", "ledger_releases", "number = ?", number)
        if not rows:
            raise PrivacyError(not_frozen(number))
        return bytes(rows[0][0])

    def record(self, number: int, message: bytes) -> None:
        with self._log.transaction:
            rows = self._ask("message", "ledger_releases", "number = ?", number)
            if not rows:
                raise LedgerMismatch(f"leaf {number} is not frozen, so release {number} can't be recorded")
            (stored,) = rows[0]
            if stored is None:
                self._change("message", message, number)
            elif bytes(stored) != message:
                raise LedgerMismatch(two_contents(number))

    def message(self, number: int) -> bytes | None:
        rows = self._ask("message", "ledger_releases", "number = ? AND message IS NOT NULL", number)
        return bytes(rows[0][0]) if rows else None

    def mark_sent(self, number: int) -> None:
        with self._log.transaction:
            recorded = "number = ? AND message IS NOT NULL"
            if self._ask("1", "ledger_releases", recorded, number):
                self._change("sent", 1, number)

    def unsent(self) -> tuple[int, ...]:
        rows = self._ask("number", "ledger_releases", "message IS NOT NULL AND sent = 0 ORDER BY number")
        return tuple(row[0] for row in rows)

    def spent(self) -> int:
        rows = self._ask("MAX(number)", "ledger_releases", "message IS NOT NULL")
        return int(rows[0][0] or 0)

    def leaf_of(self, record: str | int) -> int | None:
        rows = self._ask("leaf", "ledger_records", "record = ?", str(record))
        return int(rows[0][0]) if rows else None

    # --- statements ----------------------------------------------------------------------------------

    def _ask(self, columns: str, table: str, where: str = "1 = 1", *values: Any) -> list[Row]:
        question = f"SELECT {columns} FROM {table} WHERE {_HERE} AND {where}"
        with self._log.lock:
            return self._log.database.execute(question, (*self._key, *values))

    def _insert(self, table: str, **columns: Any) -> None:
        marks = ", ".join("?" * (2 + len(columns)))
        statement = f"INSERT INTO {table} (agent, run, {', '.join(columns)}) VALUES ({marks})"
        self._log.write(statement, (*self._key, *columns.values()))

    def _change(self, column: str, value: Any, number: int) -> None:
        """Set a column of a release."""
        statement = f"UPDATE ledger_releases SET {column} = ? WHERE {_HERE} AND number = ?"
        self._log.write(statement, (value, *self._key, number))


class StoredPersons:
    """As `Persons`, in the same transactions."""

    def __init__(self, log: Log, agent: int, run: int) -> None:
        self._log = log
        self._key = agent, run

    def bind(self, records: int) -> None:
        """Do nothing: the limit is stored with the agent's budget."""

    def count(self, person: str, change: int) -> int:
        with self._log.transaction:
            self._log.write(_COUNT, (*self._key, person, change))
            return self.of(person)

    def of(self, person: str) -> int:
        return self._sum("person = ?", person)

    def total(self) -> int:
        return self._sum("1 = 1")

    def _sum(self, where: str, *values: str) -> int:
        question = f"SELECT SUM(records) FROM ledger_persons WHERE {_HERE} AND {where}"
        with self._log.lock:
            return int(self._log.database.execute(question, (*self._key, *values))[0][0] or 0)


def row_of(position: Position) -> Row:
    """Return a position as a row: the sums as little-endian bytes."""
    parts = vars(position).values()
    return tuple(part.astype("<f8").tobytes() if isinstance(part, np.ndarray) else part for part in parts)


def position_of(row: Row) -> Position:
    """Return the position of a row."""
    parts: Any = (v if isinstance(v, int) else np.frombuffer(v, "<f8").astype(np.float64) for v in row)
    return Position(*parts)
