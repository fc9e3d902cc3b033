"""What Numba does otherwise while it compiles functions of this package, so that nobody waits for nothing.

- Python looks for garbage more rarely. Numba makes a great many small objects that live on, and each time
  Python looks for cycles among them in vain: a tenth of the wait.
- LLVM tries no vectors of its own, and not its last level of optimisation. Stages are written in vectors, and
  run as fast without: a fifth of the wait.
"""

from __future__ import annotations

import gc
from typing import Any

import numba
from numba.core import event

from fedfairx.announcing import is_ours

RARELY = (100_000, 50, 100)  # allocations, and collections, between two collections of each generation
PASSES = {"OPT": 2, "LOOP_VECTORIZE": 0}  # of Numba's configuration
config: Any = numba.config


class Haste(event.Listener):
    """Numba tells it when a compilation begins and ends, under its one lock; they may be nested."""

    def __init__(self) -> None:
        self._depth = 0
        self._usual: tuple[tuple[int, int, int], dict[str, Any]] = gc.get_threshold(), {}

    def on_start(self, happening: Any) -> None:
        if self._depth == 0:
            self._usual = gc.get_threshold(), {name: getattr(config, name) for name in PASSES}
            if self._usual[0][0] > 0:  # 0: the application has no collections at all
                gc.set_threshold(*RARELY)
            if is_ours(happening):
                _set(PASSES)
        self._depth += 1

    def on_end(self, _: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            threshold, passes = self._usual
            gc.set_threshold(*threshold)
            _set(passes)


def _set(passes: dict[str, Any]) -> None:
    for name, value in passes.items():
        setattr(config, name, value)


def make_haste() -> None:
    """From now on."""
    event.register("numba:compile", Haste())
