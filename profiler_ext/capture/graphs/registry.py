"""The graph instances of this process, made as artifacts become ready, and their cache states."""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from weakref import WeakSet

from profiler_ext.capture.graphs import fx_nodes, library_calls, sealing
from profiler_ext.capture.graphs.compiles import Compiles, InnerCompile
from profiler_ext.capture.graphs.registered_graph import CallTarget, RegisteredGraph
from profiler_ext.isolation.guard import Guard
from profiler_ext.isolation.hook_protocols import identity
from profiler_ext.isolation.locks import Lock
from profiler_ext.recall.generated_code import GeneratedCode
from profiler_ext.recall.provenance_lookup import ReadyArtifact, TracedGraph, has_record
from profiler_ext.recall.wrapper_calls import boundary_names
from profiler_ext.records.provenance import GraphInstance, LibraryKernels, PassedInput
from profiler_ext.records.vocabulary import CacheState
from profiler_ext.store import is_current
from profiler_ext.torch_compat import calling, inductor, inputs, process


def cache_state(
    inner: InnerCompile | None, key: str | None, autograd_bypass: str | None
) -> tuple[CacheState, str]:
    """Return how a graph was made, and what each cache did, with torch's reason for a bypass."""
    if inner is None:  # or a saved artifact was loaded
        return CacheState.AOT_HIT, "AOTAutograd's cache: hit"
    state, fx_detail = _fx_state(inner, key)
    autograd_detail = "miss" if inductor.autograd_cache_enabled() else "off"
    if autograd_bypass:
        autograd_detail = f"bypass ({autograd_bypass})"
    return state, f"FX graph cache: {fx_detail}; AOTAutograd's cache: {autograd_detail}"


def is_compiled_in_child(inner: InnerCompile, key: str | None) -> bool:
    """Tell whether a graph is no cache hit, but was not compiled in this process."""
    if inner.is_compiled or not inductor.compiles_in_child():
        return False
    return key is None or inductor.cache_misses() > inner.misses


def _fx_state(inner: InnerCompile, key: str | None) -> tuple[CacheState, str]:
    if not inner.is_compiled and not is_compiled_in_child(inner, key):
        return CacheState.FX_HIT, "hit"
    if key is not None:
        return CacheState.MISS, "miss"
    if inner.bypass is not None:
        return CacheState.BYPASS, f"bypass ({inner.bypass})"
    return CacheState.BYPASS, "not asked" if inductor.caches_enabled() else "off"


def ready_artifact(
    compiles: Compiles, artifact: Any, *, is_backward: bool, is_kept: bool, may_have_record: bool
) -> ReadyArtifact:
    """Return what is known of an artifact that has become ready."""
    inner, on_artifact = compiles.inner, getattr(artifact, inductor.PROVENANCE_ATTRIBUTE, None)
    sealed = inner.sealed if inner else None
    has_record = sealed is not None or (on_artifact is not None and is_current(on_artifact))
    return ReadyArtifact(
        key=inductor.cache_key(artifact),
        code=_code_of(artifact, is_backward, has_record=has_record),
        on_artifact=on_artifact,
        sealed=sealed,
        is_compiled=inner is not None and inner.is_compiled,
        is_compiled_in_child=inductor.compiles_in_child(),
        is_kept=is_kept,
        # A backward's: what its forward was traced from.
        dynamo=compiles.traced_from(compiles.joint_of(inner.fingerprint) if inner else None),
        traced=_traced(compiles, inner) if may_have_record else None,
    )


def _code_of(artifact: Any, is_backward: bool, *, has_record: bool) -> Callable[[], GeneratedCode]:
    """Return a callable for an artifact's text; with a record, only while the artifact lives."""
    if not has_record:
        code = _code(artifact, is_backward)
        return lambda: code
    return partial(_code_if_alive, weakref.ref(artifact), is_backward)


def _code_if_alive(artifact: weakref.ref[Any], is_backward: bool) -> GeneratedCode:
    alive = artifact()
    if alive is None:
        return GeneratedCode("", "", is_backward, is_inference=False, torch_version="")
    return _code(alive, is_backward)


def _code(artifact: Any, is_backward: bool) -> GeneratedCode:
    return GeneratedCode(
        source=inductor.wrapper_source(artifact) or "",
        printed=inductor.printed_graph(artifact) or "",
        is_backward=is_backward,
        is_inference=inductor.artifact_is_inference(artifact),
        torch_version=process.version(),
    )


