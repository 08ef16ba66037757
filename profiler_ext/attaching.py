"""Attributes an existing trace, recorded without this package, from the records in the store.

The marker of a compiled graph's call carries the graph's cache key, by which the store finds its
record. Lines are those of the run that stored the record; the evidence says so.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from pathlib import Path

from profiler_ext import errors, source_paths
from profiler_ext.attribution.enclosing import EnclosingRanges
from profiler_ext.attribution.graph_calls import find_calls
from profiler_ext.attribution.package_calls import package_marks
from profiler_ext.attribution.trace.launches import find_launches
from profiler_ext.attribution.trace.nesting import nest
from profiler_ext.kineto import names
from profiler_ext.kineto.reader import with_events
from profiler_ext.kineto.recording import with_valid_utf8
from profiler_ext.recall.lines import from_record
from profiler_ext.recall.provenance_lookup import GraphLookup, find_kernels, find_records
from profiler_ext.records import evidence, vocabulary
from profiler_ext.records.events import Events, Trace
from profiler_ext.records.provenance import Gap, GraphInstance, Provenance
from profiler_ext.records.recording import Recording, Settings
from profiler_ext.store import Store, from_bytes
from profiler_ext.store.packages import package_key, package_records

_FROM = "its record was found in the store by the key in the trace"


@dataclasses.dataclass(frozen=True, slots=True)
class Attached:
    """A recording with the graphs that the store has."""

    recording: Recording
    keys: int
    unknown: tuple[str, ...]  # keys of graphs without a record
    missing: tuple[str, ...]  # source files that the records name and that do not exist here


def attach(
    recording: Recording, store: Store, source_root: Path, packages: Iterable[Path] = ()
) -> Attached:
    """Add to a recording the graphs that it names, and the store or a package has.

    Args:
        packages: AOTInductor's packages, of which the process without capture marks no call.

    Raises:
        UsageError: The working folder was removed.
        StoreError: A package cannot be read, or carries no record.
    """
    try:
        root = os.path.realpath(source_root)
    except FileNotFoundError as error:
        raise errors.UsageError("the working folder was removed; give --root DIR") from error
    in_packages = _records(packages)
    if marks := package_marks(recording.trace.events, in_packages):
        recording = dataclasses.replace(recording, trace=with_events(recording.trace, marks))
    keys = dict.fromkeys(map(names.graph_key, recording.trace.events.name.strings))
    wanted = [key for key in keys if key is not None]
    known = {graph.key for graph in recording.graphs if graph.is_known}
    compile_ids = _compile_ids(recording.trace.events)
    gaps = list(recording.gaps)
    graphs = list(recording.graphs)
    for key in wanted:
        records, unreadable = ((), ()) if key in known else find_records(store, key)
        if key in in_packages:
            records = (in_packages[key],)
        gaps += unreadable
        for record in records:
            graphs.append(_instance(len(graphs), key, compile_ids.get(key), record, root))
    graphs = [_with_kernels(graph, store, recording.trace, gaps) for graph in graphs]
    attached = dataclasses.replace(
        recording,
        graphs=tuple(graphs),
        gaps=tuple(gaps),
        settings=_settings(recording.settings, root, graphs),
    )
    known = {graph.key for graph in graphs if graph.is_known}
    unknown = tuple(key for key in wanted if key not in known)
    return Attached(with_valid_utf8(attached), len(wanted), unknown, _missing(graphs))


def _records(packages: Iterable[Path]) -> dict[str, Provenance]:
    """Return the records in packages by their keys; raises StoreError."""
    records: dict[str, Provenance] = {}
    for package in packages:
        known = package_records(package)
        if not known:
            raise errors.StoreError(
                f"{package} carries no record; compile it with `PROFILER_EXT=1` in the environment"
            )
        records |= {package_key(data): from_bytes(data) for data in known.values()}
    return records


def _settings(settings: Settings, root: str, graphs: list[GraphInstance]) -> Settings:
    return dataclasses.replace(
        settings,
        user_roots=settings.user_roots or (root,),
        library_roots=settings.library_roots or source_paths.library_roots(),
        torch_version=settings.torch_version
        or next((graph.record.torch_version for graph in graphs if graph.is_known), ""),
    )


def _compile_ids(events: Events) -> dict[str, str]:
    """Return the compile id of each graph that was called in one compiled frame only."""
    nesting = nest(events)
    ids_by_key: dict[str, set[str | None]] = {}
    for call in find_calls(EnclosingRanges(events, nesting), find_launches(events, nesting)):
        if call.key is not None:
            ids_by_key.setdefault(call.key, set()).add(call.compile_id)
    single = {key: ids.pop() for key, ids in ids_by_key.items() if len(ids) == 1}
    return {key: compile_id for key, compile_id in single.items() if compile_id is not None}


def _instance(
    index: int, key: str, compile_id: str | None, record: Provenance, root: str
) -> GraphInstance:
    instance = GraphInstance(
        index=index,
        key=key,
        compile_id=compile_id,
        is_backward=record.is_backward,
        cache_state=vocabulary.CacheState.ATTACHED,
        cache_detail=_FROM,
        compile_ns=0,
        output_module=None,
    )
    nodes = from_record(record.nodes, evidence.LineEvidence.ATTACHED, root)
    return GraphLookup(record, nodes).into(instance, root)


def _missing(graphs: list[GraphInstance]) -> tuple[str, ...]:
    attached = [graph for graph in graphs if graph.cache_state is vocabulary.CacheState.ATTACHED]
    frames = (frame for graph in attached for node in graph.nodes for frame in node.lineage.stack)
    files = dict.fromkeys(frame.file for frame in frames)
    return tuple(file for file in files if not Path(file).is_file())


def _with_kernels(
    graph: GraphInstance, store: Store, trace: Trace, gaps: list[Gap]
) -> GraphInstance:
    """Add what a run recorded of the graph's library calls, which a replay alone does not show."""
    if graph.library_kernels or graph.stored_kernels:
        return graph
    devices = (device.name for device in trace.devices)
    kernels, unreadable = find_kernels(store, graph.key, graph.record, devices)
    gaps += unreadable
    return dataclasses.replace(graph, stored_kernels=kernels)
