"""Reads and writes files safely: regular files only, temporary folders, atomic replacement."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from profiler_ext.errors import OutputError

_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_STANDARD_STREAMS = 3
# How much of a file's name its temporary name has; 255 bytes is what most disks take
_NAME_BYTES = 200
_WRITE_FLAGS = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_EXCL
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Read a regular file; raises OSError."""
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


def candidate_folders(*others: Path) -> Iterator[Path]:
    """Return folders to write to, the best first."""
    # *others: alternatives to the temporary folder; for a missing one, the nearest that exists
    with suppress(OSError):
        yield Path(tempfile.gettempdir())
    with suppress(OSError):
        yield from map(_nearest, others)
    with suppress(OSError):
        yield Path.cwd()


def _nearest(folder: Path) -> Path:
    absolute_path = folder.absolute()
    return next(each for each in (absolute_path, *absolute_path.parents) if each.is_dir())


@contextmanager
def temporary_folder(cost: str, *others: Path, room_bytes: int = 0) -> Iterator[Path]:
    """Make an empty folder that is removed after the block; raises OutputError."""
    # room_bytes: expected size; without a disk with so much free, the one that has most
    # Folders on disks without room come last; unknown room counts as enough.
    best_first = candidate_folders(*others)
    free_bytes = {place: min(_free_bytes(place), room_bytes) for place in best_first}
    made = _create(cost, sorted(free_bytes, key=lambda place: -free_bytes[place]))
    try:
        with made as folder:
            yield Path(folder)
    finally:
        with suppress(OSError):  # to list it takes a file that can be opened, and this takes none
            Path(made.name).rmdir()


def _free_bytes(place: Path) -> int:
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return sys.maxsize


def _create(cost: str, candidate_folders: Iterable[Path]) -> TemporaryDirectory[str]:
    refused: list[str] = []
    for place in candidate_folders:
        try:
            str(place).encode()
            return TemporaryDirectory(
                prefix="profiler_ext-", dir=str(place), ignore_cleanup_errors=True
            )
        except (OSError, UnicodeEncodeError) as error:
            refused.append(f"{place}: {_reason(error)}")
    reasons = "; ".join(dict.fromkeys(refused)) or "there is no folder"
    raise OutputError(
        f"no temporary folder can be made ({reasons}), so {cost}; "
        "set TMPDIR to a folder that can be "
        "written"
    )


def _reason(error: OSError | UnicodeEncodeError) -> str:
    if isinstance(error, UnicodeEncodeError):
        return "its name is not UTF-8"
    return error.strerror or str(error)


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Open a temporary file next to ``path`` and rename it to ``path`` when the block succeeds.

    Raises:
        OutputError: The folder cannot be made or written, ``path`` is a folder or a device, or the
            disk is full.
    """
    # durable: wait until the disk has the bytes, so that a power loss leaves the old file or the
    # new one
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
    """Raise where a rename would replace a folder, a device or a pipe."""
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
    # Where a standard stream is closed, the next opened file gets its number, and what any library
    # prints would be written into the file.
    if handle >= _STANDARD_STREAMS:
        return handle
    try:
        return _above_standard_streams(os.dup(handle))
    finally:
        os.close(handle)