def _traced(compiles: Compiles, inner: InnerCompile | None) -> TracedGraph | None:
    """Describe the graph whose code a cache had; a compiled one is sealed instead."""
    if inner is not None:
        return None if inner.is_compiled or inner.sealed else _freshly_traced(compiles, inner)
    if (region := compiles.region) is None:
        return None
    return TracedGraph(
        nodes=region.nodes,
        joint=region.graph.id or None,
        is_region=True,
        is_backward=region.outer_graph.is_backward,
        is_inference=not region.is_differentiated,
    )


def _freshly_traced(compiles: Compiles, inner: InnerCompile) -> TracedGraph:
    compilation = sealing.compilation_of(compiles, inner.gm)
    nodes = fx_nodes.nodes_with_lineage(inner.gm.graph.nodes, compilation)
    nodes += fx_nodes.describe_nested(fx_nodes.nested_nodes(inner.gm), compilation)
    nodes += fx_nodes.describe_inputs(inputs.all_inputs(inner.gm), compilation)
    joint = compilation.joint_of(inner.gm.graph)
    held = fx_nodes.parameter_inputs(inputs.all_inputs(inner.gm), compiles.traced_from(joint))
    return TracedGraph(nodes, joint.id if joint else None, parameter_inputs=held)


_Boundary = tuple[tuple[str, ...], tuple[str | None, ...]]


def _passed_input(
    passing: inputs.Passing, given: tuple[str, ...], writer: _Boundary
) -> PassedInput | None:
    taken, returned = writer
    if passing.position >= len(given) or passing.output >= len(returned):
        return None
    name, output = given[passing.position], returned[passing.output]
    if output is None or output in taken:  # it was passed on as it was
        return None
    return PassedInput(name, passing.graph, output, passing.bytes)


CopiedInputs = tuple[tuple[str, ...], ...]
"""The inputs copied by each CUDA graph that one call recorded, in order."""

_MAX_COLLECTED = 16
"""Collected artifacts whose graphs are kept, so that a short run reports all of them."""


