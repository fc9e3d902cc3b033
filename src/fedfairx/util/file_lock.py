"""Exclusive locks between processes: `flock` on a separate file beside the file that it guards.

SQLite locks its file with POSIX record locks, and those are lost as soon as the process closes any
descriptor of that file: after a backup read, say. So the ledger's lock is `flock` on a file that nobody has
a reason to read. It belongs to the open file description: closing another descriptor doesn't drop it, and
the kernel drops it when the process dies, however it dies. A forked child gives up its share at once. The
file says who holds it, and keeps what the last holder left there.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedfairx.errors import LedgerMismatch, PrivacyError
from fedfairx.util.fork_safety import watch

#: How long a `WaitingLock` waits: longer than a busy machine compiles any function.
MOST_SECONDS = 120.0


class FileLock:
    """An exclusive lock, held from construction until `free` or the end of the process.

    Guarantees:
    - While one is held, another of the same path is refused with `LedgerMismatch`, in any process; the error
      names the process that holds it.
    - `check` refuses a forked child, and a lock whose file was removed or put elsewhere.
    - A symbolic link in its place is refused, and what it leads to is left as it is.
    """

    def __init__(self, path: Path) -> None:
        import fcntl  # POSIX; imported here so that the package can be imported everywhere

        self._fcntl = fcntl
        self._path = path
        self._place = os.fspath(path)  # converted once: each transaction checks it
        self._process = os.getpid()
        self._since = datetime.now(UTC).isoformat(timespec="seconds")
        self._descriptor: int | None = _open(path)
        self._file = _identity(os.fstat(self._descriptor))
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _told_by(self._read())
            self.free()
            raise LedgerMismatch(f"{path} is locked{holder}") from error
        self.before = self._read()
        self.leave(self.before.get("mark", {}))
        watch(self)

    def leave(self, mark: dict[str, Any]) -> None:
        """Write the holder and `mark`, for the next holder; on a full disk the file stays as it was."""
        holder = {"process": self._process, "host": socket.gethostname(), "since": self._since, "mark": mark}
        text = json.dumps(holder).encode() + b"\n"
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.pwrite(self._descriptor, text, 0)
                os.ftruncate(self._descriptor, len(text))
                os.fsync(self._descriptor)

    def _read(self) -> dict[str, Any]:
        """Parse the file; an empty result if it is cut short or foreign."""
        assert self._descriptor is not None
        try:
            content = json.loads(os.pread(self._descriptor, 1 << 16, 0) or b"{}")
        except ValueError:
            content = {}
        return content if isinstance(content, dict) else {}

    def check(self) -> None:
        """Raise unless this process holds the lock and its file is in place."""
        if self._process != os.getpid():
            raise PrivacyError("this ledger belongs to the parent of this forked process")
        if self._descriptor is None:
            raise PrivacyError("this ledger is closed")
        try:
            there = _identity(os.lstat(self._place))
        except FileNotFoundError:
            there = None
        if there != self._file:
            raise PrivacyError(f"the lock {self._path} was removed, so another process may have the ledger")

    def free(self) -> None:
        """Release the lock; in a forked child close the descriptor only, and leave the lock to the parent."""
        if self._descriptor is not None:
            if self._process == os.getpid():  # a child forked just now may still have its share
                with contextlib.suppress(OSError):
                    self._fcntl.flock(self._descriptor, self._fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None

    def disown(self) -> list[Any]:
        """In a forked child: leave the lock to the parent, so that it ends with the parent."""
        self.free()
        return []

    def __del__(self) -> None:
        if getattr(self, "_descriptor", None) is not None:
            self.free()


class WaitingLock:
    """A lock for work whose result others can use: who comes second waits, from construction, for `free`.

    The kernel frees it when its holder dies. After `most_seconds`, as where the holder is suspended, and
    where the file system has no locks, the second goes on without it: the work may then be done twice.
    """

    def __init__(self, path: Path, *, most_seconds: float = MOST_SECONDS) -> None:
        self.held = False
        self._descriptor: int | None = None
        end = time.monotonic() + most_seconds
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            watch(self)
            while not self.held:
                try:
                    fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self.held = True
                except BlockingIOError:
                    if time.monotonic() >= end:
                        break
                    time.sleep(0.02)

    def free(self) -> None:
        """Release the lock, if it is held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor, self.held = None, False

    def disown(self) -> list[Any]:
        """In a forked child: leave the lock to the parent, so that it ends with the parent."""
        self.free()
        return []


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if not path.is_symlink():
            raise
        raise PrivacyError(
            f"the lock {path} must be a file of its own, and is a symbolic link: remove the link"
        ) from error


def _told_by(holder: dict[str, Any]) -> str:
    complete = all(name in holder for name in ("process", "host", "since"))
    return f" by process {holder['process']} on {holder['host']} since {holder['since']}" if complete else ""
