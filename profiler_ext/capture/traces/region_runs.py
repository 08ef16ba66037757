"""Owns the list of the runs of regions in a Dynamo graph, each with the calls that lead to it."""

from __future__ import annotations

from collections.abc import Iterator

import torch.fx

from profiler_ext.capture.traces.called_regions import RegionCalls, SourceOf, calls_in
from profiler_ext.recall.region_calls import Again, NodeKey, RegionRuns, Run
from profiler_ext.torch_compat import fx

_Names = tuple[tuple[str, ...], ...]


class RunsOfGraph:
    """The runs of the regions of one Dynamo graph.

    Attributes:
        bodies: the graphs of regions that run more often than they were traced, with their runs.
    """

    def __init__(self, graph: torch.fx.Graph, regions: RegionCalls, source_of: SourceOf) -> None:
        """Find them.

        Args:
            graph: the outermost graph.
            regions: what is known of the calls.
            source_of: tells where a node was called.
        """
        self._regions, self._source_of = regions, source_of
        runs: dict[torch.fx.Graph, list[Run]] = {}
        for body, run in self._runs_in(graph, (), ()):
            runs.setdefault(body, []).append(run)
        self.bodies = {b: each for b, each in runs.items() if any(any(r.again) for r in each)}
        self._all = [run for each in runs.values() for run in each]

    def records(self) -> RegionRuns:
        """Return them by what tells of them."""
        of_call: dict[tuple[str, ...], list[Run]] = {}
        of_node: dict[NodeKey, list[Run]] = {}
        for run in self._all if self.bodies else ():
            of_call.setdefault(run.names[-1], []).append(run)
        for body, runs in self.bodies.items():
            for node in calls_in(body):
                key = fx.source_fns(node.meta), self._source_of(node).stack
                of_node.setdefault(key, []).extend(runs)
        return RegionRuns(of_call, of_node)

    def _runs_in(
        self, graph: torch.fx.Graph, names: _Names, again: tuple[Again | None, ...]
    ) -> Iterator[tuple[torch.fx.Graph, Run]]:
        for call in calls_in(graph):
            for _, body in fx.nested(call):
                call_path = (*names, fx.source_fns(call.meta))
                known = (self._regions.again(call), *again)
                yield body.graph, Run(call_path, self._source_of(call), known)
                yield from self._runs_in(body.graph, call_path, known)
