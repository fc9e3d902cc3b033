"""API keys of the service: stored as hashes, each with a role, in the database of the agent."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fedfairx.errors import InvalidInput, StorageUnavailable, require
from fedfairx.storage.database import Database, Row
from fedfairx.storage.open_log import is_on_server, open_database
from fedfairx.storage.schema import create_tables, has_tables
from fedfairx.storage.transaction_log import Log

COLUMNS = "id, name, role, created, revoked, agents"
_WHOLE = re.compile(r"[0-9a-f]{12}\.[A-Za-z0-9_-]{32,200}").fullmatch


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A stored key; `created` and `revoked` are seconds since 1970.

    `agents` are the names of those that it is limited to, None if it is for all.

    >>> from fedfairx.storage.open_log import open_log
    >>> log = open_log("service.db")
    >>> keys = ApiKeys(log)
    >>> secret = keys.add("shop", "writer")
    >>> keys.all()[0].role
    'writer'
    >>> log.close()
    """

    id: str
    name: str
    role: str
    created: float
    revoked: float | None
    agents: frozenset[str] | None = None


class ApiKeys:
    """The keys in a database. A key is `id.secret`; the secret is shown once, and only its hash is stored.

    >>> from fedfairx.storage.open_log import open_log
    >>> log = open_log("keys.db")
    >>> keys = ApiKeys(log)
    >>> secret = keys.add("shop", "writer")
    >>> keys.find(secret).name
    'shop'
    >>> log.close()
    """

    def __init__(self, log: Log) -> None:
        self._log = log

    def add(
        self, name: str, role: str, agents: Collection[str] | None = None, *, text: str | None = None
    ) -> str:
        """Create a key, for all agents or some that there are, and return the text that its holder must send.

        text: of a key that was made elsewhere; nothing changes if it is stored already.
        """
        if text is None:
            text = f"{secrets.token_hex(6)}.{secrets.token_urlsafe(32)}"
        identity, _, secret = text.partition(".")
        if not _WHOLE(text):  # it must not be shown
            rule = "12 hexadecimal digits, a dot, and at least 32 letters, digits, _ or -"
            raise InvalidInput(f"key must be {rule}, got {len(text)} characters of another form")
        stored = self.find(text)
        same = None if agents is None else frozenset(agents)
        if stored is not None and (stored.role, stored.agents) == (role, same):
            return text
        if any(key.id == identity for key in self.all()):
            raise InvalidInput(
                f"key must have a new id, got {identity}, which was used for another or revoked one"
            )
        there = {name for (name,) in self._log.database.read("SELECT name FROM agents")}
        for agent in sorted(same or ()):  # whoever makes an agent would not know who has a key for it
            rule = "must be names of agents that there are"
            require(agent in there, "agents", rule, agent, "make the agent first")
        with self._log.transaction as log:
            log.write(
                f"INSERT INTO api_keys ({COLUMNS}, hash) VALUES (?, ?, ?, ?, NULL, ?, ?)",
                (
                    *(identity, name, role, log.now()),
                    None if agents is None else json.dumps(sorted(agents)),
                    _hash(secret),
                ),
            )
        return text

    def find(self, key: str) -> ApiKey | None:
        """The stored key with this text; None if it is unknown or revoked."""
        if not _WHOLE(key):  # PostgreSQL would refuse a NUL
            return None
        identity, _, secret = key.partition(".")
        rows = self._log.database.read(f"SELECT {COLUMNS}, hash FROM api_keys WHERE id = ?", (identity,))
        row = rows[0] if rows else ("", "", "", 0, None, None, "")
        matches = hmac.compare_digest(_hash(secret), row[-1])
        return key_of(row) if rows and matches and row[4] is None else None

    def all(self) -> list[ApiKey]:
        """All keys, revoked ones too, the oldest first."""
        rows = self._log.database.read(f"SELECT {COLUMNS} FROM api_keys ORDER BY created, id")
        return [key_of(row) for row in rows]

    def revoke(self, identity: str) -> None:
        """Revoke a key by its id."""
        with self._log.transaction as log:
            rows = log.write("SELECT id FROM api_keys WHERE id = ? AND revoked IS NULL", (identity,))
            if not rows:
                raise InvalidInput(f"key must be the id of one that is in force, got key={identity!r}")
            log.write("UPDATE api_keys SET revoked = ? WHERE id = ?", (log.now(), identity))


def key_of(row: Row) -> ApiKey:
    """The key of a row that begins with `COLUMNS`."""
    identity, name, role, created, revoked, agents = row[:6]
    limited = None if agents is None else frozenset(json.loads(agents))
    return ApiKey(identity, name, role, created / 1e6, None if revoked is None else revoked / 1e6, limited)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


@contextmanager
def open_keys(place: str | os.PathLike[str]) -> Iterator[ApiKeys]:
    """The keys in a database, whether or not a service has it open; a missing database is created."""
    database = _beside_others(place)
    try:
        create_tables(database)
        yield ApiKeys(Log(database))
    finally:
        database.close()


def _beside_others(place: str | os.PathLike[str]) -> Database:
    """A database that is not taken from a process that has it open, even if it has just lost its connection.

    Such a process ends when it connects again and finds that another one has had the database meanwhile.
    """
    if is_on_server(place):
        database = open_database(place, access="beside")
        try:
            if has_tables(database):
                return database
        except BaseException:
            database.close()
            raise
        database.close()
    try:
        return open_database(place)
    except StorageUnavailable:  # another process has it open, and has created its tables
        return open_database(place, access="beside")
