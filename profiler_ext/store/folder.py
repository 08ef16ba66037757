"""Owns the files of the store: found by key, shared by processes, bounded in size.

Any number of processes may use one folder: a file is written whole under another name and
renamed, so a reader sees all of it or nothing, and a killed writer leaves a leftover that a
later pruning removes. What was used longest ago is pruned first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from profiler_ext.errors import OutputError, StoreError
from profiler_ext.records import Provenance
from profiler_ext.store.counts import Counts, counts_from_bytes, counts_to_bytes
from profiler_ext.store.encoding import EntryState, from_bytes, state_of
from profiler_ext.writing import replacing

LIMIT_VARIABLE = "PROFILER_EXT_STORE_BYTES"
LIMIT_BYTES = 512 << 20
_SUFFIX = ".pxpr"
_COUNTS_SUFFIX = ".counts.json"
_LEFTOVER_AGE_S = 3600
"""No writer takes this long; a file under a temporary name that is older has lost its writer."""
_CHECKS_A_LIMIT = 16
"""How often the folder is measured while one process writes as much as the limit."""


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
        return self.path.name.endswith(_SUFFIX) and not self.is_leftover


class Store:
    """Files of provenance under one folder, found by FX graph cache key and Dynamo digest."""

    def __init__(self, folder: Path) -> None:
        """Use ``folder``; it is made when something is put into it."""
        self.folder = folder
        self._unmeasured_bytes: int | None = None

    def holds(self, key: str, dynamo_digest: str | None) -> bool:
        """Tell whether a graph's key and Dynamo graph have a record that need not be replaced.

        A damaged or older one is to be replaced; a newer one is somebody else's.
        """
        try:
            data = self._path(key, dynamo_digest).read_bytes()
        except OSError:
            return False
        return state_of(data) in (EntryState.OK, EntryState.NEWER)

    def put(self, key: str, dynamo_digest: str | None, data: bytes) -> None:
        """Keep a provenance's bytes for a graph's key and a Dynamo graph.

        Raises:
            OutputError: The folder cannot be written.
            StoreError: The limit in the environment is no number.
        """
        self._write(self._path(key, dynamo_digest), data)

    def find(self, key: str) -> list[Path]:
        """Return the files that are kept for a graph's key, by name."""
        return sorted((self.folder / _safe(key)[:2]).glob(f"{_safe(key)}.*{_SUFFIX}"))

    def read(self, path: Path) -> Provenance:
        """Read a record, and note that it was used.

        Raises:
            StoreError: It cannot be read; the message names the file.
        """
        try:
            record = from_bytes(path.read_bytes())
        except (OSError, StoreError) as error:
            raise StoreError(f"{path.name}: {error}") from error
        with suppress(OSError):  # a folder that may only be read serves as well
            os.utime(path)
        return record

    def put_counts(self, digest: str, device: str, counts: Counts) -> None:
        """Keep how many kernels each library call of a graph launches on a device.

        Raises:
            OutputError: The folder cannot be written.
            StoreError: The limit in the environment is no number.
        """
        self._write(self._counts_path(digest, device), counts_to_bytes(counts, device))

    def counts(self, digest: str, device: str) -> Counts:
        """Return what :meth:`put_counts` kept; nothing where nothing is known.

        Raises:
            StoreError: It cannot be read; the message names the file.
        """
        path = self._counts_path(digest, device)
        try:
            found = counts_from_bytes(path.read_bytes())
        except FileNotFoundError:
            return ()
        except (OSError, StoreError) as error:
            raise StoreError(f"{path.name}: {error}") from error
        with suppress(OSError):
            os.utime(path)
        return found

    def files(self) -> tuple[StoredFile, ...]:
        """Return all files, the one that was used longest ago first."""
        return tuple(sorted(_files(self.folder), key=lambda file: (file.used_ns, file.path)))

    def prune(
        self, *, max_bytes: int | None = None, older_than_s: float | None = None
    ) -> tuple[StoredFile, ...]:
        """Remove leftovers, and records as far as is asked for.

        Args:
            max_bytes: the size that the rest shall have at most; the oldest used go first.
            older_than_s: what was not used for so long goes.

        Returns:
            The removed files.

        Raises:
            OutputError: A file cannot be removed.
        """
        files = self.files()
        doomed = _unused(files, time.time_ns(), older_than_s)
        rest = [file for file in files if file not in doomed]
        doomed |= set(_excess(rest, max_bytes))
        return tuple(file for file in files if file in doomed and _remove(file))

    def _write(self, path: Path, data: bytes) -> None:
        limit_bytes = limit()
        if limit_bytes < len(data):
            return
        with replacing(path) as file:
            file.write(data)
        self._keep_within(limit_bytes, len(data))

    def _keep_within(self, limit_bytes: int, written_bytes: int) -> None:
        """Prune now and then: at this process's first record, and after every few megabytes."""
        if self._unmeasured_bytes is not None:
            self._unmeasured_bytes += written_bytes
            if self._unmeasured_bytes < limit_bytes // _CHECKS_A_LIMIT:
                return
        self._unmeasured_bytes = 0
        self.prune(max_bytes=limit_bytes)

    def _counts_path(self, digest: str, device: str) -> Path:
        return self.folder / digest[:2] / f"{digest}.{_safe(device)}{_COUNTS_SUFFIX}"

    def _path(self, key: str, dynamo_digest: str | None) -> Path:
        name = f"{_safe(key)}.{dynamo_digest or 'none'}{_SUFFIX}"
        return self.folder / _safe(key)[:2] / name


def limit() -> int:
    """Return how many bytes the store may hold.

    Raises:
        StoreError: The environment asks for what is no number.
    """
    asked = os.environ.get(LIMIT_VARIABLE, "")
    if asked and not asked.isdecimal():
        raise StoreError(f"{LIMIT_VARIABLE} is {asked!r}, expected a number of bytes")
    return int(asked) if asked else LIMIT_BYTES


def _files(folder: Path) -> Iterator[StoredFile]:
    """The files of a folder; one that another process removes meanwhile is left out."""
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path))
        elif (found := _stored(Path(entry.path))) is not None:
            yield found


def _stored(path: Path) -> StoredFile | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return StoredFile(path, status.st_size, status.st_mtime_ns)


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


def _remove(file: StoredFile) -> bool:
    """Remove a file unless it was used or written anew since it was looked at."""
    if _stored(file.path) != file:
        return False
    try:
        file.path.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"cannot remove {file.path}: {error.strerror}") from error
    return True


def _safe(key: str) -> str:
    return "".join(c for c in key if c.isalnum())
