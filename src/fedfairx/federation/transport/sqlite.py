"""A transport between processes of one machine by a SQLite file, without a server.

The file must lie on a disk of this machine, since write-ahead logs don't work on network file systems.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from fedfairx.errors import TransportRefused, TransportUnavailable
from fedfairx.federation.transport.protocol import Conflict

_APPLICATION = 0x46465401  # "FFT", and the version of the table
_TABLE = "CREATE TABLE messages (agent TEXT PRIMARY KEY, revision INTEGER NOT NULL, message BLOB NOT NULL)"
_SAVE = (
    "INSERT INTO messages VALUES (?, (SELECT coalesce(max(revision), 0) + 1 FROM messages), ?) "
    "ON CONFLICT (agent) DO UPDATE SET revision = excluded.revision, message = excluded.message"
)


class SqliteTransport:
    """The file at `path`, created if missing, readable only by its owner.

    deadline: seconds that a call waits for another process.
    poll: seconds between two checks of the file while it is watched.
    """

    def __init__(self, path: str | os.PathLike[str], *, deadline: float = 5.0, poll: float = 0.05) -> None:
        self.path = Path(path)
        self._deadline = deadline
        self._poll = poll
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._mirror: dict[str, tuple[int, bytes]] = {}
        self._closed = threading.Event()

    def publish(self, agent: str, message: bytes, *, replacing: bytes | None) -> None:
        with self._transaction("IMMEDIATE") as connection:
            row = connection.execute("SELECT message FROM messages WHERE agent = ?", (agent,)).fetchone()
            stored = None if row is None else bytes(row[0])
            if stored == message:
                return
            if stored != replacing:
                raise Conflict(stored)
            connection.execute(_SAVE, (agent, message))

    def latest(self) -> dict[str, bytes]:
        with self._transaction("DEFERRED") as connection:
            there = dict(connection.execute("SELECT agent, revision FROM messages").fetchall())
            mirror = {name: entry for name, entry in self._mirror.items() if there.get(name) == entry[0]}
            for agent, revision in there.items():
                if agent not in mirror:
                    row = connection.execute(
                        "SELECT message FROM messages WHERE agent = ?", (agent,)
                    ).fetchone()
                    mirror[agent] = revision, bytes(row[0])
            self._mirror = mirror
            return {agent: message for agent, (_, message) in mirror.items()}

    def watch(self, notify: Callable[[], None]) -> Callable[[], None]:
        ended = threading.Event()

        def look() -> None:
            seen = None
            while not ended.wait(self._poll) and not self._closed.is_set():
                with contextlib.suppress(TransportUnavailable, TransportRefused):
                    with self._transaction("DEFERRED") as connection:
                        now = connection.execute("SELECT max(revision) FROM messages").fetchone()
                    if now != seen:
                        seen = now
                        notify()

        threading.Thread(target=look, name="fedfairx-sqlite-watch", daemon=True).start()
        return ended.set

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _transaction(self, kind: str) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._closed.is_set():
                raise TransportRefused(f"transport {self.path} is closed")
            try:
                connection = self._connection or self._connect()
                connection.execute(f"BEGIN {kind}")
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
            except sqlite3.OperationalError as error:  # locked, full or gone: the next call opens it again
                self._drop()
                raise TransportUnavailable(f"transport {self.path} is unavailable: {error}") from error
            except sqlite3.DatabaseError as error:
                self._drop()
                raise TransportRefused(f"{self.path} is not a transport of fedfairx: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        with contextlib.suppress(OSError):  # SQLite has the better error text
            # Only a new file: closing any descriptor of one drops the locks that this process has on it, by
            # another connection, and other processes would then remove the log under it.
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        connection = sqlite3.connect(
            self.path, timeout=self._deadline, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            if _version(connection) != _APPLICATION:
                self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Create the table in a new file, unless another process just has; refuse any other file."""
        connection.execute("BEGIN IMMEDIATE")
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if _version(connection) == 0 and tables == 0:
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute("COMMIT")
        if _version(connection) != _APPLICATION:
            raise TransportRefused(f"{self.path} is not a transport of this version of fedfairx")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA application_id").fetchone()[0])
