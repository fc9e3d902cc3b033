"""What the storage asks of a database, and which one a place means.

Statements are written once, in what SQLite and PostgreSQL have in common, with `?` for values. One connection
writes, and another reads what is committed, so that a question waits for no transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol

Row = tuple[Any, ...]
#: "own": one process at a time, held by a lock. "guest": beside whoever holds it, for single statements.
#: "read": one view of what is committed, which is never written to.
Access = Literal["own", "guest", "read"]
Ask = Callable[[str, Sequence[Any]], list[Row]]
PAGE = 2000  # rows at a time


class Database(Protocol):
    """One writer's hold on a database. Every error is a `StorageUnavailable` or a `StateError`."""

    @property
    def place(self) -> str:
        """The file or the address, without a password."""
        ...

    @property
    def mark(self) -> dict[str, Any]:
        """What `leave_mark` left outside of the database, where there is such a place: {} otherwise."""
        ...

    def begin(self) -> None: ...

    def commit(self) -> None:
        """Returns when all of the transaction is on disk."""
        ...

    def rollback(self) -> None:
        """Never raises: whatever was begun is gone."""
        ...

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Inside a transaction, or a transaction by itself."""
        ...

    def execute_many(self, statement: str, rows: Sequence[Row]) -> None:
        """An `INSERT INTO … VALUES (…)` of each row, inside a transaction."""
        ...

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Of what is committed."""
        ...

    def tables(self) -> set[str]:
        """The tables that there are."""
        ...

    def types(self, statement: str) -> str:
        """The statement with this database's names of types for BLOB, INTEGER and REAL."""
        ...

    def leave_mark(self, mark: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


def pages(ask: Ask, statement: str, values: Sequence[Any], *, after: int) -> Iterator[Row]:
    """All rows of a question that ends in `… seq > ? ORDER BY seq LIMIT ?`, and whose first column is seq.

    ask: a database's `read`, or `execute` for what is in the open transaction too.
    """
    while True:
        rows = ask(statement, (*values, after, PAGE))
        yield from rows
        if len(rows) < PAGE:
            return
        after = rows[-1][0]
