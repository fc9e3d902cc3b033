"""Says once that something is being compiled: nobody should wait for silent seconds.

Through the logger "fedfairx", which prints warnings to stderr unless an application says otherwise:
`logging.getLogger("fedfairx").setLevel(logging.ERROR)` silences it.
"""

from __future__ import annotations

import logging
from typing import Any

from numba.core import event

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
