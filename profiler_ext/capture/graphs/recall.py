"""Owns which provenance an artifact has, and so which truth its lines come from.

Best first: the compile that was just seen; the record that rides the artifact; the copy in
the store, of which there is one for each Dynamo graph that shares the cache entry.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from profiler_ext.capture.graphs import instances
from profiler_ext.capture.graphs.compiles import Compiles, InnerCompile
from profiler_ext.capture.graphs.correspondence import bound
from profiler_ext.capture.graphs.sealing import compilation_of
from profiler_ext.capture.graphs.uncaptured import told_afresh, told_lines, told_provenance
from profiler_ext.capture.lineage.compiled_autograd import all_led
from profiler_ext.capture.nodes.fx_nodes import describe_nodes, printed_frames
from profiler_ext.capture.nodes.inputs import INPUT, describe_inputs
from profiler_ext.capture.nodes.nested import describe_nested, nested_nodes
from profiler_ext.capture.nodes.regions import Region
from profiler_ext.capture.traces.dynamo_graphs import Sourced
from profiler_ext.errors import OutputError, StoreError
from profiler_ext.isolation.guard import Guard
from profiler_ext.records import Gap, GapReason, Provenance
from profiler_ext.store import Store, from_bytes, to_bytes, with_digest
from profiler_ext.torch_compat import inductor, inputs, process

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


@dataclass(frozen=True, slots=True)
class Recalled:
    """What is known of an artifact: its record, its nodes with their lines, what is missing."""

    provenance: Provenance | None
    nodes: tuple[Sourced, ...] = ()
    gaps: tuple[Gap, ...] = ()


class Recall:
    """Finds the provenance of artifacts, and keeps in the store what a later process needs."""

    def __init__(self, compiles: Compiles, store: Callable[[], Store], guard: Guard) -> None:
        """Use what ``compiles`` saw, what failed, and the store of the cache folder in force."""
        self._guard = guard
        self._compiles = compiles
        self._store = store

    def recall(
        self, artifact: Any, key: str | None, inner: InnerCompile | None, *, is_backward: bool
    ) -> Recalled:
        """Return what is known of an artifact that has become ready.

        Args:
            artifact: the ``CompiledFxGraph``.
            key: its FX graph cache key, ``None`` when bypassed.
            inner: the compile around it; ``None`` on an AOTAutograd hit.
            is_backward: it runs as a backward graph.
        """
        known, dynamo = self._recall(artifact, key, inner, is_backward), self._compiles.dynamo
        if dynamo is None or not dynamo.origins:
            return known
        return dataclasses.replace(known, nodes=all_led(known.nodes, dynamo.origins))

    def _recall(
        self, artifact: Any, key: str | None, inner: InnerCompile | None, is_backward: bool
    ) -> Recalled:
        if inner is not None and inner.sealed is not None:
            gaps = self._keep(key, inner.sealed.provenance, inner.sealed.data)
            nodes = instances.compiled_here(inner.sealed.provenance.nodes)
            return Recalled(inner.sealed.provenance, nodes, gaps)
        if inner is not None and inner.is_compiled:
            return Recalled(None, gaps=(_NOT_SEALED,))
        known, gaps = self._known(artifact, key)
        if not known:
            missing = _COMPILED_IN_CHILD if inductor.compiles_in_child() else _NOT_CAPTURED
            return self._told(artifact, inner, is_backward, (*gaps, missing))
        if inner is not None:
            return self._refreshed(key, known[0], inner)
        if self._compiles.region is not None:
            return self._of_region(known[0], self._compiles.region)
        return self._from_source(known, gaps)

    def _told(
        self, artifact: Any, inner: InnerCompile | None, is_backward: bool, gaps: tuple[Gap, ...]
    ) -> Recalled:
        """An entry that was made without capture: what its generated code tells."""
        try:
            told = told_provenance(
                inductor.wrapper_source(artifact) or "",
                inductor.printed_graph(artifact) or "",
                is_backward=is_backward,
                is_inference=inductor.artifact_is_inference(artifact),
                torch_version=process.version(),
            )
        except (LookupError, ValueError) as error:  # a text that no known torch writes
            strange = Gap(
                GapReason.RECORD_UNREADABLE, f"generated code was not understood: {error!r}"
            )
            return Recalled(None, gaps=(*gaps, strange))
        if told is None:
            return Recalled(None, gaps=gaps)
        nodes = told_lines(told.nodes, self._compiles.dynamo, is_backward=is_backward)
        if inner is not None:
            fresh = describe_nodes(inner.gm.graph.nodes, compilation_of(self._compiles, inner.gm))
            nodes = told_afresh(told.nodes, nodes, fresh, printed_frames(inner.gm.graph.nodes))
        return Recalled(told, nodes, gaps)

    def _known(
        self, artifact: Any, key: str | None
    ) -> tuple[tuple[Provenance, ...], tuple[Gap, ...]]:
        """The riding record first, then the store's; one that cannot be read is a gap."""
        found: list[Provenance] = []
        gaps: list[Gap] = []
        for read in self._copies(artifact, key):
            try:
                found.append(read())
            except StoreError as error:
                gaps.append(Gap(GapReason.RECORD_UNREADABLE, str(error)))
        return tuple(found), tuple(gaps)

    def _copies(self, artifact: Any, key: str | None) -> Iterator[Callable[[], Provenance]]:
        if (riding := getattr(artifact, inductor.RIDING, None)) is not None:
            yield partial(_riding, riding, key)
        store = self._store()
        yield from (partial(store.read, path) for path in ([] if key is None else store.find(key)))

    def _refreshed(self, key: str | None, recorded: Provenance, inner: InnerCompile) -> Recalled:
        """An FX hit: this process traced the graph anew, so its metadata is the truth."""
        compilation = compilation_of(self._compiles, inner.gm)
        fresh = describe_nodes(inner.gm.graph.nodes, compilation)
        fresh += describe_nested(nested_nodes(inner.gm), compilation)
        if any(node.target == INPUT for node in recorded.nodes):
            fresh += describe_inputs(inputs.all_inputs(inner.gm), compilation)
        nodes = instances.from_fresh_graph(recorded.nodes, fresh)
        joint = compilation.joint_of(inner.gm.graph)
        here = dataclasses.replace(
            recorded, nodes=tuple(node for node, _ in nodes), joint=joint.id if joint else None
        )
        here = with_digest(bound(here, compilation.dynamo))
        gaps = self._keep(key, here, None)
        return Recalled(here, nodes, gaps)

    def _of_region(self, recorded: Provenance, region: Region) -> Recalled:
        """An AOTAutograd hit of a region: the graph around it was traced anew by this process."""
        nodes = instances.from_region(recorded.nodes, region.nodes)
        here = dataclasses.replace(
            recorded,
            nodes=tuple(node for node, _ in nodes),
            joint=region.graph.id or None,
            is_backward=region.half.is_backward,
            is_inference=not region.is_differentiated,
        )
        return Recalled(with_digest(bound(here, self._compiles.dynamo)), nodes)

    def _from_source(self, known: tuple[Provenance, ...], gaps: tuple[Gap, ...]) -> Recalled:
        """An AOTAutograd hit: only the Dynamo graph is fresh, if even that."""
        dynamo = self._compiles.dynamo
        if dynamo is None:
            return Recalled(known[0], instances.from_record(known[0].nodes), gaps)
        same = next((p for p in known if p.dynamo_digest == dynamo.digest), None)
        if same is not None:
            return Recalled(same, instances.from_dynamo(same, dynamo), gaps)
        return Recalled(known[0], instances.stale(known[0].nodes), (*gaps, _OTHER_SOURCE))

    def _keep(self, key: str | None, provenance: Provenance, data: bytes | None) -> tuple[Gap, ...]:
        """Put a record into the store; a folder that cannot be written harms nobody."""
        if key is None or self._guard.has_failed(process.current_compile_id()):
            return ()
        store = self._store()
        try:
            if not store.holds(key, provenance.dynamo_digest):
                store.put(key, provenance.dynamo_digest, data or to_bytes(provenance))
        except (OutputError, StoreError) as error:
            return (Gap(GapReason.RECORD_NOT_STORED, f"provenance was not stored: {error}"),)
        return ()


def _riding(data: bytes, key: str | None) -> Provenance:
    try:
        return from_bytes(data)
    except StoreError as error:
        raise StoreError(f"the record on the cached artifact {key}: {error}") from error
