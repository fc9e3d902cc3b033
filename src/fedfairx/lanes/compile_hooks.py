"""Hooks into Numba's compilation of this package: faster settings, and a message the first time.

- Python's garbage collector runs more rarely. Numba makes many small long-lived objects, in which each
  collection looks for cycles in vain: a tenth of the compile time.
- LLVM runs neither its loop vectoriser nor its last level of optimisation. Stages are written in vectors and
  run as fast without: a fifth of the compile time.
- The first compilation is announced through the logger "fedfairx", which prints warnings to stderr unless an
  application configures it: `logging.getLogger("fedfairx").setLevel(logging.ERROR)` silences it.
- Other processes need not wait any longer for a compilation that fails.
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
    """Listener for the begin and end of compilations, which may be nested; Numba calls it under its lock."""

    def __init__(self) -> None:
        self._depth = 0
        self._usual: tuple[tuple[int, int, int], dict[str, Any]] = gc.get_threshold(), {}

    def on_start(self, happening: Any) -> None:
        if self._depth == 0:
            self._usual = gc.get_threshold(), {name: getattr(config, name) for name in PASSES}
            if self._usual[0][0] > 0:  # 0: the application has switched collection off
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


LOGGER = logging.getLogger("fedfairx")


class Announcer(event.Listener):
    """Log one message at the first compilation of a function of this package."""

    def __init__(self, folder: str | None) -> None:
        self._text = (
            "compiling for some seconds, in every process, because no cache folder is writable; set "
            "NUMBA_CACHE_DIR to one that is"
            if folder is None
            else f"compiling once, for some seconds; the machine code is cached in {folder}"
        )
        self._announced = False

    def on_start(self, happening: Any) -> None:
        if not self._announced and is_ours(happening):
            self._announced = True
            LOGGER.warning(self._text)

    def on_end(self, happening: Any) -> None:
        """Do nothing."""


class Freer(event.Listener):
    """Free the lock of a function whose compilation fails; that of another is freed once it is on disk."""

    def on_start(self, happening: Any) -> None:
        """Do nothing."""

    def on_end(self, happening: Any) -> None:
        failed = happening._exc_details is not None  # `is_failed` says the opposite in some versions
        if failed and is_ours(happening):
            free = getattr(happening.data["dispatcher"]._cache, "free", None)
            if free is not None:  # inlined functions have no cache
                free()


def is_ours(happening: Any) -> bool:
    """Whether Numba compiles a function of this package; functions made by `exec` may have no module."""
    function = getattr(happening.data.get("dispatcher"), "py_func", None)
    return (getattr(function, "__module__", None) or "").startswith("fedfairx.")


def install_compile_hooks(folder: str | None) -> None:
    """Install the hooks; `folder` is the cache of machine code, None if there is none."""
    event.register("numba:compile", FasterSettings())
    event.register("numba:compile", Announcer(folder))
    event.register("numba:compile", Freer())
