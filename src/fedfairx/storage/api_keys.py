"""Keys of the service's callers: hashed, with a role each, in the database of the agent that they open."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fedfairx.errors import InvalidInput, StorageUnavailable
from fedfairx.storage.migrations import migrate
from fedfairx.storage.open_log import open_database
from fedfairx.storage.transaction_log import Log


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is kept: `created` and `revoked` are seconds since 1970."""

    id: str
    name: str
    role: str
    created: float
    revoked: float | None


class ApiKeys:
    """The keys in a database. A key is `id.secret`; the secret is shown once and only its hash is kept."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def add(self, name: str, role: str) -> str:
        """Make a key, and give what its holder must send."""
        identity, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        with self._log.step() as log:
            log.write(
                "INSERT INTO api_keys VALUES (?, ?, ?, ?, ?, NULL)",
                (identity, name, _hash(secret), role, log.now()),
            )
        return f"{identity}.{secret}"

    def find(self, key: str) -> ApiKey | None:
        """Whose key this is; None for one that is unknown or revoked."""
        identity, _, secret = key.partition(".")
        rows = self._log.database.read(
            "SELECT id, name, role, created, revoked, hash FROM api_keys WHERE id = ?", (identity,)
        )
        held = rows[0] if rows else ("", "", "", 0, None, "")
        fits = hmac.compare_digest(_hash(secret), held[5])
        return _key(held) if rows and fits and held[4] is None else None

    def all(self) -> list[ApiKey]:
        """Every key there has been, oldest first."""
        rows = self._log.database.read(
            "SELECT id, name, role, created, revoked FROM api_keys ORDER BY created, id"
        )
        return [_key(row) for row in rows]

    def revoke(self, identity: str) -> None:
        """From now on it opens nothing."""
        with self._log.step() as log:
            rows = log.write("SELECT id FROM api_keys WHERE id = ? AND revoked IS NULL", (identity,))
            if not rows:
                raise InvalidInput(f"key must be the id of one that is in force, got key={identity!r}")
            log.write("UPDATE api_keys SET revoked = ? WHERE id = ?", (log.now(), identity))


def _key(row: tuple[object, ...]) -> ApiKey:
    identity, name, role, created, revoked = row[:5]
    return ApiKey(
        str(identity),
        str(name),
        str(role),
        int(created) / 1e6,  # type: ignore[call-overload]
        None if revoked is None else int(revoked) / 1e6,  # type: ignore[call-overload]
    )


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


@contextmanager
def open_keys(place: str | os.PathLike[str]) -> Iterator[ApiKeys]:
    """The keys in a database, whether or not a service has it open; a new database is made."""
    try:
        database = open_database(place)
        migrate(database)
    except StorageUnavailable:  # somebody holds it, who has made its tables
        database = open_database(place, access="guest")
    try:
        yield ApiKeys(Log(database))
    finally:
        database.close()
