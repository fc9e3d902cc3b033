"""A transport between agents of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fedfairx.federation.transport.protocol import Conflict, Watchers


class MemoryTransport:
    """A dictionary with a lock, used by `Federation`."""

    def __init__(self) -> None:
        self._messages: dict[str, bytes] = {}
        self._watchers = Watchers()
        self._lock = threading.Lock()

    def publish(self, agent: str, message: bytes, *, replacing: bytes | None) -> None:
        with self._lock:
            stored = self._messages.get(agent)
            if stored == message:
                return
            if stored != replacing:
                raise Conflict(stored)
            self._messages[agent] = message
        self._watchers.tell()

    def latest(self) -> dict[str, bytes]:
        with self._lock:
            return dict(self._messages)

    def watch(self, notify: Callable[[], None]) -> Callable[[], None]:
        return self._watchers.add(notify)

    def close(self) -> None:
        self._watchers.clear()
