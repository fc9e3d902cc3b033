"""Opening a database and its log, and detecting a database that is older than it was.

A mark beside the file says how far the log had come, and under which id prefix. It is written after the steps
that it covers are on disk, so a crash never puts it ahead. A file restored from a backup without its mark is
detected when it is opened; a file that was moved together with its mark, or to a new place, is not. A
PostgreSQL database that is restored under a running process is detected by that process, which marks it if it
holds a private agent; of one that was restored before, only peers can tell (`privacy.peers`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fedfairx.errors import OlderCopy, StateError, require
from fedfairx.storage.database import Access, Database
from fedfairx.storage.schema import create_tables, has_tables
from fedfairx.storage.transaction_log import Log

FILE = "agent.sqlite"  # the database in a service's data folder


def open_database(place: str | os.PathLike[str], *, access: Access = "own") -> Database:
    """Open the database at a path (SQLite) or `postgresql://` address; by default for this process alone.

    >>> database = open_database("agent.db")
    >>> database.execute("SELECT 1")
    [(1,)]
    >>> database.close()
    """
    text = os.fspath(place)
    if is_on_server(place):
        from fedfairx.storage.postgres import PostgresDatabase

        return PostgresDatabase(text, access=access)
    from fedfairx.storage.sqlite import SqliteDatabase

    return SqliteDatabase(text, access=access)


@contextmanager
def open_for_reading(place: str | os.PathLike[str]) -> Iterator[Database]:
    """Open a database of this version read-only, whether or not another process has it open.

    A folder stands for the database of the service whose data it holds.
    """
    folder = os.path.isdir(place)
    database = open_database(os.path.join(place, FILE) if folder else place, access="read")
    try:
        if not has_tables(database):
            raise StateError(f"{database.place} holds no agent")
        yield database
    finally:
        database.close()


def is_on_server(place: str | os.PathLike[str]) -> bool:
    """Whether a place is the address of a database on a server, and no file."""
    return os.fspath(place).startswith(("postgresql://", "postgres://"))


_LOGS: dict[tuple[int, str], Log] = {}  # open in this process, by process and place
_LOCK = threading.Lock()


def open_log(place: str | os.PathLike[str]) -> Log:
    """Open the log of a database, and create its tables if there are none; all who open it share one log."""
    text = os.fspath(place) if isinstance(place, str | os.PathLike) else ""
    rule = "must be a file, such as agent.db, or an address that begins with postgresql://"
    require(bool(text) and ("://" not in text or is_on_server(text)), "place", rule, text or place)
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
            create_tables(database)
            log = Log(database)
            check_mark(log)
        except BaseException:
            database.close()
            raise
        log.closing.append(lambda: leave_mark(log))
        _LOGS[key] = log
        return log


def leave_mark(log: Log) -> None:
    """Write the mark: how far the log has come."""
    rows = log.database.execute("SELECT prefix FROM id_prefixes ORDER BY id DESC LIMIT 1")
    if rows:
        log.database.leave_mark({"life": rows[0][0], "end": log.end})


def check_mark(log: Log) -> None:
    """Raise `OlderCopy` if the log is behind its mark, or has a different history."""
    mark = log.database.mark
    life, end = mark.get("life"), mark.get("end")
    if not isinstance(life, str) or not isinstance(end, int):
        return
    rows = log.database.execute("SELECT 1 FROM id_prefixes WHERE prefix = ?", (life,))
    if not rows or end > log.end:
        place = log.database.place
        raise OlderCopy(
            f"{place} is an older copy: it ends at step {log.end}, and it was at step {end} when it was last "
            f"used here. A private agent must not go on from it, since its messages are out; for any other, "
            f"{log.database.unmark} if this is meant"
        )
