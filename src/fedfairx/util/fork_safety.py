"""In a forked child an open connection stays the parent's: closing it there would end it for both."""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any, Protocol


class Forkable(Protocol):
    """What has connections."""

    def disown(self) -> list[Any]:
        """In a forked child: let go of everything, and give the connections, which will never be closed."""
        ...


_OPEN: weakref.WeakSet[Any] = weakref.WeakSet()


def watch(holder: Forkable) -> None:
    """Have it disown its connections in forked children."""
    _OPEN.add(holder)


def _in_forked_child() -> None:
    for holder in list(_OPEN):
        for connection in holder.disown():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)
