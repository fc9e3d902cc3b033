"""Who may do what: API keys with roles, compared in constant time; without any key this machine alone.

A key is `ffx_<name>_<secret>`. The name finds its row, and a SHA-256 of the secret is compared with the stored one: the
secret is 256 random bits, which nobody can guess from a fast hash. Once a key was made, keys are needed for ever, also
when the last one is revoked.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import math
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedfairx.errors import FedFairXError
from fedfairx.service.problems import Refused

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["ROLES", "Doors", "KeyRow", "is_loopback", "new_key"]

ROLES = ("reader", "writer", "admin")  # each may what those before it may
FRESH = 2.0  # seconds after which the keys are read again: until then a revoked one is let in
AGAIN = 0.25  # seconds after which an unknown key makes us read them again
UNKNOWN = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class KeyRow:
    """A key as it is stored."""

    name: str
    role: str
    digest: str
    created: float
    revoked: float | None = None


def new_key(role: str, now: float) -> tuple[str, KeyRow]:
    """A key to show once, and what is stored of it."""
    name, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    return f"ffx_{name}_{secret}", KeyRow(name, role, _digest(secret), now)


def is_loopback(host: str) -> bool:
    """Whether an address or name means this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Doors:
    """Lets a request in, or refuses it."""

    def __init__(self, read: Callable[[], Iterable[KeyRow]], *, loopback: bool) -> None:
        self._read = read
        self._loopback = loopback
        self._rows: Mapping[str, KeyRow] = {}
        self._when: float | None = None
        self.refresh()

    @property
    def keys_needed(self) -> bool:
        return bool(self._rows) or not self._loopback

    def refresh(self) -> None:
        """Read the keys again; where that fails, the old ones hold, but at the start we must know."""
        try:
            self._rows = {row.name: row for row in self._read()}
        except FedFairXError:
            if self._when is None:
                raise
        self._when = time.monotonic()

    async def check(self, request: Request, role: str) -> None:
        """Refuse who may not."""
        if not self.keys_needed:
            host = request.headers.get("host", "localhost")
            if not is_loopback(_without_port(host)):  # a page of another site, by a name that leads here
                raise Refused("host", "The Host must be localhost while there is no key.")
            return
        name, secret = _credentials(request)
        if name and name not in self._rows and self._age() > AGAIN:
            await asyncio.to_thread(self.refresh)
        found = self._role_of(name, secret)
        if found is None:
            raise Refused("unauthenticated", "There is no valid key in it.", {"www-authenticate": "Bearer"})
        if ROLES.index(found) < ROLES.index(role):
            raise Refused("forbidden", f"It needs the role {role}, and this key is of a {found}.")

    async def watch(self) -> None:
        """Read the keys again and again, until cancelled."""
        while True:
            await asyncio.sleep(FRESH)
            await asyncio.to_thread(self.refresh)

    def _age(self) -> float:
        return math.inf if self._when is None else time.monotonic() - self._when

    def _role_of(self, name: str, secret: str) -> str | None:
        row = self._rows.get(name)
        right = hmac.compare_digest(UNKNOWN if row is None else row.digest, _digest(secret))
        return row.role if row is not None and right and row.revoked is None else None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _credentials(request: Request) -> tuple[str, str]:
    """(name, secret) of the key: as a bearer's, or for pages in a browser as Basic's password."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic" and request.method in ("GET", "HEAD"):  # a browser sends it unasked: no writing
        try:
            value = base64.b64decode(value, validate=True).decode("latin-1").partition(":")[2]
        except (binascii.Error, ValueError):
            value = ""
    elif scheme.lower() != "bearer":
        value = ""
    kind, _, rest = value.strip().partition("_")
    name, _, secret = rest.partition("_")
    return (name, secret) if kind == "ffx" else ("", "")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
