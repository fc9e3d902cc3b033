"""Files that are written as a whole or not at all, and files that only their owner may read."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from fedfairx.errors import StateError


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
