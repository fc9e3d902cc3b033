"""The transport protocol: keep the latest message of every agent, and notify when one changes.

An agent has two messages: its release, under its name, and its sign of life, under `alive_key`. With secure
aggregation it has no release of its own there, but the messages of `AGGREGATION`, under `aggregation_key`.

Releases are cumulative, so only the latest of each agent matters: the next one repairs a loss, and
duplicates or late messages do no harm. A transport is trusted with delivery alone: the receiver verifies
sender and content (`envelope.py`).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Protocol

from fedfairx.errors import TransportError, require

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
LARGEST = 2**20  # bytes of a message with its headers, at a hub
_ALIVE = ".alive"
#: An opener's key, the acceptances of epochs, an opener's latest partial sum, the totals of earlier epochs.
AGGREGATION = OPENER, ACCEPTED, PARTIAL, PAST = "opener", "accepted", "partial", "past"
ROW = "row"  # the latest row, with the share of one opener


def alive_key(name: str) -> str:
    """The name under which a member's sign of life is stored; no member's name has a dot."""
    return f"{name}{_ALIVE}"


def named_by(key: str) -> str | None:
    """The member whose sign of life is stored under this name; None if it is not one's."""
    return key.removesuffix(_ALIVE) if key.endswith(_ALIVE) else None


def aggregation_key(name: str, kind: str) -> str:
    """The name under which a member's message of this kind of `AGGREGATION` is stored."""
    return f"{name}.{kind}"


def row_key(name: str, opener: str) -> str:
    """The name under which a member's row for an opener is stored."""
    return f"{name}.{ROW}.{opener}"


def own_keys(name: str, *, secure: bool) -> list[str]:
    """All names under which a member may store messages; `*` stands for any opener."""
    if not secure:
        return [name, alive_key(name)]
    return [alive_key(name), *(aggregation_key(name, kind) for kind in AGGREGATION), row_key(name, "*")]


class Conflict(TransportError):
    """The message stored under an agent's name is not the expected one, but `held` (None: no message)."""

    def __init__(self, held: bytes | None) -> None:
        super().__init__("another message than expected is stored under this agent's name")
        self.held = held


class Transport(Protocol):
    """A store of the latest message of each agent. Threads may share one.

    Every method raises `TransportUnavailable` when the transport can't be reached in time (try again), and
    `TransportRefused` when an operator has to act.
    """

    def publish(self, agent: str, message: bytes, *, replacing: bytes | None) -> None:
        """Replace the stored message `replacing` (None: no message) of this name by `message`.

        It returns when the message is durable. If it is stored already, nothing happens; if another message
        than `replacing` is, `Conflict` holds that. So two writers under one name notice each other.
        """
        ...

    def latest(self) -> dict[str, bytes]:
        """The latest message of each agent that has arrived here."""
        ...

    def watch(self, notify: Callable[[], None]) -> Callable[[], None]:
        """Call `notify`, from any thread, when there may be news; return a function that stops it.

        `notify` must return at once and not call the transport: set an event, or wake a loop.
        """
        ...

    def close(self) -> None:
        """Close connections and files. Messages stay."""
        ...


def require_name(name: str) -> None:
    """Check a name for use in files, subjects and certificates: letters, digits, _ and -, at most 64."""
    fits = isinstance(name, str) and _NAME.fullmatch(name) is not None
    require(fits, "name", "must be 1 to 64 letters, digits, _ or -, and begin with a letter or digit", name)


class Watchers:
    """Callbacks on news. Threads may share them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: dict[object, Callable[[], None]] = {}

    def add(self, notify: Callable[[], None]) -> Callable[[], None]:
        """Add a callback; return a function that removes it."""
        token = object()
        with self._lock:
            self._callbacks[token] = notify

        def stop() -> None:
            with self._lock:
                self._callbacks.pop(token, None)

        return stop

    def tell(self) -> None:
        with self._lock:
            callbacks = list(self._callbacks.values())
        for notify in callbacks:
            notify()

    def clear(self) -> None:
        with self._lock:
            self._callbacks.clear()
