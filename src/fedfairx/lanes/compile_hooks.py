"""Hooks into Numba's compilation of this package: faster settings, and a message the first time.

- Python collects garbage more rarely. Numba makes many small objects that live on, and each collection
  looks for cycles among them in vain: a tenth of the compile time.
- LLVM runs neither its loop vectoriser nor its last level of optimisation. Stages are written in vectors and
  run as fast without: a fifth of the compile time.
- The first compilation is announced through the logger "fedfairx", which prints warnings to stderr unless an
  application configures it: `logging.getLogger("fedfairx").setLevel(logging.ERROR)` silences it.
"""

from __future__ import annotations

import gc
import logging
from typing import Any

import numba
from numba.core import event

RARELY = (100_000, 50, 100)  # allocations, and collections, between two collections of each generation
PASSES = {"OPT": 2, "LOOP_VECTORIZE": 0}  # of Numba's configuration
config: Any = numba.config


class FasterSettings(event.Listener):
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


def install_compile_hooks() -> None:
    """Install the hooks."""
    event.register("numba:compile", FasterSettings())


LOGGER = logging.getLogger("fedfairx")


class Announcer(event.Listener):
    """Speaks at the first function of this package that Numba compiles, and then never again."""

    def __init__(self, folder: str | None) -> None:
        self._text = (
            "compiling: some ten seconds, in every process, because no folder for machine code can be "
            "written; NUMBA_CACHE_DIR may name one"
            if folder is None
            else f"compiling once, some ten seconds; the machine code is kept in {folder}"
        )
        self._said = False

    def on_start(self, happening: Any) -> None:
        if not self._said and is_ours(happening):
            self._said = True
            LOGGER.warning(self._text)

    def on_end(self, happening: Any) -> None:
        """Nothing to say."""


def is_ours(happening: Any) -> bool:
    """Whether what Numba compiles is a function of this package; what `exec` made may be of no module."""
    function = getattr(happening.data.get("dispatcher"), "py_func", None)
    return (getattr(function, "__module__", None) or "").startswith("fedfairx.")


def announce(folder: str | None) -> None:
    """Begin to listen; `folder` is where machine code is kept, if anywhere."""
    event.register("numba:compile", Announcer(folder))
