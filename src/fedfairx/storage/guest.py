"""A guest in a database that another process may hold: for its callers' keys, never for an agent's steps."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedfairx.errors import StorageUnavailable
from fedfairx.storage.database import Database, open_database
from fedfairx.storage.keys import ApiKeys
from fedfairx.storage.log import Log
from fedfairx.storage.schema import bring_up
from fedfairx.storage.sqlite import SqliteDatabase

__all__ = ["open_keys"]


@contextmanager
def open_keys(place: str | os.PathLike[str]) -> Iterator[ApiKeys]:
    """The keys in a database, whether or not a service has it open; a new database is made."""
    try:
        database = open_database(place)
        bring_up(database)
    except StorageUnavailable:  # somebody holds it, who has made its tables
        database = _guest(os.fspath(place))
    try:
        yield ApiKeys(Log(database))
    finally:
        database.close()


def _guest(place: str) -> Database:
    if not place.startswith(("postgresql://", "postgres://")):
        return SqliteGuest(place)
    from fedfairx.storage.postgres import PostgresDatabase

    class PostgresGuest(PostgresDatabase):
        """Writes beside whoever has the lock."""

        def _lock(self, connection: object) -> None: ...

    return PostgresGuest(place)


class _NoLock:
    """In the place of a `FileLock`."""

    def check(self) -> None: ...

    def free(self) -> None: ...


class SqliteGuest(SqliteDatabase):
    """Writes in turn with whoever holds the file; SQLite sees to it that both are whole."""

    def __init__(self, path: str) -> None:
        self.place = path
        self._guard = threading.RLock()
        self._reader = None
        self._file = Path(path).resolve()
        self._lock = _NoLock()  # type: ignore[assignment]
        with self._translated():
            self._writer = self._connect(self._file)

    def close(self) -> None:
        self._writer.close()
        if self._reader is not None:
            self._reader.close()
