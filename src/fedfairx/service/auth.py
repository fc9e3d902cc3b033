"""Who may do what: API keys with roles; without any key this machine alone.

Keys are kept as hashes and compared in constant time (`storage/api_keys.py`). Those that were let in are
remembered for a moment, by another hash. Once a key was made, keys are always required, also when the last
one is revoked.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import ipaddress
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from fedfairx.errors import StorageError
from fedfairx.service.headers import header_of
from fedfairx.service.problems import ProblemError
from fedfairx.service.sessions import Sessions
from fedfairx.storage.api_keys import ApiKey, ApiKeys

if TYPE_CHECKING:
    from starlette.requests import Request


#: What each role may.
ROLES = {
    "reader": ("reader",),
    "writer": ("reader", "writer"),
    "federation": ("federation",),  # of an engine beside the service: envelopes, and nothing else
    "admin": ("reader", "writer", "federation", "admin"),
}
REMEMBERED = 2.0  # seconds for which a revoked key may still be let in


def is_loopback(host: str) -> bool:
    """Whether an address or name means this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def refuse_cross_site(request: Request) -> None:
    """Refuse what a browser sends for another site's page; programs don't say where they are."""
    if header_of(request, b"sec-fetch-site") not in (None, "same-origin", "none"):
        raise ProblemError("cross-site", "Sec-Fetch-Site must be same-origin or none, or left out.")


def sees_exact(request: Request) -> bool:
    """Whether whoever was let in may see what tells each reward (`service/published.py`): admins."""
    return bool(request.scope["role"] == "admin")


class Authenticator:
    """Lets a request in, or refuses it."""

    def __init__(self, keys: ApiKeys, *, loopback: bool) -> None:
        self._keys = keys
        self._loopback = loopback
        self._let_in: dict[bytes, ApiKey] = {}  # by a hash of the whole key
        self.any_key = bool(keys.all())
        self.sessions = Sessions()

    @property
    def keys_needed(self) -> bool:
        return self.any_key or not self._loopback

    async def check(self, request: Request, role: str) -> None:
        """Refuse who may not; `scope["role"]` says what role the others have."""
        if not self.keys_needed:
            if not _is_loopback_with_port(header_of(request, b"host") or "localhost"):
                # a page of another site, in a browser on this machine, by a name that leads here
                raise ProblemError("host", "The Host must be localhost while there is no key.")
            request.scope["role"] = "admin"
            return
        key = await self.key_of(_credentials(request))
        if key is None:
            scheme = "Bearer" if request.url.path.startswith("/v1/") else 'Basic realm="fedfairx"'
            raise ProblemError(
                "unauthenticated", "There is no valid key in it.", {"www-authenticate": scheme}
            )
        if role not in ROLES[key.role]:
            raise ProblemError("forbidden", f"It needs the role {role}, and this key is of a {key.role}.")
        request.scope["role"] = key.role

    async def key_of(self, text: str) -> ApiKey | None:
        """The key that this is; None where it opens nothing."""
        if not text:
            return None
        digest = hashlib.sha256(text.encode()).digest()
        key = self._let_in.get(digest)
        if key is None:
            key = await asyncio.to_thread(self._keys.find, text)
            if key is None or key.role not in ROLES:
                return None
            self._let_in[digest] = key
        return key

    async def watch(self) -> None:
        """Look for keys, again and again, until cancelled."""
        while True:
            await asyncio.sleep(REMEMBERED)
            with suppress(StorageError):  # requests say so; nobody gets in who was not in
                await self.look()

    async def look(self) -> None:
        """Look which keys there are, forget who was let in, and end the sessions of revoked keys."""
        found = await asyncio.to_thread(self._keys.all)
        self.any_key = self.any_key or bool(found)
        self._let_in.clear()
        self.sessions.keep({key.id for key in found if key.revoked is None})


def _credentials(request: Request) -> str:
    """The key: as a bearer's, or for pages in a browser as Basic's password."""
    scheme, _, value = (header_of(request, b"authorization") or "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic" and request.method in (
        "GET",
        "HEAD",
    ):  # a browser sends it unasked: no writing
        try:
            return base64.b64decode(value, validate=True).decode("latin-1").partition(":")[2]
        except (binascii.Error, ValueError):
            return ""
    return ""


@lru_cache(maxsize=256)
def _is_loopback_with_port(host: str) -> bool:
    return is_loopback(host.partition("]")[0] if host.startswith("[") else host.partition(":")[0])
