"""Looks up the provenance of a graph that is ready to run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from profiler_ext.errors import OutputError, StoreError
from profiler_ext.recall import dynamo_graph, generated_code, lines
from profiler_ext.recall.lines import bound
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.lineage import OPTIMIZER, is_of_optimizer
from profiler_ext.records.provenance import FxNode, Gap, GraphInstance, LibraryKernels, Provenance
from profiler_ext.store import (
    EntryState,
    Store,
    from_bytes,
    from_own_bytes,
    has_text,
    is_current,
    state_of,
    to_bytes,
    with_digest,
    work_digest,
)

Gaps = tuple[Gap, ...]


class StoredRecords:
    """The records of a graph, the best first, read on demand; unreadable ones become gaps."""

    def __init__(self, store: Store, key: str | None, on_artifact: bytes | None = None) -> None:
        self.gaps: Gaps = ()
        self._read: list[Provenance] = []
        self._unread = _copies(store, key, on_artifact)

    def __iter__(self) -> Iterator[Provenance]:
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
    """Return the store's records of a graph, and gaps for unreadable ones."""
    stored = StoredRecords(store, key)
    return tuple(stored), stored.gaps


def has_record(store: Store, key: str | None, on_artifact: bytes | None) -> bool:
    """Tell whether a cached artifact has a record: on itself, or in the store."""
    if on_artifact is not None and is_current(on_artifact):
        return True
    paths = [] if key is None else store.find(key)
    return any(state_of(path.read_bytes()) is EntryState.OK for path in paths)


def keep_record(
    store: Store, key: str | None, dynamo_digest: str | None, data: Callable[[], bytes]
) -> Gaps:
    """Put a record into the store, unless it is there or the cache was bypassed."""
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
    """Return the stored kernels of a graph's library calls, and gaps for unreadable ones."""
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


_NOT_CAPTURED = Gap(
    GapReason.GRAPH_NOT_CAPTURED,
    "the cached artifact was compiled without capture; compile it once more with "
    "`profiler-ext run --recompile`, or `profiler_ext.enable(recompile=True)` at the top",
)
_COMPILED_IN_CHILD = Gap(
    GapReason.COMPILED_IN_CHILD,
    "torch compiles graphs in a child process, where capture is not; unset "
    "TORCHINDUCTOR_FX_COMPILE_MODE and compile it once more with `profiler-ext run --recompile`",
)
_NOT_SEALED = Gap(
    GapReason.CAPTURE_FAILED, "a hook failed while the graph was compiled; see the gaps"
)
_OTHER_SOURCE = Gap(
    GapReason.STALE_SOURCE_LINE,
    "the cached artifact was compiled from other source that gives the same graph",
)
INPUT = "placeholder"
"""The target of a graph's inputs."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """The record of a graph that was just compiled, as bytes."""

    data: bytes  # on the artifact as well
    dynamo_digest: str | None


@dataclass(frozen=True, slots=True)
class TracedGraph:
    """The graph that this process traced, and whose code a cache had."""

    nodes: tuple[FxNode, ...]  # of a region, those of the outer graph
    joint: str | None  # the joint graph that it was cut from
    is_region: bool = False  # compiled separately
    is_backward: bool = False  # if it is a region
    is_inference: bool = False  # if it is a region
    parameter_inputs: tuple[tuple[int, int, str], ...] | None = None  # of a part, as in its record


@dataclass(frozen=True, slots=True)
class ReadyArtifact:
    """What this process knows of an artifact that has become ready."""

    key: str | None  # of the FX graph cache; ``None`` if bypassed
    code: Callable[[], generated_code.GeneratedCode]
    on_artifact: bytes | None = None  # the record on it
    sealed: Sealed | None = None  # the record of its compile here
    is_compiled: bool = False  # here, so that only ``sealed`` counts
    is_compiled_in_child: bool = False
    is_kept: bool = True  # its record may be stored
    dynamo: dynamo_graph.DynamoGraph | None = None
    traced: TracedGraph | None = None  # for it, with its inputs

    @property
    def is_part(self) -> bool:
        """Whether it is a separately compiled part of a Dynamo graph."""
        return self.dynamo is not None and self.dynamo.parameter_inputs is not None

    @property
    def has_no_source(self) -> bool:
        """Whether nothing of this process's source is known, so that files decide on lines."""
        return self.sealed is None and self.traced is None and self.dynamo is None

    @property
    def may_name_optimizer(self) -> bool:
        """Whether ``torch.optim`` may be in its stacks."""
        sealed = self.sealed.data if self.sealed else self.on_artifact
        stacks = [each.stack for each in self.dynamo.places] if self.dynamo else []
        stacks += [node.lineage.stack for node in self.traced.nodes] if self.traced else []
        if any(is_of_optimizer(stack) for stack in stacks):
            return True
        return sealed is None or has_text(sealed, OPTIMIZER)


