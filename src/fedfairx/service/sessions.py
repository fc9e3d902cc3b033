"""Sessions of people who look at pages: a random token in the browser, and here its hash, with whose key it
was opened. They open pages alone, and are in memory: a restart ends them.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Collection

from fedfairx.storage.api_keys import ApiKey

SECONDS = 12 * 3_600  # that a session lasts


class Sessions:
    """The sessions of a service."""

    def __init__(self) -> None:
        self.clock = time.monotonic
        self._held: dict[bytes, tuple[ApiKey, float]] = {}  # hash of the token → whose, and until when

    def begin(self, key: ApiKey) -> str:
        """A token for the holder of a key."""
        token = secrets.token_urlsafe(32)
        self._held[_hash(token)] = key, self.clock() + SECONDS
        return token

    def role_of(self, token: str) -> str | None:
        """What the holder of a token may; None where it opens nothing."""
        key, until = self._held.get(_hash(token), (None, 0.0))
        return None if key is None or self.clock() >= until else key.role

    def end(self, token: str) -> None:
        """From now on it opens nothing."""
        self._held.pop(_hash(token), None)

    def keep(self, in_force: Collection[str]) -> None:
        """End those that are over, and those of keys that are not among these ids any more."""
        now = self.clock()
        self._held = {
            token: (key, until)
            for token, (key, until) in self._held.items()
            if key.id in in_force and now < until
        }


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
