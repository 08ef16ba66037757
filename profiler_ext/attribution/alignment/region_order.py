"""Owns which region of a graph a call is of, where a graph's regions were compiled by themselves.

Regions have no cache key, and those of repeated blocks are alike. But a graph calls each of its
regions once and in order, so the n-th call within one run of it is that of the n-th region.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from profiler_ext.attribution.calls.graph_calls import GraphCall
from profiler_ext.records import GraphInstance


class Regions:
    """The regions of each graph, in the order in which it calls them."""

    def __init__(self, graphs: Sequence[GraphInstance]) -> None:
        """Collect them."""
        members = defaultdict[int, list[int]](list)
        for at, graph in enumerate(graphs):
            if graph.cut_from is not None:
                members[graph.cut_from].append(at)
        self._place = {
            at: (place, len(own)) for own in members.values() for place, at in enumerate(own)
        }

    def at_place(self, candidates: list[int], call: GraphCall) -> list[int]:
        """Return those candidates that stand where a call stands; all where none does.

        Args:
            candidates: graphs that the call may have run.
            call: the call.
        """
        in_place = [at for at in candidates if self._place.get(at, call.place) == call.place]
        return in_place or candidates
