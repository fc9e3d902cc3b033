"""From a path or an address to the database there, and to the log in it."""

from __future__ import annotations

import os
import threading

from fedfairx.storage.database import Access, Database
from fedfairx.storage.migrations import migrate
from fedfairx.storage.rollback_marker import check_mark
from fedfairx.storage.transaction_log import Log


def open_database(place: str | os.PathLike[str], *, access: Access = "own") -> Database:
    """The database at a path (SQLite) or a `postgresql://` address; by default for this process alone."""
    text = os.fspath(place)
    if text.startswith(("postgresql://", "postgres://")):
        from fedfairx.storage.postgres import PostgresDatabase

        return PostgresDatabase(text, access=access)
    from fedfairx.storage.sqlite import SqliteDatabase

    return SqliteDatabase(text, access=access)


_LOGS: dict[tuple[int, str], Log] = {}  # open in this process, by process and place
_LOCK = threading.Lock()


def open_log(place: str | os.PathLike[str]) -> Log:
    """The log in a database, whose tables are made or brought up to date; one log for all who open it."""
    text = os.fspath(place)
    key = os.getpid(), text if "://" in text else os.path.realpath(text)
    with _LOCK:
        log = _LOGS.get(key)
        if log is not None:
            with log.lock:
                if not log.closed:
                    log.users += 1
                    return log
        database = open_database(place)
        try:
            migrate(database)
            log = Log(database)
            check_mark(log)
        except BaseException:
            database.close()
            raise
        _LOGS[key] = log
        return log
