"""What a failure of ours takes away: every graph that it may have touched has a gap and no record.

A hook that failed leaves what was noted of its compile incomplete, and nobody can say in which
way. So each graph of that compile loses its record; a failure at run time takes that of the graph
that ran; one that is of no known graph takes them all. Of a mechanism that failed alone
(``Guard.alone``) it is known what was lost: the graphs keep the rest, and have a gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from profiler_ext.capture.graphs.registered_graph import RECALL
from profiler_ext.isolation.failures import Failure
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import Gap, GraphInstance
from profiler_ext.records.vocabulary import CacheState
from profiler_ext.torch_compat import inductor, points

TOO_MANY_FAILURES = Gap(
    GapReason.CAPTURE_FAILED,
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
"""The parts of a profiler that know nothing of graphs."""
_HOOKS_WITHOUT_GRAPH = frozenset(
    {*_STEP_ENDS, *(points.NODE_MADE.path, points.CACHE_CANDIDATES.path, RECALL), *PROFILER_HOOKS}
)
"""What tells nothing of a graph when it fails outside a compile."""


class InstanceLookup(Protocol):
    """Knows the instance of an artifact."""

    def instance_of(self, artifact: Any) -> GraphInstance | None:
        """Return the instance of an artifact that is ready."""


def failure_gap(failure: Failure) -> Gap:
    """Return the gap that a failure is."""
    detail = f"{failure.hook}: {failure.detail}"
    if failure.lost is not None:
        return Gap(GapReason.PARTLY_CAPTURED, f"{detail}; lost: {failure.lost}")
    return Gap(GapReason.CAPTURE_FAILED, detail)


def without_failed_records(
    graphs: Sequence[GraphInstance], failures: Sequence[Failure], known: InstanceLookup
) -> tuple[GraphInstance, ...]:
    """Return the graphs, those without their record that a failure may have touched."""
    affected = [_AffectedGraphs(failure, known) for failure in failures]
    kept = (_without(graph, [t.failure for t in affected if t.affects(graph)]) for graph in graphs)
    return (*kept, *_unregistered(len(graphs), affected))


class _AffectedGraphs:
    """What one failure may have touched."""

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
    """The graphs that were ready when the hook failed that would have made their instance."""
    lost = [t for t in affected if t.failure.hook == points.ARTIFACT_READY.path and not t.instance]
    for index, each in enumerate(lost, count):
        yield GraphInstance(
            index=index,
            key=inductor.cache_key_if_known(each.artifact),
            compile_id=each.failure.scope,
            is_backward=False,
            cache_state=CacheState.MISS,
            cache_detail=None,
            compile_ns=0,
            output_module=None,
            provenance=None,
            gaps=(failure_gap(each.failure),),
        )
