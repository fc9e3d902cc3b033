"""Atomic writes into a results folder, and removal of what a killed run left.

A file is written beside its place, as .NAME.MACHINE.PROCESS.partial, made durable, then renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import time
from pathlib import Path

from fedfairx.errors import ResultsError
from fedfairx.util.files import write_atomically

STALE_SECONDS = 86_400  # after which a partial file of another machine has no writer any more


def write_whole(path: Path, content: bytes | str) -> None:
    """Create or replace a file atomically; on failure the old one stays."""
    partial = path.with_name(f".{path.name}.{_machine()}.{os.getpid()}.partial")
    try:
        write_atomically(path, content, partial=partial)
    except OSError as error:
        raise ResultsError(f"{path} could not be written ({error.strerror or error})") from None


def remove_stale(folder: Path) -> None:
    """Remove partial files whose writer was killed."""
    for partial in folder.glob(".*.partial"):
        with contextlib.suppress(OSError):  # another process may be at it too
            if _is_stale(partial):
                partial.unlink()


def _is_stale(partial: Path) -> bool:
    machine, process = partial.name.split(".")[-3:-1]
    if machine != _machine():
        return time.time() - partial.stat().st_mtime > STALE_SECONDS
    return not _is_running(int(process)) if process.isdigit() else False


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it runs as another user
        return True
    return True


def _machine() -> str:
    """The machine's name without dots."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]
