"""Owns the reading of a file that somebody else may have put there: regular, and of a size.

A pipe or a device in its place would be waited for without end.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Read a regular file.

    Args:
        path: the file, or a link to it.
        most_bytes: how large it may be.

    Returns:
        Its bytes.

    Raises:
        OSError: It cannot be read, is larger, or is no regular file.
    """
    handle = os.open(path, _READ_FLAGS)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        if status.st_size > most_bytes:
            raise OSError(errno.EFBIG, f"it has over {most_bytes} bytes")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(most_bytes)
    finally:
        os.close(handle)
