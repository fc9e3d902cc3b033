"""Sessions of users of the pages, where several processes serve them: in a table that these processes make.

A token is stored as its hash. Times are seconds since 1970.
"""

from __future__ import annotations

from fedfairx.storage.api_keys import COLUMNS, ApiKey, key_of
from fedfairx.storage.transaction_log import Log

_TABLE = (
    "CREATE TABLE IF NOT EXISTS sessions (token BLOB PRIMARY KEY, key TEXT NOT NULL, until REAL NOT NULL)"
)


class StoredSessions:
    """The sessions in a database that processes share."""

    def __init__(self, log: Log) -> None:
        self._log = log
        with log.transaction:
            log.write(log.database.types(_TABLE))

    def add(self, token: bytes, key: ApiKey, until: float) -> None:
        """Store a session of the holder of a key."""
        with self._log.transaction as log:
            log.write("INSERT INTO sessions VALUES (?, ?, ?)", (token, key.id, until))

    def find(self, token: bytes) -> tuple[ApiKey, float] | None:
        """Whose session it is, and until when; None if there is none, or its key is revoked."""
        question = f"SELECT {COLUMNS}, until FROM sessions JOIN api_keys ON id = key WHERE token = ?"
        for row in self._log.database.read(f"{question} AND revoked IS NULL", (token,)):
            return key_of(row), row[-1]
        return None

    def remove(self, token: bytes) -> None:
        """End a session."""
        with self._log.transaction as log:
            log.write("DELETE FROM sessions WHERE token = ?", (token,))

    def remove_old(self, now: float) -> None:
        """End those whose time is over, if there are any."""
        if self._log.database.read("SELECT 1 FROM sessions WHERE until <= ? LIMIT 1", (now,)):
            with self._log.transaction as log:
                log.write("DELETE FROM sessions WHERE until <= ?", (now,))

    def all(self) -> set[bytes]:
        """The hashes of all tokens."""
        return {bytes(token) for (token,) in self._log.database.read("SELECT token FROM sessions")}
