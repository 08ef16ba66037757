"""The files of the store: found by key, shared by processes, bounded in size.

A file is listed if it is where the store puts it, under a name of the store, and not behind a link.
It is removed only if it has the store's header too: the folder may contain other files. A file is
written under another name and renamed, so readers see all of it or nothing, and a killed writer
leaves a file that a later pruning removes. The least recently used is pruned first.
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
from profiler_ext.store import encoding

SUFFIX = ".pxpr"
KERNELS_SUFFIX = ".kernels.json"
_KERNEL_SUFFIXES = (KERNELS_SUFFIX, ".counts.json")
"""The second is of an earlier format."""
SHARD = 2
"""The length of a key's prefix that names its folder."""
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
    """A file of the store."""

    path: Path
    size_bytes: int
    used_ns: int  # last written or read, in wall-clock nanoseconds

    @property
    def key(self) -> str:
        """The FX graph cache key of its record."""
        return self.path.name.partition(".")[0]

    @property
    def is_leftover(self) -> bool:
        """Whether its writer was killed before it could rename the file."""
        return self.path.name.startswith(".")

    @property
    def is_record(self) -> bool:
        """Whether it holds a provenance."""
        return self.path.name.endswith(SUFFIX) and not self.is_leftover


def own_files(folder: Path) -> Iterator[StoredFile]:
    """Return the files of a store, without those removed meanwhile."""
    for shard in _entries(folder):
        if shard.is_dir(follow_symlinks=False):
            for entry in _entries(Path(shard.path)):
                if (file := _stored(entry, shard.name)) is not None:
                    yield file


def has_header(file: StoredFile) -> bool:
    """Tell whether a file has the store's header."""
    try:
        handle = os.open(file.path, _FILE_FLAGS)
    except OSError:
        return False
    try:
        return _has_own_header(handle, file)
    finally:
        os.close(handle)


def remove(file: StoredFile) -> bool:
    """Remove a file, unless it was used or replaced, or is not the store's own."""
    # The folder is held open meanwhile, so that no link can lead elsewhere.
    try:
        with _opened(file.path.parent.parent) as root, _opened(file.path.parent, root) as shard:
            handle = os.open(file.path.name, _FILE_FLAGS, dir_fd=shard)
            try:
                if not _has_own_header(handle, file):
                    return False
            finally:
                os.close(handle)
            os.unlink(file.path.name, dir_fd=shard)
            return True
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


def _has_own_header(handle: int, file: StoredFile) -> bool:
    """Tell whether an open file is the listed one, with the store's header."""
    status = os.fstat(handle)
    now = (status.st_size, status.st_mtime_ns)
    if not stat.S_ISREG(status.st_mode) or now != (file.size_bytes, file.used_ns):
        return False
    if not any(suffix in file.path.name for suffix in _KERNEL_SUFFIXES):
        return os.pread(handle, len(encoding.MAGIC), 0) == encoding.MAGIC
    data = os.pread(handle, MAX_KERNEL_FILE_BYTES, 0)
    return (
        data.startswith(encoding.KERNELS_HEADER)
        if file.is_leftover
        else encoding.is_kernel_file(data)
    )


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
"""No writer takes this long: an older temporary file has lost its writer."""
_CHECKS_PER_LIMIT = 16
"""How often the folder is measured while a process writes as much as the limit."""


