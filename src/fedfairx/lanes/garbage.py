"""Lets Python look for garbage more rarely while Numba compiles: a tenth of a first decision's wait was that.

Numba makes a great many small objects that live on, and each time Python looks for cycles among them in vain.
"""

from __future__ import annotations

import gc
from typing import Any

from numba.core import event

RARELY = (100_000, 50, 100)  # allocations, and collections, between two collections of each generation


class Housekeeper(event.Listener):
    """Numba tells it when a compilation begins and ends, under its one lock; they may be nested."""

    def __init__(self) -> None:
        self._depth = 0
        self._usual = gc.get_threshold()

    def on_start(self, _: Any) -> None:
        if self._depth == 0:
            self._usual = gc.get_threshold()
            if self._usual[0] > 0:  # 0: the application has no collections at all
                gc.set_threshold(*RARELY)
        self._depth += 1

    def on_end(self, _: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            gc.set_threshold(*self._usual)


def collect_rarely() -> None:
    """From now on, while Numba compiles."""
    event.register("numba:compile", Housekeeper())
