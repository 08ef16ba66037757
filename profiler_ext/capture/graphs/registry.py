"""Owns the graph instances of this process, in order of registration."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
import weakref
from pathlib import Path
from typing import Any

from profiler_ext.capture.graphs.cache_states import cache_state
from profiler_ext.capture.graphs.compiles import Compiles
from profiler_ext.capture.graphs.ready import ready_artifact
from profiler_ext.capture.lineage.compiled_autograd import all_with_copied_lineage
from profiler_ext.isolation.guard import Guard
from profiler_ext.isolation.locks import Lock
from profiler_ext.recall.records import find_kernels, has_record
from profiler_ext.recall.truths import Recalled, recall
from profiler_ext.records import Gap, GraphInstance, LibraryKernels, Provenance
from profiler_ext.store import Store, work_digest
from profiler_ext.torch_compat import inductor, process

CopiedInputs = tuple[tuple[str, ...], ...]
"""For each CUDA graph that one call recorded, in order, the inputs that it copies."""

_MOST_PROFILED_CALLS = 4
"""So many calls of a graph are profiled at most, should it never be recorded."""


class Registry:
    """Makes a graph instance of each artifact that becomes ready in this process."""

    def __init__(self, compiles: Compiles, guard: Guard) -> None:
        """Use what ``compiles`` saw; what the guard caught in a compile keeps it from the store.

        Args:
            compiles: what was seen of compiles.
            guard: knows what failed.
        """
        self._compiles = compiles
        self._guard = guard
        self._lock = Lock()
        self._graphs: list[GraphInstance] = []
        self._by_artifact: dict[int, tuple[weakref.ref[Any], GraphInstance]] = {}
        self._shared: set[int] = set()
        self._to_learn: dict[int, int] = {}
        self._copied: dict[int, list[CopiedInputs]] = {}

    @property
    def graphs(self) -> tuple[GraphInstance, ...]:
        """The graph instances so far."""
        return tuple(self._graphs)

    def ride(self, artifact: Any, data: bytes) -> None:
        """Put the record on its artifact, so that it goes where the artifact goes.

        Args:
            artifact: the ``CompiledFxGraph``.
            data: the record's bytes.
        """
        if os.environ.get("PROFILER_EXT_RIDE", "1") != "0":
            setattr(artifact, inductor.RIDING, data)

    def is_known(self, artifact: Any) -> bool:
        """Tell whether a cached artifact has a record: it carries one, or the store has it."""
        riding = getattr(artifact, inductor.RIDING, None)
        return has_record(_store(), inductor.cache_key(artifact), riding)

    def instance_of(self, artifact: Any) -> GraphInstance | None:
        """Return the instance of an artifact that is ready."""
        entry = self._by_artifact.get(id(artifact))
        return entry[1] if entry is not None and entry[0]() is artifact else None

    def index_of(self, artifact: Any) -> int | None:
        """Return the index of the one instance that an artifact is, where it is but one."""
        instance = self.instance_of(artifact)
        return None if instance is None or instance.index in self._shared else instance.index

    def take_unlearnt(self, artifact: Any) -> GraphInstance | None:
        """Return the instance of an artifact that will be replayed, until it was recorded.

        Calls before that warm up, where libraries may still set themselves up or try out what
        is fastest; the one that records tells what the replays run.
        """
        instance = self.instance_of(artifact) if self._to_learn else None
        if instance is None or not self._to_learn.get(instance.index):
            return None
        self._to_learn[instance.index] -= 1
        return instance

    def learn(self, graph: int, kernels: LibraryKernels) -> None:
        """Keep what calls of a graph taught, here and in the store; the later one knows better.

        Args:
            graph: index of the graph instance.
            kernels: pairs of call site and the names of its device events, in order.
        """
        if not kernels:
            return
        with self._lock.held():
            known = self._graphs[graph]
            merged = tuple(sorted((dict(known.library_kernels) | dict(kernels)).items()))
            self._graphs[graph] = dataclasses.replace(known, library_kernels=merged)
        if known.is_known:
            _store().put_kernels(work_digest(known.record), process.device_name(), merged)

    def keep_copies(self, artifact: Any, copied: CopiedInputs) -> None:
        """Keep which inputs the CUDA graphs copy that one call of an artifact recorded.

        A later call may record them anew, and copy others. One that recorded only some of them
        replayed the rest, and which those are is not known.

        Args:
            artifact: the ``CompiledFxGraph``.
            copied: for each CUDA graph that the call recorded, in order, the inputs that it copies.
        """
        instance = self.instance_of(artifact)
        if instance is None:
            return
        self._to_learn.pop(instance.index, None)
        with self._lock.held():
            kept = self._copied.setdefault(instance.index, [])
            if copied not in kept:
                kept.append(copied)
            is_whole = len(set(map(len, kept))) == 1
            first, *others = kept if is_whole else [()]
            self._graphs[instance.index] = dataclasses.replace(
                self._graphs[instance.index], copied_inputs=first, copied_otherwise=tuple(others)
            )

    def register(
        self, artifact: Any, is_backward: bool, is_replayed: bool, started_ns: int
    ) -> GraphInstance:
        """Make the instance of an artifact that has become ready.

        Args:
            artifact: the ``CompiledFxGraph``.
            is_backward: it runs as a backward graph.
            is_replayed: it will be replayed as a CUDA graph.
            started_ns: when its compile or load began, by ``time.perf_counter_ns``.

        Returns:
            The instance, which has the next index.
        """
        inner = self._compiles.inner
        key = inductor.cache_key(artifact)
        around = self._compiles.autograd_bypass if inner else None
        state, detail = cache_state(inner, key, around)
        region = self._compiles.region
        is_backward = is_backward or bool(region and region.outer_graph.is_backward)
        known = self._recalled(artifact, is_backward)
        compile_ns = time.perf_counter_ns() - (inner.started_ns if inner else started_ns)
        stored, gaps = _stored_kernels(known.provenance) if is_replayed else ((), ())
        with self._lock.held():
            about = GraphInstance(
                index=len(self._graphs),
                key=key,
                compile_id=process.current_compile_id(),
                is_backward=is_backward,
                dynamo_number=self._compiles.dynamo_number,
                cache_state=state,
                cache_detail=detail,
                autograd_bypass=around,
                compile_ns=compile_ns,
                output_module=inductor.output_module(artifact),
                stored_kernels=stored,
                gaps=gaps,
                cut_from=region.outer_graph.number if region else None,
            )
            instance = known.into(about)
            self._graphs.append(instance)
            self._bind(artifact, instance)
            if is_replayed and instance.record.calls_libraries:
                self._to_learn[instance.index] = _MOST_PROFILED_CALLS
        return instance

    def _recalled(self, artifact: Any, is_backward: bool) -> Recalled:
        is_kept = not self._guard.has_failed(process.current_compile_id())
        ready = ready_artifact(self._compiles, artifact, is_backward=is_backward, is_kept=is_kept)
        known = recall(ready, _store())
        dynamo = self._compiles.dynamo
        if dynamo is None or not dynamo.copy_sources:
            return known
        return dataclasses.replace(
            known, nodes=all_with_copied_lineage(known.nodes, dynamo.copy_sources)
        )

    def _bind(self, artifact: Any, instance: GraphInstance) -> None:
        if self.instance_of(artifact) is not None:
            self._shared.add(instance.index)
        self._by_artifact[id(artifact)] = (weakref.ref(artifact), instance)


def _stored_kernels(record: Provenance | None) -> tuple[LibraryKernels, tuple[Gap, ...]]:
    return ((), ()) if record is None else find_kernels(_store(), record, [process.device_name()])


def _store() -> Store:
    return _store_in(inductor.cache_dir())


@functools.cache
def _store_in(cache_dir: str) -> Store:
    return Store(Path(cache_dir) / "profiler_ext")
