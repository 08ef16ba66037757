"""Owns the hooks that see compiled artifacts: when made, when ready, when called."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from profiler_ext.capture.graphs.compiles import Compiles, Sealed
from profiler_ext.capture.graphs.registry import Registry
from profiler_ext.capture.graphs.sealing import seal
from profiler_ext.capture.observing import Arguments, Around, Keywords, Observer
from profiler_ext.records import GraphInstance
from profiler_ext.store import to_bytes
from profiler_ext.torch_compat import inputs, points
from profiler_ext.torch_compat.patches import Call


class Warmup(Protocol):
    """Profiles one call; begins when it is made."""

    @staticmethod
    def is_wanted() -> bool:
        """Tell whether a call may be profiled now."""

    def __init__(self) -> None: ...

    def learn(self, graph: GraphInstance) -> tuple[tuple[int, int], ...]:
        """End, and count the device events of each library call."""


class _Calls(threading.local):
    """The calls of artifacts under way, each with what the CUDA graphs recorded in it copy."""

    def __init__(self) -> None:
        self.copied: list[list[tuple[str, ...]]] = []


class ArtifactHooks:
    """Seals provenance on artifacts and registers the graph instances.

    Attributes:
        on_optimizer_graph: called when a graph that runs an optimizer's step has run.
    """

    def __init__(
        self,
        observe: Observer,
        compiles: Compiles,
        registry: Registry,
        warmup: type[Warmup] | None,
    ) -> None:
        """Take what is known of the compiles, and where instances are registered."""
        self.on_optimizer_graph: Callable[[GraphInstance], None] | None = None
        self._observe = observe
        self._compiles = compiles
        self._registry = registry
        self._warmup = warmup
        self._calls = _Calls()

    def arounds(self) -> list[Around]:
        """Return what is wrapped, and what is called in its place."""
        return [
            (points.ARTIFACT_INIT, self._artifact_init),
            (points.ARTIFACT_READY, self._artifact_ready),
            (points.ARTIFACT_CALL, self._artifact_call),
            (points.CUDA_GRAPH, self._cuda_graph),
        ]

    def _artifact_init(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        original(*args, **kwargs)
        self._observe(self._seal, *args[:1], *args[2:4])

    def _seal(self, artifact: Any, graph: Any, gm: Any) -> None:
        if (inner := self._compiles.inner) is not None:
            inner.is_compiled = True
        provenance = seal(self._compiles, artifact, graph, gm)
        data = to_bytes(provenance)
        if inner is not None:
            inner.sealed = Sealed(provenance, data)
        self._registry.ride(artifact, data)

    def _artifact_ready(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        started_ns = time.perf_counter_ns()
        result = original(*args, **kwargs)
        graph_kwargs: dict[str, Any] = args[3] if len(args) > 3 else kwargs["graph_kwargs"]
        told = (bool(graph_kwargs.get(name)) for name in ("is_backward", "cudagraphs"))
        self._observe(self._registry.register, args[0], *told, started_ns)
        return result

    def _artifact_call(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        warmup = self._observe(self._begin_warmup, args[0])
        self._calls.copied.append([])
        try:
            result = original(*args, **kwargs)
        finally:
            if copied := self._calls.copied.pop():
                self._observe(self._registry.keep_copies, args[0], tuple(copied))
            if warmup is not None:
                self._observe(self._end_warmup, *warmup)
        if self.on_optimizer_graph is not None:
            instance = self._registry.instance_of(args[0])
            if instance is not None and instance.runs_optimizer:
                self.on_optimizer_graph(instance)
        return result

    def _cuda_graph(self, original: Call, args: Arguments, kwargs: Keywords) -> Any:
        original(*args, **kwargs)
        self._observe(self._note_copies, args[0])

    def _note_copies(self, cuda_graph: Any) -> None:
        if self._calls.copied:
            self._calls.copied[-1].append(inputs.copied_inputs(cuda_graph))

    def _begin_warmup(self, artifact: Any) -> tuple[GraphInstance, Warmup] | None:
        instance = self._registry.take_unlearnt(artifact)
        if instance is None or self._warmup is None or not self._warmup.is_wanted():
            return None
        return instance, self._warmup()

    def _end_warmup(self, instance: GraphInstance, warmup: Warmup) -> None:
        self._registry.learn(instance.index, warmup.learn(instance))
