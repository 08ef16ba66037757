"""The files of the store: found by key, shared by processes, bounded in size.

A file is listed when it lies where the store puts it, under a name that the store gives, and
is reached through no link. It is removed when it carries the store's header as well: a folder
may hold what others put there, and its path may lead to what is not a store at all.

Any number of processes may use one folder: a file is written whole under another name and
renamed, so a reader sees all of it or nothing, and a killed writer leaves a leftover that a
later pruning removes. What was used longest ago is pruned first.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from profiler_ext.errors import OutputError, StoreError
from profiler_ext.file_io import read_regular, replacing
from profiler_ext.records.provenance import LibraryKernels, Provenance
from profiler_ext.store.encoding import (
    INFLATED_LIMIT_BYTES,
    KERNELS_HEADER,
    MAGIC,
    EntryState,
    agreed_kernels,
    from_bytes,
    is_kernel_file,
    kernels_from_bytes,
    kernels_to_bytes,
    state_of,
)

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


LIMIT_VARIABLE = "PROFILER_EXT_STORE_BYTES"
LIMIT_BYTES = 512 << 20
_LEFTOVER_AGE_S = 3600
"""No writer takes this long; a file under a temporary name that is older has lost its writer."""
_CHECKS_PER_LIMIT = 16
"""How often the folder is measured while one process writes as much as the limit."""


class Store:
    """Files of provenance under one folder, found by FX graph cache key and Dynamo digest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._unmeasured_bytes: int | None = None

    def holds(self, key: str, dynamo_digest: str | None) -> bool:
        """Tell whether a graph's key and Dynamo graph have a record that need not be replaced.

        A damaged or older one is to be replaced; a newer one is somebody else's.
        """
        try:
            data = read_regular(self._path(key, dynamo_digest), INFLATED_LIMIT_BYTES)
        except OSError:
            return False
        return state_of(data) in (EntryState.OK, EntryState.NEWER)

    def has_file(self, key: str, dynamo_digest: str | None) -> bool:
        """Tell whether there is a file for a graph's key and Dynamo graph, unread."""
        return self._path(key, dynamo_digest).is_file()

    def put(self, key: str, dynamo_digest: str | None, data: bytes) -> None:
        """Keep a provenance's bytes for a graph's key and a Dynamo graph.

        Raises:
            OutputError: The folder cannot be written.
            StoreError: The limit in the environment is no number.
        """
        self._write(self._path(key, dynamo_digest), data)

    def find(self, key: str) -> list[Path]:
        """Return the files that are kept for a graph's key, by name."""
        return sorted((self.folder / _safe(key)[:SHARD]).glob(f"{_safe(key)}.*{SUFFIX}"))

    def read(self, path: Path) -> Provenance:
        """Read a record, and note that it was used.

        Raises:
            StoreError: It cannot be read; the message names the file.
        """
        try:
            record = from_bytes(read_regular(path, INFLATED_LIMIT_BYTES))
        except (OSError, StoreError) as error:
            raise StoreError(f"{path.name}: {error}") from error
        _note_use(path)
        return record

    def note_use(self, key: str) -> None:
        """Note that what is kept for a graph's key is of use, though nobody has read it."""
        for path in self.find(key):
            _note_use(path)

    def put_kernels(
        self, digest: str, device: str, chosen_by: str, kernels: LibraryKernels
    ) -> None:
        """Keep which kernels each library call of a graph launches on a device.

        Args:
            kernels: pairs of call site and the names of its device events, in order.

        Raises:
            OutputError: The folder cannot be written.
            StoreError: The limit in the environment is no number.
        """
        path = self._kernels_path(digest, device, chosen_by)
        self._write(path, kernels_to_bytes(kernels, device))

    def kernels(self, digest: str, device: str, chosen_by: str | None) -> LibraryKernels:
        """Return what :meth:`put_kernels` kept; nothing where nothing is known.

        Args:
            chosen_by: names what libraries choose by; ``None`` where nobody knows, and then only
                that counts which is the same by whatever they chose.

        Raises:
            StoreError: It cannot be read; the message names the file.
        """
        path = self._kernels_path(digest, device, chosen_by or "*")
        paths = [path] if chosen_by else sorted(path.parent.glob(path.name))
        return agreed_kernels(map(self._kernels_in, paths))

    def _kernels_in(self, path: Path) -> LibraryKernels:
        try:
            read_kernels = kernels_from_bytes(read_regular(path, MAX_KERNEL_FILE_BYTES))
        except FileNotFoundError:
            return ()
        except (OSError, StoreError) as error:
            raise StoreError(f"{path.name}: {error}") from error
        _note_use(path)
        return read_kernels

    def files(self) -> tuple[StoredFile, ...]:
        """Return the files under the store's names, the one that was used longest ago first."""
        return tuple(sorted(own_files(self.folder), key=lambda file: (file.used_ns, file.path)))

    def prune(
        self, *, max_bytes: int | None = None, older_than_s: float | None = None
    ) -> tuple[StoredFile, ...]:
        """Remove leftovers, and records as far as is asked for; never what is not the store's.

        Only what carries the store's header under a name that it gives is counted and removed;
        a store that is a link, or what lies behind one, is left as it is.

        Args:
            max_bytes: the size that the rest shall have at most; the oldest used go first.

        Raises:
            OutputError: A file cannot be removed.
        """
        if self.folder.is_symlink():
            return ()
        files = tuple(file for file in self.files() if has_header(file))
        to_remove = _unused(files, time.time_ns(), older_than_s)
        rest = [file for file in files if file not in to_remove]
        to_remove |= set(_excess(rest, max_bytes))
        return tuple(file for file in files if file in to_remove and remove(file))

    def _write(self, path: Path, data: bytes) -> None:
        limit_bytes = limit()
        if limit_bytes < len(data):
            return
        with replacing(path, durable=False) as file:  # it comes back when it is compiled again
            file.write(data)
        self._enforce_limit(limit_bytes, len(data))

    def _enforce_limit(self, limit_bytes: int, written_bytes: int) -> None:
        """Prune now and then: at this process's first record, and after every few megabytes."""
        if self._unmeasured_bytes is not None:
            self._unmeasured_bytes += written_bytes
            if self._unmeasured_bytes < limit_bytes // _CHECKS_PER_LIMIT:
                return
        self._unmeasured_bytes = 0
        self.prune(max_bytes=limit_bytes)

    def _kernels_path(self, digest: str, device: str, chosen_by: str) -> Path:
        name = f"{digest}.{_safe(device)}.{chosen_by}{KERNELS_SUFFIX}"
        return self.folder / digest[:SHARD] / name

    def _path(self, key: str, dynamo_digest: str | None) -> Path:
        name = f"{_safe(key)}.{dynamo_digest or 'none'}{SUFFIX}"
        return self.folder / _safe(key)[:SHARD] / name


