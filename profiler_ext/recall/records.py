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
    to_bytes,
    work_digest,
)

Gaps = tuple[Gap, ...]


def find_records(
    store: Store, key: str | None, riding: bytes | None = None
) -> tuple[tuple[Provenance, ...], Gaps]:
    """Return the records of a graph, the best first, and those that cannot be read.

    Args:
        store: where records are kept.
        key: the graph's cache key, ``None`` when bypassed.
        riding: the record on its artifact, if there is one.
    """
    records, gaps = list[Provenance](), list[Gap]()
    for read in _copies(store, key, riding):
        try:
            records.append(read())
        except StoreError as error:
            gaps.append(_unreadable(error))
    return tuple(records), tuple(gaps)


def has_record(store: Store, key: str | None, riding: bytes | None) -> bool:
    """Tell whether a cached artifact has a record: it carries one, or the store has it.

    Args:
        store: where records are kept.
        key: the graph's FX graph cache key, ``None`` when bypassed.
        riding: the record that the artifact carries, if it does.
    """
    if riding is not None and is_current(riding):
        return True
    paths = [] if key is None else store.find(key)
    return any(state_of(path.read_bytes()) is EntryState.OK for path in paths)


def keep_record(
    store: Store, key: str | None, provenance: Provenance, data: bytes | None = None
) -> Gaps:
    """Put a record into the store, unless it is there.

    Args:
        store: where records are kept.
        key: the graph's cache key, ``None`` when bypassed: then it is not kept.
        provenance: the record.
        data: its bytes, where they are known.

    Returns:
        The gap where it cannot be stored; empty otherwise.
    """
    if key is None:
        return ()
    try:
        if not store.holds(key, provenance.dynamo_digest):
            store.put(key, provenance.dynamo_digest, data or to_bytes(provenance))
    except (OutputError, StoreError) as error:
        return (Gap(GapReason.RECORD_NOT_STORED, f"provenance was not stored: {error}"),)
    return ()


def find_kernels(
    store: Store, provenance: Provenance, devices: Iterable[str]
) -> tuple[LibraryKernels, Gaps]:
    """Return what an earlier run learnt of a graph's library calls, or why it cannot be read.

    Args:
        store: where it is kept.
        provenance: the graph's record.
        devices: names of the devices that the graph may have run on.
    """
    if not provenance.calls_libraries:
        return (), ()
    digest, gaps = work_digest(provenance), list[Gap]()
    for device in dict.fromkeys(devices):
        try:
            if kernels := store.kernels(digest, device):
                return kernels, tuple(gaps)
        except StoreError as error:
            gaps.append(_unreadable(error))
    return (), tuple(gaps)


def _copies(
    store: Store, key: str | None, riding: bytes | None
) -> Iterator[Callable[[], Provenance]]:
    if riding is not None:
        yield partial(_riding, riding, key)
    yield from (partial(store.read, path) for path in ([] if key is None else store.find(key)))


def _riding(data: bytes, key: str | None) -> Provenance:
    try:
        return from_bytes(data)
    except StoreError as error:
        raise StoreError(f"the record on the cached artifact {key}: {error}") from error


def _unreadable(error: StoreError) -> Gap:
    return Gap(GapReason.RECORD_UNREADABLE, str(error))
