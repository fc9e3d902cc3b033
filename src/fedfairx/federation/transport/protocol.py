"""What is asked of a transport: to keep the latest message of every agent, and to tell when one changes.

Releases are cumulative, so that only the latest of each agent matters: what gets lost heals with the next
one, and what comes twice or late does no harm. A transport is trusted with delivery alone: it knows neither
what is in a message nor whose it really is, and whoever receives one verifies it (`envelope.py`).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Protocol

from fedfairx.errors import TransportError, require

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Conflict(TransportError):
    """Something else than was expected lies under an agent's name: `held`, or nothing (None)."""

    def __init__(self, held: bytes | None) -> None:
        super().__init__("another message than expected lies under this agent's name")
        self.held = held


class Transport(Protocol):
    """Keeps the latest message of each agent. Threads may share one.

    Every method raises `TransportUnavailable` when the transport can't be reached in time; trying again is
    then right. `TransportRefused` means that somebody has to see to it.
    """

    def publish(self, agent: str, message: bytes, *, replacing: bytes | None) -> None:
        """Put `message` in the place of `replacing` (None: of nothing), which is what lies there under this
        name.

        It returns when the message is kept. Where it lies there already, nothing happens; where something
        else than `replacing` does, `Conflict` has it. So of two writers under one name neither overwrites the
        other unseen.
        """
        ...

    def latest(self) -> dict[str, bytes]:
        """The latest message of each agent, as far as it has got here."""
        ...

    def watch(self, notify: Callable[[], None]) -> Callable[[], None]:
        """Call `notify`, from any thread, when there may be something new; gives a function that ends it.

        `notify` must return at once and not call the transport: it is for setting an event, or waking a loop.
        """
        ...

    def close(self) -> None:
        """Let go of what it holds open. Messages stay."""
        ...


def require_name(name: str) -> None:
    """A name that can be a file, a subject and a certificate's: letters, digits, _ and -, at most 64."""
    fits = isinstance(name, str) and _NAME.fullmatch(name) is not None
    require(fits, "name", "must be 1 to 64 letters, digits, _ or -, and begin with a letter or digit", name)


class Watchers:
    """Functions that are called at news. Threads may share them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: dict[object, Callable[[], None]] = {}

    def add(self, notify: Callable[[], None]) -> Callable[[], None]:
        """One more; gives a function that ends it."""
        token = object()
        with self._lock:
            self._told[token] = notify

        def stop() -> None:
            with self._lock:
                self._told.pop(token, None)

        return stop

    def tell(self) -> None:
        with self._lock:
            told = list(self._told.values())
        for notify in told:
            notify()

    def clear(self) -> None:
        with self._lock:
            self._told.clear()
