"""The privacy ledger of one run, in the agent's own database: its rows are written in the agent's own steps.

What `privacy.ledger` says of a ledger holds here too, and one thing more: a record, a leaf or a message is
there exactly when the agent's step is. So a release is never left half made.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

from fedfairx.errors import AlreadyObserved, LedgerMismatch, PrivacyError
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
from fedfairx.privacy.unique import Unique
from fedfairx.storage.database import Row
from fedfairx.storage.log import Log
from fedfairx.storage.rows import floats

_HERE = "agent = ? AND run = ?"
_SAVE = (
    "INSERT INTO ledger_positions VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (agent, run) DO UPDATE SET "
    + ", ".join(
        f"{name} = excluded.{name}"
        for name in ("frozen", "total", "total_count", "leaf", "leaf_count", "clipped")
    )
)


class StoredLedger(Unique):
    """As `Ledger`, for run number `run` of an agent."""

    def __init__(self, log: Log, agent: int, run: int) -> None:
        self._log = log
        self._key = (agent, run)

    def _rows(self, question: str, *values: Any) -> list[Row]:
        with self._log.lock:
            return self._log.database.execute(question, (*self._key, *values))

    def bind(self, parameters: Mapping[str, Any]) -> None:
        rows = self._rows(f"SELECT body FROM ledgers WHERE {_HERE}")
        if not rows:
            body = canonical(parameters)
            place = next_place(bytes(32), secrets.token_bytes(SALT_BYTES), body)
            with self._log.step() as log:
                log.write("INSERT INTO ledgers VALUES (?, ?, ?, ?)", (*self._key, body.decode(), place))
            return
        # Through JSON and back, so that a tuple in one and a list in the other are the same.
        refuse_other_parameters(json.loads(rows[0][0]), json.loads(json.dumps(dict(parameters))))

    def position(self) -> Position | None:
        waiting = self._log.latest.get(("position", *self._key))
        columns = "frozen, total, total_count, leaf, leaf_count, clipped"
        rows = (
            [waiting[1][2:]]
            if waiting
            else self._rows(f"SELECT {columns} FROM ledger_positions WHERE {_HERE}")
        )
        if not rows:
            return None
        frozen, total, total_count, leaf, leaf_count, clipped = rows[0]
        return Position(frozen, floats(total), total_count, floats(leaf), leaf_count, clipped)

    def add(self, record: str | None, position: Position) -> None:
        with self._log.step() as log:
            if record is not None:
                rows = self._rows(f"SELECT leaf FROM ledger_records WHERE {_HERE} AND record = ?", record)
                if rows:
                    raise AlreadyObserved(already_in_leaf(rows[0][0]))
                log.write(
                    "INSERT INTO ledger_records VALUES (?, ?, ?, ?)",
                    (*self._key, record, position.frozen + 1),
                )
            self._save(position)

    def freeze(self, number: int, digest: str, position: Position) -> None:
        with self._log.step() as log:
            last = self._rows(
                f"SELECT number, place FROM ledger_releases WHERE {_HERE} ORDER BY number DESC LIMIT 1"
            ) or self._rows(f"SELECT 0, place FROM ledgers WHERE {_HERE}")
            if not last:
                raise LedgerMismatch(unbound())
            before, place = last[0]
            if number != before + 1:
                raise LedgerMismatch(not_next(before + 1, number))
            place = next_place(bytes(place), secrets.token_bytes(SALT_BYTES), digest.encode())
            log.write("INSERT INTO ledger_releases VALUES (?, ?, ?, ?, NULL, 0)", (*self._key, number, place))
            self._save(position)

    def place(self, number: int) -> bytes:
        rows = self._rows(f"SELECT place FROM ledger_releases WHERE {_HERE} AND number = ?", number)
        if not rows:
            raise PrivacyError(not_frozen(number))
        return bytes(rows[0][0])

    def record(self, number: int, message: bytes) -> None:
        with self._log.step() as log:
            rows = self._rows(f"SELECT message FROM ledger_releases WHERE {_HERE} AND number = ?", number)
            if not rows:
                raise LedgerMismatch(f"leaf {number} is not frozen, so release {number} can't be recorded")
            if rows[0][0] is not None:
                if bytes(rows[0][0]) != message:
                    raise LedgerMismatch(two_contents(number))
                return
            log.write(
                f"UPDATE ledger_releases SET message = ? WHERE {_HERE} AND number = ?",
                (message, *self._key, number),
            )

    def message(self, number: int) -> bytes | None:
        rows = self._rows(f"SELECT message FROM ledger_releases WHERE {_HERE} AND number = ?", number)
        return None if not rows or rows[0][0] is None else bytes(rows[0][0])

    def mark_sent(self, number: int) -> None:
        with self._log.step() as log:
            log.write(
                f"UPDATE ledger_releases SET sent = 1 WHERE {_HERE} AND number = ? AND message IS NOT NULL",
                (*self._key, number),
            )

    def unsent(self) -> tuple[int, ...]:
        question = f"SELECT number FROM ledger_releases WHERE {_HERE} AND message IS NOT NULL AND sent = 0"
        return tuple(sorted(row[0] for row in self._rows(question)))

    def spent(self) -> int:
        question = f"SELECT MAX(number) FROM ledger_releases WHERE {_HERE} AND message IS NOT NULL"
        return int(self._rows(question)[0][0] or 0)

    def _save(self, position: Position) -> None:
        self._log.write_last(
            ("position", *self._key),
            _SAVE,
            (
                *self._key,
                position.frozen,
                position.total.tobytes(),
                position.total_count,
                position.leaf.tobytes(),
                position.leaf_count,
                position.clipped,
            ),
        )


class StoredPersons:
    """As `Persons`, in the same steps; the limit itself is in the agent's budget."""

    def __init__(self, log: Log, agent: int, run: int) -> None:
        self._log = log
        self._key = (agent, run)

    def bind(self, records: int) -> None:
        """The budget that the limit comes from is kept, so there is nothing to compare."""

    def count(self, person: str, change: int) -> int:
        with self._log.step() as log:
            log.write(
                "INSERT INTO ledger_persons VALUES (?, ?, ?, ?) ON CONFLICT (agent, run, person) "
                "DO UPDATE SET records = ledger_persons.records + excluded.records",
                (*self._key, person, change),
            )
            question = f"SELECT records FROM ledger_persons WHERE {_HERE} AND person = ?"
            return int(log.write(question, (*self._key, person))[0][0])

    def total(self) -> int:
        with self._log.lock:
            question = f"SELECT SUM(records) FROM ledger_persons WHERE {_HERE}"
            return int(self._log.database.execute(question, self._key)[0][0] or 0)
