"""SQLite files in WAL mode that say whether they are open, so that one without its `-wal` is refused.

While a file is in use, its latest transactions are in the `-wal` beside it, and a copy of the file alone is
an older database that looks sound. So the first transaction says "open" in the file itself, and closing says
"closed", before SQLite removes the `-wal`. After a crash the file says "open", and the `-wal` is there.

`VACUUM INTO` copies what is said, but its files are not in WAL mode: they are whole. A file that SQLite's
`.backup` has written looks like one that lacks its `-wal`, until its owner takes it out of WAL mode.
"""

from __future__ import annotations

import ctypes
import sqlite3
from pathlib import Path

from fedfairx.errors import PrivacyError
from fedfairx.util.file_lock import FileLock

_OPEN, SAVED = 1, 2  # as `PRAGMA user_version`, which is 0 in a new file; SAVED until it is first opened


def lacks_wal(file: Path) -> bool:
    """Whether a file says that it is open, and has no `-wal`.

    It reads the file only if there is no `-wal`: closing it drops locks that SQLite has in this process.
    """
    wal = file.with_name(file.name + "-wal")
    return not wal.exists() and _header_says_open(file) and not wal.exists()


def header_of(file: Path) -> bytes:
    """The header of a SQLite file; empty if it can't be read."""
    try:
        with file.open("rb") as stream:
            return stream.read(100)
    except OSError:
        return b""  # SQLite says why


def _header_says_open(file: Path) -> bool:
    header = header_of(file)
    return header[18:19] == b"\2" and header[60:64] == _OPEN.to_bytes(4, "big")  # in WAL mode; user_version


def without_wal(place: object) -> str:
    """The error text for a file that lacks its `-wal`."""
    return (
        f"{place} was in use when it was copied, and {place}-wal, which has its latest transactions, is not "
        "there: copy both, or make the copy with VACUUM INTO. If you know that the file is whole, since "
        "SQLite's .backup has written it or another program has opened it after a crash, run: "
        f"sqlite3 {place} 'PRAGMA journal_mode = delete'"
    )


def use_wal(connection: sqlite3.Connection) -> bool:
    """Put a file that does not lack its `-wal` into WAL mode; return whether it says that it is open."""
    if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        connection.execute("PRAGMA user_version = 0")  # a crash before there is a `-wal` must do no harm
        connection.execute("PRAGMA journal_mode = wal")
    connection.execute("PRAGMA synchronous = full")
    return bool(connection.execute("PRAGMA user_version").fetchone() == (_OPEN,))


def say_open(connection: sqlite3.Connection) -> None:
    """Say in the file itself that it is open."""
    connection.execute(f"PRAGMA user_version = {_OPEN}")
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def end(connection: sqlite3.Connection, lock: FileLock | None) -> None:
    """Say that the file is closed, if `lock` is held, and close it; leave it if the lock was lost."""
    try:
        if lock is not None:
            lock.check()
            if connection.in_transaction:  # left open by Ctrl-C
                connection.execute("ROLLBACK")
            if connection.execute("PRAGMA user_version").fetchone() == (_OPEN,):
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")  # then a full disk has room for a page
                connection.execute("PRAGMA user_version = 0")
    except PrivacyError:
        # The lock is lost. Closing would remove the `-wal`, of a file that may be another's by now and says
        # that it is open. So it is left as a crash leaves it: one reference too many lasts to the end.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    except (sqlite3.Error, OSError):
        connection.close()
    else:
        connection.close()
    if lock is not None:
        lock.free()