@dataclass(frozen=True, slots=True)
class GraphLookup:
    """What is known of a graph: its record, its nodes with their lines, its gaps."""

    provenance: Provenance | None
    nodes: tuple[FxNode, ...] = ()
    gaps: tuple[Gap, ...] = ()

    def into(self, instance: GraphInstance, source_root: str | None = None) -> GraphInstance:
        """Return a graph instance with what is known of its graph."""
        record = self.provenance
        return dataclasses.replace(
            instance,
            is_backward=instance.is_backward or bool(record and record.is_backward),
            provenance=record,
            nodes=tuple(lines.expanded(node, source_root) for node in self.nodes),
            runs_optimizer=any(node.lineage.is_of_optimizer for node in self.nodes),
            gaps=(*self.gaps, *instance.gaps),
        )


def store_sealed(artifact: ReadyArtifact, store: Store) -> Gaps:
    """Store the record of a graph that was compiled here; return gaps if that fails."""
    sealed = artifact.sealed
    if sealed is None or not artifact.is_kept:
        return ()
    return keep_record(store, artifact.key, sealed.dynamo_digest, lambda: sealed.data)


def can_defer_lookup(artifact: ReadyArtifact, store: Store) -> bool:
    """Tell whether an artifact's graph can be looked up later as well as now."""
    # Not if its lines depend on files, which may change, or its record is still to be stored.
    if artifact.traced is None or artifact.traced.is_region or not artifact.is_kept:
        return not artifact.has_no_source
    digest = artifact.dynamo.digest if artifact.dynamo else None
    return artifact.key is None or store.has_file(artifact.key, digest)


def recall(artifact: ReadyArtifact, store: Store) -> GraphLookup:
    """Return what is known of an artifact's graph, from the best source.

    Best first: this process's compile, the record on the artifact, the store's (one for each Dynamo
    graph that shares the cache entry), the artifact's text. torch's own provenance is missing if
    the entry was made without it: https://github.com/pytorch/pytorch/issues/167699.
    """
    if artifact.sealed is not None:
        record = from_own_bytes(artifact.sealed.data)
        return GraphLookup(record, lines.compiled_here(record.nodes))
    if artifact.is_compiled:
        return GraphLookup(None, gaps=(_NOT_SEALED,))
    stored_records = StoredRecords(store, artifact.key, artifact.on_artifact)
    first = next(iter(stored_records), None)
    if first is None:
        # An entry made without capture: its generated code is left.
        missing = _COMPILED_IN_CHILD if artifact.is_compiled_in_child else _NOT_CAPTURED
        known = generated_code.graph_from_code(artifact.code(), artifact.dynamo)
        return GraphLookup(*known, (*stored_records.gaps, missing))
    if artifact.traced is not None:
        return _traced(artifact, artifact.traced, first, store)
    return _from_source(artifact.dynamo, first, stored_records)


def _traced(
    artifact: ReadyArtifact, traced: TracedGraph, recorded: Provenance, store: Store
) -> GraphLookup:
    """This process traced the graph again, so its metadata counts."""
    fresh = traced.nodes
    if not traced.is_region and not any(node.target == INPUT for node in recorded.nodes):
        fresh = tuple(node for node in fresh if node.target != INPUT)
    join = lines.from_region if traced.is_region else lines.from_fresh_graph
    nodes = join(recorded.nodes, fresh)
    here = dataclasses.replace(
        recorded,
        nodes=lines.as_recorded(nodes),
        joint=traced.joint,
        parameter_inputs=traced.parameter_inputs,
    )
    if traced.is_region:
        here = dataclasses.replace(
            here, is_backward=traced.is_backward, is_inference=traced.is_inference
        )
    here = with_digest(bound(here, artifact.dynamo))
    if not artifact.is_kept or traced.is_region:
        return GraphLookup(here, nodes)
    gaps = keep_record(store, artifact.key, here.dynamo_digest, lambda: to_bytes(here))
    return GraphLookup(here, nodes, gaps)


def _from_source(
    dynamo: dynamo_graph.DynamoGraph | None, first: Provenance, stored_records: StoredRecords
) -> GraphLookup:
    """Only the Dynamo graph was traced again, if even that."""
    if dynamo is None:
        return GraphLookup(first, lines.from_record(first.nodes), stored_records.gaps)
    known = tuple(stored_records)  # all, for the gaps
    same = next((record for record in known if record.dynamo_digest == dynamo.digest), None)
    if same is not None:
        here = dataclasses.replace(same, parameter_inputs=_parameter_inputs(same, dynamo))
        return GraphLookup(here, lines.from_dynamo(same, dynamo), stored_records.gaps)
    return GraphLookup(first, lines.stale(first.nodes), (*stored_records.gaps, _OTHER_SOURCE))


def _parameter_inputs(
    recorded: Provenance, dynamo: dynamo_graph.DynamoGraph
) -> tuple[tuple[int, int, str], ...] | None:
    """Return this process's paths of the inputs recorded for an equal part."""
    if recorded.parameter_inputs is None or dynamo.parameter_inputs is None:
        return recorded.parameter_inputs
    held = dynamo.parameter_inputs
    return tuple((at, of, held[of]) for at, of, _ in recorded.parameter_inputs if of in held)
