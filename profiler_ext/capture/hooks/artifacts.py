"""Owns the hooks that see compiled artifacts: when made, when ready, when called."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from profiler_ext.capture.graphs.compiles import Compiles, InnerCompile
from profiler_ext.capture.graphs.failed import failure_gap
from profiler_ext.capture.graphs.registry import Registry
from profiler_ext.capture.graphs.sealing import seal
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.recall.truths import Sealed
from profiler_ext.records import Gap, GraphInstance, LibraryKernels
from profiler_ext.store import to_bytes
from profiler_ext.torch_compat import inductor, inputs, points, process
from profiler_ext.torch_compat.patches import Hook


class Warmup(Protocol):
    """Profiles one call.

    Attributes:
        recording: records while it is entered; torch's own, so that it ends whatever fails.
    """

    recording: AbstractContextManager[Any]

    @staticmethod
    def is_wanted() -> bool:
        """Tell whether a call may be profiled now."""

    def __init__(self) -> None: ...

    def learn(self, graph: GraphInstance) -> LibraryKernels:
        """Tell the device events of each library call in what was recorded."""


class _Calls(threading.local):
    """The calls of artifacts under way, each with what the CUDA graphs recorded in it copy."""

    def __init__(self) -> None:
        self.copied: list[list[tuple[str, ...]]] = []


class ArtifactHooks:
    """Seals provenance on artifacts and registers the graph instances.

    Attributes:
        on_optimizer_graph: called when a graph that runs an optimizer's step has run.
        learns: somebody asked for recordings, so that first calls of CUDA graphs are profiled.
    """

    def __init__(
        self,
        guard: Guard,
        compiles: Compiles,
        registry: Registry,
        warmup: type[Warmup] | None,
        ready: Callable[[int], None],
    ) -> None:
        """Take what is known of the compiles, and where instances are registered.

        Args:
            guard: what ours runs behind.
            compiles: what was seen of compiles.
            registry: where graph instances are made.
            warmup: torch's pieces of a CUDA graph's first calls, ``None`` where this torch has
                others.
            ready: is told the index of each instance that is made.
        """
        self.on_optimizer_graph: Callable[[GraphInstance], None] | None = None
        self.learns = False
        self._guard = guard
        self._compiles = compiles
        self._registry = registry
        self._warmup = warmup
        self._ready = ready
        self._calls = _Calls()

    def observations(self) -> list[Hook]:
        """Return what is observed where."""
        return [
            (points.ARTIFACT_INIT, self._artifact_init),
            (points.ARTIFACT_READY, self._artifact_ready),
            (points.ARTIFACT_CALL, self._artifact_call),
            (points.CUDA_GRAPH, self._cuda_graph),
        ]

    def _artifact_init(self, call: Observed) -> Observation:
        yield
        if (inner := self._compiles.inner) is not None:
            inner.is_compiled = True
        if not self._guard.has_failed(process.current_compile_id()):
            self._seal(inner, call["self"], call["graph"], call["gm"])

    def _seal(self, inner: InnerCompile | None, artifact: Any, graph: Any, gm: Any) -> None:
        provenance = seal(self._compiles, artifact, graph, gm, self._failed)
        data = to_bytes(provenance)
        if inner is not None:
            inner.sealed = Sealed(data, provenance.dynamo_digest)
        self._registry.attach_provenance(artifact, data)

    def _failed(self) -> tuple[Gap, ...]:
        """Return which mechanisms failed in the compile in force; its record says it anywhere."""
        return tuple(map(failure_gap, self._guard.failures_in(process.current_compile_id())))

    def _artifact_ready(self, call: Observed) -> Observation:
        started_ns = time.perf_counter_ns()
        yield
        graph_kwargs: dict[str, Any] = call["graph_kwargs"]
        is_backward, is_replayed = inductor.is_backward(graph_kwargs), inductor.is_replayed(graph_kwargs)
        self._ready(self._registry.register(call["self"], is_backward, is_replayed, started_ns))

    def _artifact_call(self, call: Observed) -> Observation:
        artifact = call["self"]
        if (instance := self._instance_to_profile(artifact)) is None:
            yield from self._collect_copied_inputs(artifact)
        else:
            yield from self._profile_call(artifact, instance)
        if self.on_optimizer_graph is not None:
            instance = self._registry.optimizer_run_by(artifact)
            if instance is not None:
                self.on_optimizer_graph(instance)

    def _collect_copied_inputs(self, artifact: Any) -> Observation:
        """Keep which inputs the CUDA graphs copy that a call records."""
        copied: list[tuple[str, ...]] = []
        self._calls.copied.append(copied)
        try:
            yield
        finally:
            self._calls.copied.pop()
            if copied:
                self._registry.keep_copies(artifact, tuple(copied))

    def _cuda_graph(self, call: Observed) -> Observation:
        yield
        if self._calls.copied:
            self._calls.copied[-1].append(inputs.copied_inputs(call["self"]))

    def _instance_to_profile(self, artifact: Any) -> GraphInstance | None:
        """Return the instance of a call that teaches what library calls launch, if it is wanted."""
        instance = self._registry.take_unprofiled(artifact) if self.learns else None
        is_wanted = instance is not None and self._warmup is not None and self._warmup.is_wanted()
        return instance if is_wanted else None

    def _profile_call(self, artifact: Any, instance: GraphInstance) -> Observation:
        """Profile a call, and keep what it teaches."""
        assert self._warmup is not None
        warmup = self._warmup()
        with warmup.recording:
            yield from self._collect_copied_inputs(artifact)
        self._registry.learn(instance.index, warmup.learn(instance))
