"""Files that are written as a whole or not at all, and files that only their owner may read.

A file of a results folder is first written beside its place, as .NAME.MACHINE.PROCESS.partial: so what a
killed run left can be told from what another run is writing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import tempfile
import time
from pathlib import Path

from fedfairx.errors import ResultsError, StateError

STALE_SECONDS = 86_400  # after which a partial file of another machine has no writer any more


def write_atomically(
    path: str | os.PathLike[str], content: str | bytes, *, partial: Path | None = None
) -> None:
    """Replace the file at `path`: write a new file beside it, make it durable, rename it over the old one.

    partial: the new file until it is renamed; by default a name that nobody has, readable by its owner only.
    """
    target = Path(os.path.realpath(path))
    handle = None
    if partial is None:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)  # mode 0600
        partial = Path(name)
    try:
        with partial.open("wb") if handle is None else os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):  # the rename itself; some systems can't open a folder
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_whole(path: Path, content: bytes | str) -> None:
    """Create or replace a file of a results folder atomically; on failure the old one stays."""
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


def write_private(path: str | os.PathLike[str], content: bytes) -> None:
    """Create a file that only its owner may read, from its first moment on."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def require_private(path: str | os.PathLike[str]) -> None:
    """Refuse a secret that others may read."""
    mode = os.stat(path).st_mode & 0o777
    if mode & 0o077:
        raise StateError(
            f"{path} is a secret and must be readable by its owner alone (0600), got mode {mode:04o}"
        )
