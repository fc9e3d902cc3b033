"""Protect open connections from forked children: closing one there would end it for the parent too."""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any, Protocol


class Forkable(Protocol):
    """An object with open connections."""

    def disown(self) -> list[Any]:
        """Forget all connections in a forked child; return them, so that they are never closed."""
        ...


_OPEN: weakref.WeakSet[Any] = weakref.WeakSet()


def watch(holder: Forkable) -> None:
    """Call `disown` in every forked child."""
    _OPEN.add(holder)


def _in_forked_child() -> None:
    for holder in list(_OPEN):
        for connection in holder.disown():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)
