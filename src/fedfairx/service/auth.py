"""Authentication: API keys with roles, and sessions for pages; without any key, only local access.

Keys are stored as hashes and compared in constant time (`storage/api_keys.py`). Accepted keys are cached for
a moment, by another hash. Once a key was created, keys are required, even after the last one is revoked.
`service/factory.py` requires one as soon as the settings let others reach the service.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import ipaddress
import secrets
import time
from collections.abc import Collection
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from fedfairx.errors import StorageError
from fedfairx.service.fast_path import header_of
from fedfairx.service.problems import ProblemError
from fedfairx.service.roles import ROLES
from fedfairx.storage.api_keys import ApiKey, ApiKeys

if TYPE_CHECKING:
    from starlette.requests import Request


SECONDS = 12 * 3_600  # duration of a session
REMEMBERED = 0.5  # seconds after which keys are looked up again: a revoked one is accepted for so long
#: Headers of what a proxy has passed on, and how others of them begin.
OF_PROXIES = frozenset(
    (
        *(
            b"cdn-loop",
            b"cf-connecting-ip",
            b"client-ip",
            b"fastly-client-ip",
            b"forwarded",
            b"true-client-ip",
        ),
        *(b"via", b"x-client-ip", b"x-cluster-client-ip", b"x-real-ip", b"x-request-start", b"x-scheme"),
    )
)
OF_PROXIES_BEGIN = (b"x-amzn-", b"x-envoy-", b"x-forwarded", b"x-original-", b"x-proxy", b"x-varnish")


def is_loopback(host: str) -> bool:
    """Whether an address or name means this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def refuse_cross_site(request: Request) -> None:
    """Refuse what a browser sends for a page of another site; programs send no such header."""
    if header_of(request, b"sec-fetch-site") not in (None, "same-origin", "none"):
        raise ProblemError("cross-site", "Sec-Fetch-Site must be same-origin or none, or left out.")


def admit(request: Request, key: ApiKey, role: str) -> None:
    """Refuse a key without this role, unless it is an auditor's and nothing can be changed.

    `scope["role"]` is set to the role of the key, `scope["agents"]` to those that it is limited to.
    """
    roles = ROLES[key.role]
    if role not in roles and not ("auditor" in roles and request.method in ("GET", "HEAD")):
        raise ProblemError("forbidden", f"The role {role} is needed; the key has the role {key.role}.")
    request.scope.update(role=key.role, agents=key.agents)


def may_use(request: Request, agent: str | None) -> bool:
    """Whether the caller's key is for this agent; None stands for all together."""
    agents: frozenset[str] | None = request.scope["agents"]
    return agents is None or agent in agents


def refuse_other_agents(request: Request, agent: str | None) -> None:
    """Refuse a key that is limited to other agents, whether or not there is this one."""
    if not may_use(request, agent):
        raise ProblemError("forbidden", "The key is limited to other agents.")


class Sessions:
    """Sessions of users of the pages: a random token in the browser, and here its hash with the key.

    A session gives access to pages only, and is in memory: a restart ends it.
    """

    def __init__(self) -> None:
        self.clock = time.monotonic
        self._sessions: dict[bytes, tuple[ApiKey, float]] = {}  # hash of the token → whose, and until when

    def begin(self, key: ApiKey) -> str:
        """Start a session for the holder of a key, and return its token."""
        token = secrets.token_urlsafe(32)
        self._sessions[_hash(token)] = key, self.clock() + SECONDS
        return token

    def key_of(self, token: str) -> ApiKey | None:
        """The key of a token; None if the token is invalid."""
        key, until = self._sessions.get(_hash(token), (None, 0.0))
        return None if key is None or self.clock() >= until else key

    def end(self, token: str) -> None:
        """End a session."""
        self._sessions.pop(_hash(token), None)

    def keep(self, in_force: Collection[str]) -> None:
        """Drop expired sessions, and those of keys that are not among these ids."""
        now = self.clock()
        self._sessions = {
            token: (key, until)
            for token, (key, until) in self._sessions.items()
            if key.id in in_force and now < until
        }


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class Authenticator:
    """Accepts a request, or refuses it."""

    def __init__(self, keys: ApiKeys) -> None:
        self._keys = keys
        self._accepted: dict[bytes, ApiKey] = {}  # by a hash of the whole key
        self.any_key = bool(keys.all())  # from then on, every request needs one
        self.sessions = Sessions()

    async def check(self, request: Request, role: str) -> None:
        """Refuse a request without this role, as `admit`."""
        if not self.any_key:
            _refuse_from_elsewhere(request)
            request.scope["role"], request.scope["agents"] = "admin", None
            return
        key = await self.key_of(_credentials(request))
        if key is None:
            scheme = "Bearer" if request.url.path.startswith("/v1/") else 'Basic realm="fedfairx"'
            raise ProblemError("unauthenticated", "There is no valid key.", {"www-authenticate": scheme})
        admit(request, key, role)

    async def key_of(self, text: str) -> ApiKey | None:
        """The key with this text; None if there is none."""
        if not text:
            return None
        digest = _hash(text)
        key = self._accepted.get(digest)
        if key is None:
            key = await asyncio.to_thread(self._keys.find, text)
            if key is None or key.role not in ROLES:
                return None
            self._accepted[digest] = key
        return key

    async def watch(self) -> None:
        """Reload keys every `REMEMBERED` seconds, until cancelled."""
        while True:
            await asyncio.sleep(REMEMBERED)
            with suppress(StorageError):  # requests will report it; no new key is accepted
                await self.look()

    async def look(self) -> None:
        """Reload keys, clear the cache, and end the sessions of revoked keys."""
        keys = await asyncio.to_thread(self._keys.all)
        self.any_key = self.any_key or bool(keys)
        self._accepted.clear()
        self.sessions.keep({key.id for key in keys if key.revoked is None})


def _refuse_from_elsewhere(request: Request) -> None:
    """Refuse a request that a proxy has passed on, or that names another host than this machine."""
    if request.scope["http_version"] == "1.0":  # as nginx does, which may add no header
        raise ProblemError("host", "It must be HTTP/1.1 while there is no key: proxies speak HTTP/1.0.")
    for name, _ in request.scope["headers"]:
        if name in OF_PROXIES or name.startswith(OF_PROXIES_BEGIN):
            text = f"The header {name.decode('latin-1')} must be left out while there is no key."
            raise ProblemError("host", text)
    if not _is_loopback_with_port(header_of(request, b"host") or "localhost"):
        # another site's page in a browser on this machine, by a name that resolves to it
        raise ProblemError("host", "The Host must be localhost while there is no key.")


def _credentials(request: Request) -> str:
    """The key: a bearer token, or for pages in a browser the password of Basic."""
    scheme, _, value = (header_of(request, b"authorization") or "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic" and request.method in (
        "GET",
        "HEAD",
    ):  # browsers send it on their own: no writes
        try:
            return base64.b64decode(value, validate=True).decode("latin-1").partition(":")[2]
        except (binascii.Error, ValueError):
            return ""
    return ""


@lru_cache(maxsize=256)
def _is_loopback_with_port(host: str) -> bool:
    return is_loopback(host.partition("]")[0] if host.startswith("[") else host.partition(":")[0])