class Store:
    """Files of provenance under one folder, found by FX graph cache key and Dynamo digest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._unmeasured_bytes: int | None = None

    def holds(self, key: str, dynamo_digest: str | None) -> bool:
        """Tell whether there is a record of a graph's key and Dynamo graph that stays.

        A damaged or older one is replaced; a newer one is not.
        """
        try:
            data = read_regular(self._path(key, dynamo_digest), encoding.INFLATED_LIMIT_BYTES)
        except OSError:
            return False
        return encoding.state_of(data) in (encoding.EntryState.OK, encoding.EntryState.NEWER)

    def has_file(self, key: str, dynamo_digest: str | None) -> bool:
        """Tell whether there is a file for a graph's key and Dynamo graph, unread."""
        return self._path(key, dynamo_digest).is_file()

    def put(self, key: str, dynamo_digest: str | None, data: bytes) -> None:
        """Store a provenance's bytes for a graph's key and Dynamo graph.

        Raises:
            OutputError: The folder cannot be written.
            StoreError: The limit in the environment is no number.
        """
        self._write(self._path(key, dynamo_digest), data)

    def find(self, key: str) -> list[Path]:
        """Return the files of a graph's key, by name."""
        return sorted((self.folder / _safe(key)[:SHARD]).glob(f"{_safe(key)}.*{SUFFIX}"))

    def read(self, path: Path) -> Provenance:
        """Read a record, and note that it was used.

        Raises:
            StoreError: It cannot be read; the message names the file.
        """
        try:
            record = encoding.from_bytes(read_regular(path, encoding.INFLATED_LIMIT_BYTES))
        except (OSError, StoreError) as error:
            raise StoreError(f"{path.name}: {error}") from error
        _note_use(path)
        return record

    def note_use(self, key: str) -> None:
        """Note that a graph's files were used, without reading them."""
        for path in self.find(key):
            _note_use(path)

    def put_kernels(
        self, digest: str, device: str, chosen_by: str, kernels: LibraryKernels
    ) -> None:
        """Store the kernels that each library call of a graph launches on a device.

        Raises:
            OutputError: The folder cannot be written.
            StoreError: The limit in the environment is no number.
        """
        path = self._kernels_path(digest, device, chosen_by)
        self._write(path, encoding.kernels_to_bytes(kernels, device))

    def kernels(self, digest: str, device: str, chosen_by: str | None) -> LibraryKernels:
        """Return the stored kernels, if any.

        Without ``chosen_by``, which names the library settings, only those that are the same for
        all.
        """
        path = self._kernels_path(digest, device, chosen_by or "*")
        paths = [path] if chosen_by else sorted(path.parent.glob(path.name))
        return encoding.agreed_kernels(map(self._kernels_in, paths))

    def _kernels_in(self, path: Path) -> LibraryKernels:
        try:
            read_kernels = encoding.kernels_from_bytes(read_regular(path, MAX_KERNEL_FILE_BYTES))
        except FileNotFoundError:
            return ()
        except (OSError, StoreError) as error:
            raise StoreError(f"{path.name}: {error}") from error
        _note_use(path)
        return read_kernels

    def files(self) -> tuple[StoredFile, ...]:
        """Return the files under the store's names, the least recently used first."""
        return tuple(sorted(own_files(self.folder), key=lambda file: (file.used_ns, file.path)))

    def prune(
        self, *, max_bytes: int | None = None, older_than_s: float | None = None
    ) -> tuple[StoredFile, ...]:
        """Remove leftovers, and records as requested; never a file that is not the store's.

        Args:
            max_bytes: the largest size of the rest; the least recently used go first.

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
        with replacing(path, durable=False) as file:  # a lost one comes back with the next compile
            file.write(data)
        self._enforce_limit(limit_bytes, len(data))

    def _enforce_limit(self, limit_bytes: int, written_bytes: int) -> None:
        """Prune at this process's first record, and after every few megabytes."""
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
    with suppress(OSError):  # a read-only folder works too
        os.utime(path)


def limit() -> int:
    """Return the limit of the store's size, in bytes."""
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
    """The records to remove so that the rest fits; ``files`` are oldest first."""
    excess_bytes = -1 if max_bytes is None else sum(f.size_bytes for f in files) - max_bytes
    for file in files:
        if excess_bytes <= 0:
            return
        if not file.is_leftover:
            excess_bytes -= file.size_bytes
            yield file


def _safe(key: str) -> str:
    return "".join(c for c in key if c.isalnum())