class Registry:
    """Makes a graph instance of each artifact that becomes ready in this process."""

    def __init__(self, compiles: Compiles, guard: Guard) -> None:
        self._compiles = compiles
        self._guard = guard
        self._lock = Lock()
        self._graphs: list[RegisteredGraph] = []
        self._by_artifact: dict[int, tuple[weakref.ref[Any], list[RegisteredGraph]]] = {}
        self._shared: set[int] = set()
        self.call_target: dict[int, CallTarget] = {}
        self._unprofiled = library_calls.UnprofiledGraphs()
        self._copied: dict[int, list[CopiedInputs]] = {}
        self._passed = inputs.PassedTensors()
        self._passings: dict[int, dict[inputs.Passing, None]] = {}
        self._called: dict[int, weakref.ref[Any]] = {}
        self._boundaries: dict[int, _Boundary] = {}
        self._collected: deque[tuple[int, list[RegisteredGraph]]] = deque()
        self._recordings: WeakSet[object] = WeakSet()

    @property
    def graphs(self) -> tuple[GraphInstance, ...]:
        """The graph instances so far, with their graphs' records."""
        self._guard.run("passed tensors", self._name_passed)
        return tuple(kept.instance for kept in tuple(self._graphs))

    @property
    def count(self) -> int:
        """The number of graph instances."""
        return len(self._graphs)

    def backwards_of(
        self, compile_id: str | None, before: int | None = None
    ) -> Iterator[GraphInstance]:
        """Return the backward graphs of a compile, in order, of the instances before a number."""
        of_compile = (k for k in self._graphs[:before] if k.about.compile_id == compile_id)
        return (kept.instance for kept in of_compile if kept.instance.is_backward)

    def hold(self, recording: object) -> None:
        """Release collected graphs, then keep all until a recording is over."""
        with self._lock.held():
            self._recordings.discard(recording)
            self._release_collected()
            self._recordings.add(recording)

    def release(self, recording: object) -> None:
        """End a recording."""
        self._recordings.discard(recording)

    def _release_collected(self) -> None:
        """Keep only the rows of graphs that nothing can run any more."""
        while len(self._collected) > _MAX_COLLECTED and not self._recordings:
            at, graphs = self._collected.popleft()
            entry = self._by_artifact.get(at)
            if entry is not None and entry[1] is graphs:
                del self._by_artifact[at]
            for kept in graphs:
                index = kept.about.index
                self._unprofiled.end(index)
                self._copied.pop(index, None)
                self._passings.pop(index, None)
                self._called.pop(index, None)
                self._boundaries.pop(index, None)
                self._shared.discard(index)
                self.call_target.pop(index, None)
                kept.release_graph()

    def attach_provenance(self, artifact: Any, data: bytes) -> None:
        """Put the record on its artifact, so that caches store it with the artifact."""
        if os.environ.get("PROFILER_EXT_RIDE", "1") != "0":
            setattr(artifact, inductor.PROVENANCE_ATTRIBUTE, data)

    def is_known(self, artifact: Any) -> bool:
        """Tell whether a cached artifact has a record: on itself, or in the store."""
        on_artifact = getattr(artifact, inductor.PROVENANCE_ATTRIBUTE, None)
        return has_record(library_calls.process_store(), inductor.cache_key(artifact), on_artifact)

    def instance_of(self, artifact: Any) -> GraphInstance | None:
        """Return the instance of a ready artifact, as far as it was read."""
        kept = self._graph_of(artifact)
        return None if kept is None else kept.about

    def optimizer_run_by(self, artifact: Any) -> GraphInstance | None:
        """Return the instance of an artifact that runs an optimizer's step, if it does."""
        kept = self._graph_of(artifact)
        return kept.instance if kept is not None and kept.runs_optimizer else None

    def index_of(self, artifact: Any) -> int | None:
        """Return the index of an artifact's instance, if it has exactly one."""
        entry = self._by_artifact.get(identity(artifact))  # runs at each recorded call
        if entry is None or entry[0]() is not artifact:
            return None
        index = entry[1][-1].about.index
        return None if index in self._shared else index

    @property
    def has_calls_to_profile(self) -> bool:
        """Whether a call of a graph is still to be profiled."""
        return self._unprofiled.has_calls_left

    def take_unprofiled(self, artifact: Any) -> GraphInstance | None:
        """Return the instance of an artifact to be replayed, until its recording.

        ``None`` from the first call on if the store has all kernels.
        """
        kept = self._graph_of(artifact) if self._unprofiled.has_any else None
        if kept is None:
            return None
        return self._unprofiled.take_call(kept.about.index, lambda: kept.instance)

    def learn(self, graph: int, kernels: LibraryKernels) -> None:
        """Keep the kernels that a graph's library calls launched; the latest call counts."""
        if not kernels:
            return
        kept = self._graphs[graph]
        with self._lock.held():
            known = kept.instance
            merged = tuple(sorted((dict(known.library_kernels) | dict(kernels)).items()))
            kept.change(library_kernels=merged)
        # Stored once the graph is recorded: a warm-up may run something else.
        if known.is_known and self._unprofiled.is_profiled(graph):
            every = tuple(sorted((dict(known.stored_kernels) | dict(merged)).items()))
            library_calls.store_library_kernels(known, every)

    def discard_stored_kernels(self, graph: int) -> None:
        """Have the next process profile a graph again: its stored kernels do not match here."""
        known = self._graphs[graph].instance
        if known.stored_kernels and not known.library_kernels:
            library_calls.store_library_kernels(known, ())

    def keep_taken(self, artifact: Any, given: Any) -> int | None:
        """Keep which inputs of a recorded call are outputs of calls before.

        Returns the graph, if what the call returns is to be kept, too.
        """
        graph = self.index_of(artifact)
        if graph is None or not self._passed.is_wanted(graph):
            return None
        self._called.setdefault(graph, weakref.ref(artifact))
        if taken := self._passed.taken(given):
            self._passings.setdefault(graph, {}).update(dict.fromkeys(taken))
        return graph

    def keep_returned(self, graph: int, outputs: Any) -> None:
        """Keep what a recorded call of a graph returned."""
        if isinstance(outputs, list | tuple):
            self._passed.keep(graph, outputs)

    def _name_passed(self) -> None:
        """Name the passed tensors by the variables of the generated code."""
        for graph, passings in tuple(self._passings.items()):
            given, _ = self._boundary(graph)
            passed = (
                _passed_input(each, given, self._boundary(each.graph)) for each in tuple(passings)
            )
            self._graphs[graph].change(passed_inputs=tuple(filter(None, passed)))

    def _boundary(self, graph: int) -> _Boundary:
        """Return the variables of a graph's inputs and outputs, read once while it lives."""
        known = self._boundaries.get(graph)
        artifact = self._called[graph]() if graph in self._called else None
        if known is None and artifact is not None:
            source = inductor.wrapper_source(artifact) or ""
            known = self._boundaries[graph] = boundary_names(source)
        return known or ((), ())

    def keep_copies(self, artifact: Any, copied: CopiedInputs) -> None:
        """Keep which inputs are copied by the CUDA graphs that one call of an artifact recorded."""
        graph = self._graph_of(artifact)
        if graph is None:
            return
        self._unprofiled.end(graph.about.index)
        with self._lock.held():
            kept = self._copied.setdefault(graph.about.index, [])
            if copied not in kept:
                kept.append(copied)
            # A later call may record other CUDA graphs, and copy others. If it recorded only some,
            # which ones is unknown.
            is_consistent = len(set(map(len, kept))) == 1
            first, *others = kept if is_consistent else [()]
            graph.change(copied_inputs=first, other_copied_inputs=tuple(others))

    def register(self, artifact: Any, is_backward: bool, is_replayed: bool, started_ns: int) -> int:
        """Make the instance of an artifact that has become ready."""
        region = self._compiles.region
        about = self._about(
            artifact, is_backward or bool(region and region.outer_graph.is_backward), started_ns
        )
        has_bytes = getattr(artifact, inductor.PROVENANCE_ATTRIBUTE, None) is not None
        ready = ready_artifact(
            self._compiles,
            artifact,
            is_backward=about.is_backward,
            is_kept=not self._guard.failures_in(about.compile_id),
            may_have_record=has_bytes
            or bool(about.key and library_calls.process_store().find(about.key)),
        )
        kept = RegisteredGraph(
            about, ready, library_calls.process_store(), self._guard, is_replayed=is_replayed
        )
        return self._add(artifact, kept, is_replayed=is_replayed)

    def register_package(self, model: Any, key: str, record: bytes) -> None:
        """Make the instance of a model that was loaded from an AOTInductor package."""
        about = GraphInstance(
            index=-1,
            key=key,
            compile_id=None,
            is_backward=False,
            cache_state=CacheState.PACKAGE,
            cache_detail="its record is in the package",
            compile_ns=0,
            output_module=None,
        )
        code = GeneratedCode("", "", is_backward=False, is_inference=True, torch_version="")
        ready = ReadyArtifact(key=key, code=lambda: code, on_artifact=record)
        store = library_calls.process_store()
        kept = RegisteredGraph(about, ready, store, self._guard, is_replayed=False)
        self._add(model, kept, is_replayed=False)

    def _about(self, artifact: Any, is_backward: bool, started_ns: int) -> GraphInstance:
        """Return the instance before it has an index and provenance."""
        inner, region = self._compiles.inner, self._compiles.region
        key = inductor.cache_key(artifact)
        autograd_bypass = self._compiles.autograd_bypass if inner else None
        state, detail = cache_state(inner, key, autograd_bypass)
        return GraphInstance(
            index=-1,
            key=key,
            compile_id=process.current_compile_id(),
            is_backward=is_backward,
            dynamo_number=self._compiles.dynamo_number,
            cache_state=state,
            cache_detail=detail,
            autograd_bypass=autograd_bypass,
            compile_ns=time.perf_counter_ns() - (inner.started_ns if inner else started_ns),
            output_module=inductor.output_module(artifact),
            replay_skipped=inductor.skipped_replay(artifact),
            provenance=None,
            parent_graph=region.outer_graph.number if region else None,
        )

    def _add(self, artifact: Any, kept: RegisteredGraph, *, is_replayed: bool) -> int:
        with self._lock.held():
            self._release_collected()
            index = len(self._graphs)
            kept.change(index=index)
            self._graphs.append(kept)
            self._bind(artifact, kept)
            if (call_target := kept.call_target) is not None:
                self.call_target[index] = call_target
            if is_replayed:
                self._unprofiled.add(index)
        return index

    def _graph_of(self, artifact: Any) -> RegisteredGraph | None:
        entry = self._by_artifact.get(identity(artifact))
        return entry[1][-1] if entry is not None and entry[0]() is artifact else None

    def _bind(self, artifact: Any, kept: RegisteredGraph) -> None:
        at, graphs = identity(artifact), [kept]
        if self._graph_of(artifact) is not None:
            self._shared.add(kept.about.index)
            self._by_artifact[at][1].append(kept)
            calling.forget_known_calls()
        else:
            # It ends inside whatever the program does then, so this is only noted.
            collected = self._collected
            reference = weakref.ref(artifact, lambda _: collected.append((at, graphs)))
            self._by_artifact[at] = (reference, graphs)
