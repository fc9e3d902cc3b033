"""From a path or an address to the database there, and to the log in it."""

from __future__ import annotations

import os

from fedfairx.storage.database import Database
from fedfairx.storage.migrations import bring_up
from fedfairx.storage.rollback_marker import check_mark
from fedfairx.storage.transaction_log import Log


def open_database(place: str | os.PathLike[str], *, create: bool = True) -> Database:
    """The database at a path (SQLite) or a `postgresql://` address, held by this process alone."""
    text = os.fspath(place)
    if text.startswith(("postgresql://", "postgres://")):
        from fedfairx.storage.postgres import PostgresDatabase

        return PostgresDatabase(text)
    from fedfairx.storage.sqlite import SqliteDatabase

    return SqliteDatabase(text, create=create)


def open_log(place: str | os.PathLike[str]) -> Log:
    """The log in a database, whose tables are made or brought up to date."""
    database = open_database(place)
    try:
        bring_up(database)
        log = Log(database)
        check_mark(log)
    except BaseException:
        database.close()
        raise
    return log