def _note_use(path: Path) -> None:
    with suppress(OSError):  # a folder that may only be read serves as well
        os.utime(path)


def limit() -> int:
    """Return how many bytes the store may hold.

    Raises:
        StoreError: The environment asks for what is no number.
    """
    text = os.environ.get(LIMIT_VARIABLE, "")
    if text and not text.isdecimal():
        raise StoreError(f"{LIMIT_VARIABLE} is {text!r}, expected a number of bytes")
    return int(text) if text else LIMIT_BYTES


def _unused(
    files: tuple[StoredFile, ...], now_ns: int, older_than_s: float | None
) -> set[StoredFile]:
    def is_unused(file: StoredFile) -> bool:
        age_s = (now_ns - file.used_ns) / 1e9
        allowed_s = _LEFTOVER_AGE_S if file.is_leftover else older_than_s
        return allowed_s is not None and age_s > allowed_s

    return {file for file in files if is_unused(file)}


def _excess(files: list[StoredFile], max_bytes: int | None) -> Iterator[StoredFile]:
    """The records that must go so that the rest fits; ``files`` are oldest first."""
    excess_bytes = -1 if max_bytes is None else sum(f.size_bytes for f in files) - max_bytes
    for file in files:
        if excess_bytes <= 0:
            return
        if not file.is_leftover:
            excess_bytes -= file.size_bytes
            yield file


def _safe(key: str) -> str:
    return "".join(c for c in key if c.isalnum())
