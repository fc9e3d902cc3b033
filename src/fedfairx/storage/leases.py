"""Leases: which of the processes that share a database has a duty, such as the exchange with peers.

A process renews its leases in transactions, by the server's clock. One that was killed, stopped or cut off
does not, and when a lease has run out another process takes it. A lock of its session would not end: the
system of a process that is stopped still answers for it. Such a process goes on later as if it had the duty,
so that two have it for a moment. That does no harm, since what must not happen twice is decided under the
write lock.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Collection

from fedfairx.storage.transaction_log import Log

SECONDS = 10  # for which a lease is taken; it is renewed when half of them are over
_TABLE = (
    "CREATE TABLE IF NOT EXISTS leases (duty TEXT PRIMARY KEY, process TEXT NOT NULL, token TEXT NOT NULL, "
    "until INTEGER NOT NULL)"
)
_RENEW = (
    "INSERT INTO leases VALUES {} ON CONFLICT (duty) "
    "DO UPDATE SET process = excluded.process, token = excluded.token, until = excluded.until"
)


class Leases:
    """The leases in a database that processes share, in a table that these processes make.

    process: the name of this one, for people.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._token = secrets.token_hex(16)  # two processes may have one name, in two containers
        self._holders: dict[str, tuple[str, str]] = {}  # process and token by duty, as of the last `take`
        self.process = f"process {os.getpid()} on {socket.gethostname()}"
        with log.transaction:
            log.write(log.database.types(_TABLE))

    def take(self, duties: Collection[str]) -> None:
        """Inside a transaction: take the duties that nobody has, and renew the leases of one's own."""
        log, now = self._log, self._log.now()
        rows = log.database.execute("SELECT duty, process, token, until FROM leases WHERE until > ?", (now,))
        holders = {duty: (process, token) for duty, process, token, _ in rows}
        fresh = {duty for duty, *_, until in rows if until - now > 1_000_000 * SECONDS // 2}
        values: list[object] = []
        for duty in duties:
            if holders.setdefault(duty, (self.process, self._token))[1] == self._token and duty not in fresh:
                values += duty, self.process, self._token, now + 1_000_000 * SECONDS
        if values:
            log.write(_RENEW.format(", ".join(["(?, ?, ?, ?)"] * (len(values) // 4))), values)
        self._holders = holders

    def has(self, duty: str) -> bool:
        """Whether this process has a duty, as of the last `take`."""
        return self._holders.get(duty, ("", ""))[1] == self._token

    def holder(self, duty: str) -> str:
        """The process that has a duty, as of the last `take`; empty if none has."""
        return self._holders.get(duty, ("", ""))[0]

    @property
    def holders(self) -> dict[str, str]:
        """The processes that have duties, by duty, as of the last `take`."""
        return {duty: process for duty, (process, _) in sorted(self._holders.items())}

    def give_up(self, duties: Collection[str]) -> None:
        """Let others have these duties at once."""
        own = [duty for duty in duties if self.has(duty)]
        if own:
            with self._log.transaction as log:
                for duty in own:
                    log.write("DELETE FROM leases WHERE duty = ? AND token = ?", (duty, self._token))
                    self._holders.pop(duty, None)
