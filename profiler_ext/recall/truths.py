"""Owns which truth is known of a graph that has become ready, and so where its lines come from.

Best first: the compile that this process just saw; the record that rides the artifact; the copy in
the store, of which there is one for each Dynamo graph that shares the cache entry; the text of the
artifact. A trace that was recorded without us has the store's alone (``attaching.py``).
torch's own provenance is empty where the entry was made without it:
https://github.com/pytorch/pytorch/issues/167699.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from profiler_ext.recall import lines
from profiler_ext.recall.correspondence import bound
from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.recall.generated_code import GeneratedCode, told_graph
from profiler_ext.recall.records import find_records, keep_record
from profiler_ext.records import FxNode, Gap, GapReason, GraphInstance, Provenance
from profiler_ext.store import Store, with_digest

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
"""Target of the nodes that are a graph's inputs."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """The provenance of a graph that was just compiled, and its bytes."""

    provenance: Provenance
    data: bytes


@dataclass(frozen=True, slots=True)
class TracedGraph:
    """The graph that this process traced and a cache had the code of.

    Attributes:
        nodes: its nodes; of a region those of the graph around it.
        joint: id of the joint graph that it was cut from.
        is_region: it was cut from another graph, to be compiled by itself.
        is_backward: of a region, that it is of a backward graph.
        is_inference: of a region, that no gradient was asked for.
    """

    nodes: tuple[FxNode, ...]
    joint: str | None
    is_region: bool = False
    is_backward: bool = False
    is_inference: bool = False


@dataclass(frozen=True, slots=True)
class ReadyArtifact:
    """What this process has seen of an artifact that has become ready.

    Attributes:
        key: its FX graph cache key, ``None`` when bypassed.
        code: its text.
        riding: the record that it carries, if it does.
        sealed: the record of its compile, where that was seen.
        is_compiled: it was compiled here, so that only ``sealed`` can tell of it.
        is_compiled_in_child: torch compiles in a child process.
        is_kept: what is known of it may be kept in the store.
        dynamo: the Dynamo graph that it is of, if that was seen.
        traced: describes the graph that was traced for it, with its inputs if asked; ``None``
            where none was.
    """

    key: str | None
    code: Callable[[], GeneratedCode]
    riding: bytes | None = None
    sealed: Sealed | None = None
    is_compiled: bool = False
    is_compiled_in_child: bool = False
    is_kept: bool = True
    dynamo: DynamoGraph | None = None
    traced: Callable[[bool], TracedGraph] | None = None


@dataclass(frozen=True, slots=True)
class Recalled:
    """What is known of a graph: its record, its nodes with their lines, what is missing."""

    provenance: Provenance | None
    nodes: tuple[FxNode, ...] = ()
    gaps: tuple[Gap, ...] = ()

    def into(self, instance: GraphInstance, source_root: str | None = None) -> GraphInstance:
        """Return a graph instance with what is known of its graph.

        Args:
            instance: what is known of the artifact.
            source_root: as :func:`profiler_ext.recall.lines.from_record` has it.
        """
        record = self.provenance
        return dataclasses.replace(
            instance,
            is_backward=instance.is_backward or bool(record and record.is_backward),
            provenance=record,
            nodes=tuple(lines.expanded(node, source_root) for node in self.nodes),
            runs_optimizer=any(node.lineage.is_of_optimizer for node in self.nodes),
            gaps=(*self.gaps, *instance.gaps),
        )


def recall(artifact: ReadyArtifact, store: Store) -> Recalled:
    """Return what is known of an artifact's graph, by the best truth that there is.

    Args:
        artifact: what this process has seen of it.
        store: where records are kept; what is new is put there.
    """
    if artifact.sealed is not None:
        record, data = artifact.sealed.provenance, artifact.sealed.data
        gaps = keep_record(store, artifact.key, record, data) if artifact.is_kept else ()
        return Recalled(record, lines.compiled_here(record.nodes), gaps)
    if artifact.is_compiled:
        return Recalled(None, gaps=(_NOT_SEALED,))
    known, gaps = find_records(store, artifact.key, artifact.riding)
    if not known:
        missing = _COMPILED_IN_CHILD if artifact.is_compiled_in_child else _NOT_CAPTURED
        return _told(artifact, (*gaps, missing))
    if artifact.traced is not None:
        return _traced(artifact, known[0], store)
    return _from_source(artifact.dynamo, known, gaps)


def _told(artifact: ReadyArtifact, gaps: tuple[Gap, ...]) -> Recalled:
    """An entry that was made without capture: what its generated code tells."""
    record, nodes = told_graph(artifact.code(), artifact.dynamo)
    return Recalled(record, nodes, gaps)


def _traced(artifact: ReadyArtifact, recorded: Provenance, store: Store) -> Recalled:
    """This process traced the graph anew, so its metadata is the truth."""
    assert artifact.traced is not None
    traced = artifact.traced(any(node.target == INPUT for node in recorded.nodes))
    join = lines.from_region if traced.is_region else lines.from_fresh_graph
    nodes = join(recorded.nodes, traced.nodes)
    here = dataclasses.replace(recorded, nodes=lines.as_recorded(nodes), joint=traced.joint)
    if traced.is_region:
        here = dataclasses.replace(
            here, is_backward=traced.is_backward, is_inference=traced.is_inference
        )
    here = with_digest(bound(here, artifact.dynamo))
    is_kept = artifact.is_kept and not traced.is_region
    return Recalled(here, nodes, keep_record(store, artifact.key, here) if is_kept else ())


def _from_source(
    dynamo: DynamoGraph | None, known: tuple[Provenance, ...], gaps: tuple[Gap, ...]
) -> Recalled:
    """Only the Dynamo graph was traced anew, if even that."""
    if dynamo is None:
        return Recalled(known[0], lines.from_record(known[0].nodes), gaps)
    same = next((p for p in known if p.dynamo_digest == dynamo.digest), None)
    if same is not None:
        return Recalled(same, lines.from_dynamo(same, dynamo), gaps)
    return Recalled(known[0], lines.stale(known[0].nodes), (*gaps, _OTHER_SOURCE))
