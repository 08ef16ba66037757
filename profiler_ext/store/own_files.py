"""Owns which files of a folder are the store's own, and the removal of one.

A file is listed when it lies where the store puts it, under a name that the store gives, and
is reached through no link. It is removed when it carries the store's header as well: a folder
may hold what others put there, and its path may lead to what is not a store at all.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from profiler_ext.errors import OutputError
from profiler_ext.store.encoding import MAGIC
from profiler_ext.store.kernels import KERNELS_HEADER, is_kernel_file

SUFFIX = ".pxpr"
KERNELS_SUFFIX = ".kernels.json"
_KERNEL_SUFFIXES = (KERNELS_SUFFIX, ".counts.json")
"""The second is that of an earlier format."""
SHARD = 2
"""How many characters of a key name the folder of its files."""
MAX_KERNEL_FILE_BYTES = 16 << 20
"""More than the kernels of any graph's library calls take."""
_NAME = re.compile(
    r"(?P<leftover>\.?)(?P<key>[^\W_]+)"
    r"(?:\.(?:none|[^\W_]+)\.pxpr|\.[^\W_]*(?:\.[0-9a-f]+)?\.(?:kernels|counts)\.json)"
    r"(?P<writer>\.[a-z0-9_]{8})?"
)
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_FILE_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of the store.

    Attributes:
        path: where it lies.
        size_bytes: its size.
        used_ns: when it was last written or read, in wall-clock nanoseconds.
    """

    path: Path
    size_bytes: int
    used_ns: int

    @property
    def key(self) -> str:
        """The FX graph cache key of the record that it holds."""
        return self.path.name.partition(".")[0]

    @property
    def is_leftover(self) -> bool:
        """Whether a writer was killed before it could name the file."""
        return self.path.name.startswith(".")

    @property
    def is_record(self) -> bool:
        """Whether it holds a provenance."""
        return self.path.name.endswith(SUFFIX) and not self.is_leftover


def own_files(folder: Path) -> Iterator[StoredFile]:
    """Return the files of a store; one that another process removes meanwhile is left out."""
    for shard in _entries(folder):
        if shard.is_dir(follow_symlinks=False):
            for entry in _entries(Path(shard.path)):
                if (file := _stored(entry, shard.name)) is not None:
                    yield file


def has_header(file: StoredFile) -> bool:
    """Tell whether a file begins like one that the store wrote."""
    try:
        handle = os.open(file.path, _FILE_FLAGS)
    except OSError:
        return False
    try:
        return _has_own_header(handle, file)
    finally:
        os.close(handle)


def remove(file: StoredFile) -> bool:
    """Remove a file, unless it was used or written anew, or is not the store's own.

    The folder is held open meanwhile, so that no link can lead elsewhere.

    Args:
        file: as it was when it was looked at.

    Returns:
        Whether it was removed.

    Raises:
        OutputError: It cannot be removed.
    """
    try:
        with _opened(file.path.parent.parent) as root, _opened(file.path.parent, root) as shard:
            return _remove_in(shard, file)
    except (FileNotFoundError, NotADirectoryError):  # it is gone, or a link took its place
        return False
    except OSError as error:
        raise OutputError(f"cannot remove {file.path}: {error.strerror}") from error


@contextmanager
def _opened(folder: Path, root: int | None = None) -> Iterator[int]:
    handle = os.open(folder if root is None else folder.name, _FOLDER_FLAGS, dir_fd=root)
    try:
        yield handle
    finally:
        os.close(handle)


def _remove_in(folder: int, file: StoredFile) -> bool:
    handle = os.open(file.path.name, _FILE_FLAGS, dir_fd=folder)
    try:
        if not _has_own_header(handle, file):
            return False
    finally:
        os.close(handle)
    os.unlink(file.path.name, dir_fd=folder)
    return True


def _has_own_header(handle: int, file: StoredFile) -> bool:
    """Tell whether an open file is the one that was looked at, and carries the header."""
    status = os.fstat(handle)
    now = (status.st_size, status.st_mtime_ns)
    if not stat.S_ISREG(status.st_mode) or now != (file.size_bytes, file.used_ns):
        return False
    if not any(suffix in file.path.name for suffix in _KERNEL_SUFFIXES):
        return os.pread(handle, len(MAGIC), 0) == MAGIC
    data = os.pread(handle, MAX_KERNEL_FILE_BYTES, 0)
    return data.startswith(KERNELS_HEADER) if file.is_leftover else is_kernel_file(data)


def _stored(entry: os.DirEntry[str], shard: str) -> StoredFile | None:
    named = _NAME.fullmatch(entry.name)
    if named is None or bool(named["leftover"]) != bool(named["writer"]):
        return None
    if named["key"][:SHARD] != shard or not entry.is_file(follow_symlinks=False):
        return None
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return StoredFile(Path(entry.path), status.st_size, status.st_mtime_ns)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        yield from entries
