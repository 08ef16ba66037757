"""The graphs that a failure of a hook affected: each loses its record and has a gap instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from profiler_ext.capture.graphs.registered_graph import RECALL
from profiler_ext.isolation.failures import Failure
from profiler_ext.isolation.guard import Guard
from profiler_ext.records import gaps, vocabulary
from profiler_ext.records.provenance import Gap, GraphInstance
from profiler_ext.torch_compat import inductor, points, process

TOO_MANY_FAILURES = Gap(
    gaps.GapReason.CAPTURE_FAILED,
    "too many hooks failed, and capture took itself out: nothing is known of later compiles",
)
_STEP_ENDS = {
    points.FRAME_EDGE.path,
    points.PROFILER_STEP.path,
    points.PROFILER_STOP.path,
    "Optimizer.step",
}
PROFILER_HOOKS = frozenset(
    {
        *("recording", "turns", "steps", "threads", "lines"),
        *("compiles", "gaps", "generated code", "notebook cells", "texts", "source roots", "learn"),
    }
)
"""The parts of a profiler that do not touch graphs."""
_HOOKS_WITHOUT_GRAPH = frozenset(
    {
        *_STEP_ENDS,
        *(points.NODE_MADE.path, points.CACHE_CANDIDATES.path, RECALL),
        *(points.PACKAGE_LOADED.path, points.PACKAGE_CALL.path),
        *PROFILER_HOOKS,
    }
)
"""Hooks whose failure outside a compile affects no graph."""


class InstanceLookup(Protocol):
    """Finds the instance of an artifact."""

    def instance_of(self, artifact: Any) -> GraphInstance | None:
        """Return the instance of an artifact that is ready."""


def failure_gap(failure: Failure) -> Gap:
    """Return the gap for a failure."""
    detail = f"{failure.hook}: {failure.detail}"
    if failure.lost is not None:
        return Gap(gaps.GapReason.PARTLY_CAPTURED, f"{detail}; lost: {failure.lost}")
    return Gap(gaps.GapReason.CAPTURE_FAILED, detail)


def gaps_of_compile(guard: Guard) -> tuple[Gap, ...]:
    """Return a gap for each failure in the current compile."""
    return tuple(map(failure_gap, guard.failures_in(process.current_compile_id())))


def without_failed_records(
    graphs: Sequence[GraphInstance], failures: Sequence[Failure], known: InstanceLookup
) -> tuple[GraphInstance, ...]:
    """Return the graphs, without the record of those that a failure may have affected.

    A failure in a compile affects each of its graphs, one at run time the graph that ran, one of no
    known graph all of them. If a mechanism failed alone (``Guard.try_run``), the rest of the record
    is kept.
    """
    affected = [_AffectedGraphs(failure, known) for failure in failures]
    kept = (_without(graph, [t.failure for t in affected if t.affects(graph)]) for graph in graphs)
    return (*kept, *_unregistered(len(graphs), affected))


class _AffectedGraphs:
    def __init__(self, failure: Failure, known: InstanceLookup) -> None:
        self.failure = failure
        self.artifact = failure.subject()
        self.instance = None if self.artifact is None else known.instance_of(self.artifact)

    def affects(self, graph: GraphInstance) -> bool:
        if self.failure.scope is not None:
            return graph.compile_id == self.failure.scope
        if self.instance is not None and self.instance.compile_id is not None:
            return graph.compile_id == self.instance.compile_id
        return self.failure.hook not in _HOOKS_WITHOUT_GRAPH


def _without(graph: GraphInstance, failures: Sequence[Failure]) -> GraphInstance:
    if not failures:
        return graph
    kept = replace(graph, gaps=(*graph.gaps, *map(failure_gap, failures)))
    if all(failure.lost is not None for failure in failures):
        return kept
    return replace(kept, provenance=None, nodes=())


def _unregistered(count: int, affected: Sequence[_AffectedGraphs]) -> Iterator[GraphInstance]:
    """The graphs whose instance was not made, as the hook for that failed."""
    lost = [t for t in affected if t.failure.hook == points.ARTIFACT_READY.path and not t.instance]
    for index, each in enumerate(lost, count):
        yield GraphInstance(
            index=index,
            key=inductor.cache_key_if_known(each.artifact),
            compile_id=each.failure.scope,
            is_backward=False,
            cache_state=vocabulary.CacheState.MISS,
            cache_detail=None,
            compile_ns=0,
            output_module=None,
            provenance=None,
            gaps=(failure_gap(each.failure),),
        )
