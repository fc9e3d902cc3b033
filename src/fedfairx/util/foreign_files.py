"""Files that somebody else may have made, such as those of a folder that was handed out."""

from __future__ import annotations

import errno
import os
import stat

LARGEST = 2**24  # bytes of a file that is read as a whole


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The content of a file, at most `LARGEST`; an `OSError` for a pipe, a device, or a folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # else a pipe is waited for
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        parts, left = [], LARGEST + 1
        while left and (part := os.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(descriptor)
    if not left:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return b"".join(parts)
