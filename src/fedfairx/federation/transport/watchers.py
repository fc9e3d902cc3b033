"""Who wants to be told when a transport may have something new."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Watchers"]


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
