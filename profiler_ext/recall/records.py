"""Owns which records there are of a graph: the one that rides the artifact, and the store's.

The store has one for each Dynamo graph that shares the cache entry. What cannot be read, and what
cannot be kept, is a gap: it harms nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from profiler_ext.errors import OutputError, StoreError
from profiler_ext.records import Gap, GapReason, LibraryKernels, Provenance
from profiler_ext.store import (
    EntryState,
    Store,
    from_bytes,
    is_current,
    state_of,
    work_digest,
)

Gaps = tuple[Gap, ...]


class StoredRecords:
    """The records of a graph, the best first; each is read when it is asked for.

    Attributes:
        gaps: those that could not be read, of what was asked for.
    """

    def __init__(self, store: Store, key: str | None, on_artifact: bytes | None = None) -> None:
        """Read nothing yet.

        Args:
            store: where records are kept.
            key: the graph's cache key, ``None`` when bypassed.
            riding: the record on its artifact, if there is one.
        """
        self.gaps: Gaps = ()
        self._read: list[Provenance] = []
        self._unread = _copies(store, key, on_artifact)

    def __iter__(self) -> Iterator[Provenance]:
        """Return the records, those that were read before first."""
        yield from self._read
        for read in self._unread:
            try:
                record = read()
            except StoreError as error:
                self.gaps = (*self.gaps, _unreadable(error))
                continue
            self._read.append(record)
            yield record


def find_records(store: Store, key: str) -> tuple[tuple[Provenance, ...], Gaps]:
    """Return the records that the store has of a graph, and those that cannot be read.

    Args:
        store: where records are kept.
        key: the graph's cache key.
    """
    stored = StoredRecords(store, key)
    return tuple(stored), stored.gaps


def has_record(store: Store, key: str | None, on_artifact: bytes | None) -> bool:
    """Tell whether a cached artifact has a record: it carries one, or the store has it.

    Args:
        store: where records are kept.
        key: the graph's FX graph cache key, ``None`` when bypassed.
        riding: the record that the artifact carries, if it does.
    """
    if on_artifact is not None and is_current(on_artifact):
        return True
    paths = [] if key is None else store.find(key)
    return any(state_of(path.read_bytes()) is EntryState.OK for path in paths)


def keep_record(
    store: Store, key: str | None, dynamo_digest: str | None, data: Callable[[], bytes]
) -> Gaps:
    """Put a record into the store, unless it is there.

    Args:
        store: where records are kept.
        key: the graph's cache key, ``None`` when bypassed: then it is not kept.
        dynamo_digest: the Dynamo graph that it is of, if that is known.
        data: makes its bytes.

    Returns:
        The gap where it cannot be stored; empty otherwise.
    """
    if key is None:
        return ()
    try:
        if not store.holds(key, dynamo_digest):
            store.put(key, dynamo_digest, data())
    except (OutputError, StoreError) as error:
        return (Gap(GapReason.RECORD_NOT_STORED, f"provenance was not stored: {error}"),)
    return ()


def find_kernels(
    store: Store,
    key: str | None,
    provenance: Provenance,
    devices: Iterable[str],
    chosen_by: str | None = None,
) -> tuple[LibraryKernels, Gaps]:
    """Return what an earlier run learnt of a graph's library calls, or why it cannot be read.

    Args:
        store: where it is kept.
        key: the graph's cache key, ``None`` when bypassed.
        provenance: the graph's record.
        devices: names of the devices that the graph may have run on.
        chosen_by: names what libraries choose by; ``None`` where nobody knows.
    """
    if not provenance.calls_libraries:
        return (), ()
    digest, gaps = work_digest(key, provenance), list[Gap]()
    for device in dict.fromkeys(devices):
        try:
            if kernels := store.kernels(digest, device, chosen_by):
                return kernels, tuple(gaps)
        except StoreError as error:
            gaps.append(_unreadable(error))
    return (), tuple(gaps)


def _copies(
    store: Store, key: str | None, on_artifact: bytes | None
) -> Iterator[Callable[[], Provenance]]:
    if on_artifact is not None:
        yield partial(_from_artifact, on_artifact, key)
    yield from (partial(store.read, path) for path in ([] if key is None else store.find(key)))


def _from_artifact(data: bytes, key: str | None) -> Provenance:
    try:
        return from_bytes(data)
    except StoreError as error:
        raise StoreError(f"the record on the cached artifact {key}: {error}") from error


def _unreadable(error: StoreError) -> Gap:
    return Gap(GapReason.RECORD_UNREADABLE, str(error))
