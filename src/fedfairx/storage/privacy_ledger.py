"""The privacy ledger of one run, in the agent's database and transactions.

A record, a leaf or a message is stored in the same transaction as the agent's step, so no release is half
made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedfairx.privacy.ledger.sql import Access, Row, SqlLedger, SqlPersons, Tables
from fedfairx.storage.transaction_log import Log


class LogDatabase:
    """The database of a `Log`, as `LedgerDatabase`."""

    def __init__(self, log: Log) -> None:
        self._log = log

    @contextmanager
    def reading(self) -> Iterator[Access]:
        with self._log.lock:
            yield Access(self._log.database.execute, self._log.write)

    @contextmanager
    def transaction(self) -> Iterator[Access]:
        with self._log.transaction, self.reading() as access:
            yield access

    def write_last(self, table: str, key: Row, statement: str, values: Row) -> None:
        self._log.write_last((table, *key), statement, values)

    def waiting(self, table: str, key: Row) -> Row | None:
        latest = self._log.latest.get((table, *key))
        return None if latest is None else latest[1]


class StoredLedger(SqlLedger):
    """As `Ledger`, for run number `run` of an agent."""

    def __init__(self, log: Log, agent: int, run: int) -> None:
        tables = Tables("ledgers", "ledger_records", "ledger_releases", "ledger_positions")
        super().__init__(LogDatabase(log), tables, agent=agent, run=run)


class StoredPersons(SqlPersons):
    """As `Persons`, in the same transactions."""

    def __init__(self, log: Log, agent: int, run: int) -> None:
        super().__init__(LogDatabase(log), "ledger_persons", agent=agent, run=run)

    def bind(self, records: int) -> None:
        """Do nothing: the limit is stored with the agent's budget."""
