"""The privacy ledger of one run, in the agent's own database: its rows are written in the agent's own steps.

What `privacy.ledger` says of a ledger holds here too, and one thing more: a record, a leaf or a message is
there exactly when the agent's step is. So a release is never left half made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedfairx.privacy.ledger.ledger import Position
from fedfairx.privacy.ledger.sql import Access, TableLedger, Tables, position_of, row_of
from fedfairx.storage.transaction_log import Log

TABLES = Tables("ledgers", "ledger_records", "ledger_releases", "ledger_positions")
_SAVE = (
    "INSERT INTO ledger_positions VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (agent, run) DO UPDATE SET "
    + ", ".join(
        f"{name} = excluded.{name}"
        for name in ("frozen", "total", "total_count", "leaf", "leaf_count", "clipped")
    )
)


class StoredLedger(TableLedger):
    """As `Ledger`, for run number `run` of an agent."""

    def __init__(self, log: Log, agent: int, run: int) -> None:
        super().__init__(TABLES, agent=agent, run=run)
        self._log = log
        self._place = ("position", agent, run)

    @contextmanager
    def _reading(self) -> Iterator[Access]:
        with self._log.lock:
            yield Access(self._log.database.execute, self._log.write)

    @contextmanager
    def _transaction(self) -> Iterator[Access]:
        with self._log.step(), self._reading() as access:
            yield access

    def position(self) -> Position | None:
        waiting = self._log.latest.get(self._place)  # of the open step
        return super().position() if waiting is None else position_of(waiting[1][2:])

    def _save(self, position: Position) -> None:
        self._log.write_last(self._place, _SAVE, (*self._key.values(), *row_of(position)))


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
            question = "SELECT records FROM ledger_persons WHERE agent = ? AND run = ? AND person = ?"
            return int(log.write(question, (*self._key, person))[0][0])

    def of(self, person: str) -> int:
        with self._log.lock:
            question = "SELECT records FROM ledger_persons WHERE agent = ? AND run = ? AND person = ?"
            rows = self._log.database.execute(question, (*self._key, person))
            return int(rows[0][0]) if rows else 0

    def total(self) -> int:
        with self._log.lock:
            question = "SELECT SUM(records) FROM ledger_persons WHERE agent = ? AND run = ?"
            return int(self._log.database.execute(question, self._key)[0][0] or 0)
