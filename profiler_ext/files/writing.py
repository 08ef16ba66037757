"""Owns how files reach the disk: written whole under a temporary name, then renamed.

A file has its final rights from the first moment: the kernel applies the process's umask when
it is made. What is at the target is replaced and never followed, opened or written into.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from profiler_ext.errors import OutputError

_STANDARD_STREAMS = 3
_NAME_BYTES = 200
"""How much of a file's name its temporary name has; 255 bytes is what most disks take."""
_WRITE_FLAGS = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_EXCL
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Open a temporary file beside ``path`` and rename it there when the block succeeds.

    Args:
        path: where the file shall be.
        durable: wait until the disk has the bytes, so that a loss of power leaves the old file
            or the new one; what can be made again need not wait.

    Yields:
        The open binary file.

    Raises:
        OutputError: The folder cannot be made or written, ``path`` is a folder or a device, or
            the disk is full.
    """
    try:
        with _written_atomically(path, durable) as file:
            yield file
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(f"cannot write {path}: {reason}; choose another place") from error


@contextmanager
def _written_atomically(path: Path, durable: bool) -> Iterator[IO[bytes]]:
    _require_regular_file(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, file = _created(path)
    try:
        with file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):  # the first failure is the one to tell
            temporary.unlink()
        raise


def _require_regular_file(path: Path) -> None:
    """Raise where a rename would put a file in the place of a folder, a device or a pipe."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is no regular file")


def _created(path: Path) -> tuple[Path, IO[bytes]]:
    name = os.fsdecode(os.fsencode(path.name)[:_NAME_BYTES])
    while True:
        temporary = path.with_name(f".{name}.{secrets.token_hex(4)}")
        with suppress(FileExistsError):
            handle = _above_standard_streams(os.open(temporary, _WRITE_FLAGS, 0o666))
            return temporary, os.fdopen(handle, "wb")


def _above_standard_streams(handle: int) -> int:
    """Return a handle that is none of the standard streams'.

    Where one of them is closed, the next file that is opened has its number, and what any
    library prints would be written into the file.
    """
    if handle >= _STANDARD_STREAMS:
        return handle
    try:
        return _above_standard_streams(os.dup(handle))
    finally:
        os.close(handle)
