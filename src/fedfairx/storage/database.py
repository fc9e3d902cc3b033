"""The interface of a database.

Statements are written once, in the SQL that SQLite and PostgreSQL share, with `?` for values. One connection
writes and another reads what is committed, so that queries wait for no transaction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from fedfairx.errors import StateError, StorageError, StorageUnavailable

Row = tuple[Any, ...]
#: "own": exclusive for this process, by a lock. "beside": single statements while another process has it.
#: "read": a read-only snapshot of what is committed. "memory": in no file, for an agent that is saved or
#: copied.
Access = Literal["own", "beside", "read", "memory"]
Ask = Callable[[str, Sequence[Any]], list[Row]]
PAGE = 2000  # rows at a time


class Busy(StorageUnavailable):
    """Another process is writing."""


class InUse(StorageUnavailable):
    """Another process has the database."""


class LastRow(NamedTuple):
    """The row that this process wrote last, or read last at the end of the log.

    A copy of the database that has this row has all that was written before it. `where` finds it by number
    and digest, after FROM; `end` is the number after the last step.
    """

    where: str
    values: Row
    end: int


def is_there(ask: Ask, last: LastRow) -> bool:
    """Whether a database has a row that it must have, unless it is an older copy or another database."""
    return ask(f"SELECT COUNT(*) FROM {last.where}", last.values) == [(1,)]


class Database(Protocol):
    """An open database. Every error is a `StorageUnavailable` or a `StateError`.

    >>> from fedfairx.storage import open_database
    >>> database: Database = open_database("some.db")
    >>> database.execute("SELECT 1")
    [(1,)]
    >>> database.close()
    """

    #: What must be there still whenever something is written; set by the log.
    last_row: LastRow | None
    #: Why this process must not use the database any more; None as long as it may.
    ended: StorageError | None

    @property
    def place(self) -> str:
        """The file or the address, without a password."""
        ...

    @property
    def mark(self) -> dict[str, Any]:
        """The mark that `leave_mark` wrote beside the database; {} if there is none."""
        ...

    @property
    def unmark(self) -> str:
        """What to do to go on from an older copy all the same, as a command."""
        ...

    @property
    def local(self) -> bool:
        """Whether a transaction waits for no server."""
        ...

    def check_last_row(self) -> None:
        """Raise `OlderCopy` unless what is `last_row` is there; `begin` and `insert` do so too."""
        ...

    def begin(self, *, briefly: bool = False) -> None:
        """Begin a transaction; `briefly`: raise `Busy` soon if another process is writing."""
        ...

    def commit(self) -> None:
        """Return once the whole transaction is on disk."""
        ...

    def rollback(self) -> None:
        """Discard the transaction; never raises."""
        ...

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute a statement in the open transaction, or as a transaction of its own."""
        ...

    def insert(self, statement: str, row: Row, *, briefly: bool = False) -> None:
        """Begin a transaction, execute an `INSERT INTO … VALUES (…)` for one row, and commit."""
        ...

    def execute_many(self, statement: str, rows: Sequence[Row]) -> None:
        """Execute an `INSERT INTO … VALUES (…)` for each row, inside a transaction."""
        ...

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Query what is committed."""
        ...

    def show_life(self) -> bool:
        """Show that the process is not paused; whether it still has the lock."""
        ...

    def tables(self) -> set[str]:
        """The names of all tables."""
        ...

    def types(self, statement: str) -> str:
        """The statement with BLOB, INTEGER and REAL replaced by this database's type names."""
        ...

    def leave_mark(self, mark: dict[str, Any]) -> None: ...

    def space(self) -> tuple[int, int | None]:
        """The size of the database in bytes, and what is free beside it; None if only a server knows."""
        ...

    def overwrite_deleted(self) -> None:
        """Leave nothing of what was deleted in files of the database, as far as it can be done from here."""
        ...

    def close(self) -> None: ...


def damaged(place: str, what: str) -> StateError:
    """The error of a database that does not hold what was written; it names the remedy."""
    return StateError(f"{place} is damaged: {what}; restore a backup, and check it with `fedfairx verify`")


def pages(
    ask: Ask, statement: str, values: Sequence[Any], *, after: int, limit: int | None = None
) -> Iterator[Row]:
    """All rows, or the first `limit`, of a query `… seq > ? ORDER BY seq LIMIT ?` whose first column is seq.

    ask: a database's `read`, or `execute` to see the open transaction too.
    """
    left: float = math.inf if limit is None else limit
    while left > 0:
        most = int(min(PAGE, left))
        rows = ask(statement, (*values, after, most))
        yield from rows
        if len(rows) < most:
            return
        after = rows[-1][0]
        left -= most
