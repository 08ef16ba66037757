"""The description of a stored record in a list of the store."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_ext import errors, file_io
from profiler_ext.records.provenance import Provenance
from profiler_ext.store.encoding import INFLATED_LIMIT_BYTES, EntryState, from_bytes, state_of
from profiler_ext.store.folder import StoredFile


@dataclass(frozen=True, slots=True)
class Listed:
    """A record of the store, as listed."""

    key: str
    state: EntryState
    graph: str | None  # ``forward``, ``backward`` or ``inference``; ``None`` if unreadable
    source: str | None  # the first source line, ``model.py:12``
    nodes: int | None
    kernels: tuple[str, ...]  # that its call sites launch
    call_sites: int | None
    torch_version: str | None
    used_s: float  # since 1970
    size_bytes: int
    path: str


def describe(file: StoredFile) -> Listed:
    """Return the description of a stored record, perhaps a damaged one."""
    state, record = _read(file)
    sites = record.call_sites if record else ()
    graph = "backward" if record and record.is_backward else "forward"
    if record and record.is_inference:
        graph = "inference"
    return Listed(
        key=file.key,
        state=state,
        graph=graph if record else None,
        source=_source(record) if record else None,
        nodes=len(record.nodes) if record else None,
        kernels=tuple(dict.fromkeys(site.kernel for site in sites)),
        call_sites=len(sites) if record else None,
        torch_version=record.torch_version if record else None,
        used_s=file.used_ns / 1e9,
        size_bytes=file.size_bytes,
        path=str(file.path),
    )


def _read(file: StoredFile) -> tuple[EntryState, Provenance | None]:
    try:
        data = file_io.read_regular(file.path, INFLATED_LIMIT_BYTES)
    except OSError:
        return EntryState.DAMAGED, None
    try:
        return EntryState.OK, from_bytes(data)
    except errors.StoreError:
        return state_of(data), None


def _source(record: Provenance) -> str | None:
    stacks = (node.lineage.stack for node in record.nodes)
    frames = (stack[-1] for stack in stacks if stack)
    return next((f"{frame.file}:{frame.line}" for frame in frames), None)
