"""Owns where the nodes of a region stand at each call that runs it.

Dynamo traces a repeated region once. Of another call it has a trace that it dropped, as it found
the graph to be one that it had; or none, where what an earlier trace had looked at is the same.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Sequence

import torch.fx

from profiler_ext.capture.traces.dropped_traces import DroppedTraces
from profiler_ext.capture.traces.moved_modules import moved_modules, differing_modules
from profiler_ext.recall.correspondence import unambiguous
from profiler_ext.recall.places import Source
from profiler_ext.recall.region_calls import Again, RegionCall, RetracedCall, common_source
from profiler_ext.records import Frame
from profiler_ext.torch_compat import fx

SourceOf = Callable[[torch.fx.Node], Source]
_Named = tuple[tuple[str, ...], tuple[Frame, ...]]


class RegionCalls:
    """The calls of regions in one Dynamo graph, and in the traces that were dropped for it."""

    def __init__(
        self,
        nodes: Sequence[torch.fx.Node],
        source_of: SourceOf,
        models: Collection[torch.nn.Module],
        dropped: DroppedTraces,
    ) -> None:
        """Find them.

        Args:
            nodes: the nodes of the graph and of those nested in it, in order.
            source_of: tells where a node was called.
            models: the user's outermost modules.
            dropped: the traces that torch made of calls and dropped.
        """
        self._source_of, self._models, self._dropped = source_of, models, dropped
        self._retraced: dict[torch.fx.Node, Again] = {}
        self._at: dict[torch.fx.Node, list[Source]] = {}
        self._own: dict[torch.fx.Node, torch.fx.GraphModule] = {}
        self._calls: dict[torch.fx.GraphModule, list[torch.fx.Node]] = {}
        self._found: set[torch.fx.GraphModule] = set()
        self._gather(nodes)

    def again(self, call: torch.fx.Node) -> Again | None:
        """Return what is known of a call whose region was traced for another call.

        Args:
            call: a node of the Dynamo graph or of one nested in it.
        """
        for _, body in fx.nested(call):
            if body not in self._found:
                self._found.add(body)
                self._find(body, self._calls[body])
        return self._retraced.get(call)

    def places_at(self, call: torch.fx.Node) -> list[Source]:
        """Return where the nodes of the graphs that a node calls stand at it.

        Args:
            call: a node of the Dynamo graph or of one nested in it.
        """
        if call not in self._at:
            self._at[call] = list(self._nodes_at(call))
        return self._at[call]

    def _nodes_at(self, call: torch.fx.Node) -> Iterator[Source]:
        again = self.again(call)
        own = self._own.get(call)
        bodies = [own] if own else [body for _, body in fx.nested(call)]
        for body in bodies:
            for place in self._of_graph(body.graph):
                yield again.place(place) if again and own is None else place

    def _of_graph(self, graph: torch.fx.Graph) -> Iterator[Source]:
        for node in calls_in(graph):
            yield self._source_of(node)
            yield from self.places_at(node)

    def _gather(self, nodes: Sequence[torch.fx.Node]) -> None:
        """Note the calls of each graph, also those in traces that were dropped."""
        for node in nodes:
            for _, body in fx.nested(node):
                is_new = body not in self._calls
                self._calls.setdefault(body, []).append(node)
                for trace in self._dropped.of(body) if is_new else ():
                    self._gather([n for g in fx.graph_modules(trace) for n in calls_in(g.graph)])

    def _find(self, body: torch.fx.GraphModule, calls: Sequence[torch.fx.Node]) -> None:
        """Find those calls of a graph that it was not traced for.

        A call of which torch made no trace is alike to one of those that it did trace.
        """
        own = {call: trace for call in calls if (trace := self._dropped.of_call(call, body))}
        self._own.update(own)
        for call in own:
            self._retraced[call] = self._table(call, body.graph, self.places_at(call))
        rest = [call for call in calls if call not in own]
        first = next((call for call in rest if self._is_traced_for(call, body.graph)), None)
        is_all = first is not None and len(own) == len(self._dropped.of(body))
        known = [first, *own] if first and is_all else []
        for call in rest:
            if call is not first:
                self._retraced[call] = self._similar_call(call, body.graph, known)

    def _is_traced_for(self, call: torch.fx.Node, body: torch.fx.Graph) -> bool:
        """Tell whether a graph was traced for a call, by whether its nodes stand within it."""
        stack = self._source_of(call).stack
        return any(self._source_of(n).stack[: len(stack)] == stack for n in calls_in(body))

    def _similar_call(
        self, call: torch.fx.Node, body: torch.fx.Graph, known: Sequence[torch.fx.Node]
    ) -> Again:
        """Return what is known of a call that is alike to one of several that were traced."""
        moved = {there: self._moved(there, call) for there in known}
        similar = [there for there in known if not moved[there].unlike] or known
        if len(similar) == 1 and similar[0] not in self._own:
            return moved[similar[0]]
        rows = [[moved[there].place(at) for at in self.places_at(there)] for there in similar]
        places = [common_source(each) for each in zip(*rows, strict=True)]
        return self._table(call, body, places)

    def _moved(self, traced: torch.fx.Node, call: torch.fx.Node) -> RegionCall:
        moved = moved_modules(traced, call)
        unlike = differing_modules(moved, self._models)
        return RegionCall(self._source_of(traced), self._source_of(call), moved, unlike)

    def _table(
        self, call: torch.fx.Node, kept: torch.fx.Graph, places: Sequence[Source]
    ) -> RetracedCall:
        """Return where the nodes of a graph stand at a call, given in their order."""
        rows = list(zip(self._named(kept), places, strict=True)) if places else []
        by_name = unambiguous((names, place) for (names, _), place in rows if names)
        by_stack = unambiguous((stack, place) for (_, stack), place in rows)
        return RetracedCall(self._source_of(call), by_name, by_stack)

    def _named(self, graph: torch.fx.Graph) -> Iterator[_Named]:
        """Yield the source functions, of the graph's own nodes alone, and the stack of each."""
        for node in calls_in(graph):
            yield fx.source_fns(node.meta), self._source_of(node).stack
            for place in self.places_at(node):
                yield (), place.stack


def calls_in(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """Return the calls among a graph's nodes.

    What takes a part of what a region yields is none: it stands where that is called, and torch
    2.11 drops most of them, of the graph alone that it keeps.

    Args:
        graph: the graph.
    """
    calls = (node for node in graph.nodes if node.op.startswith("call_"))
    return [node for node in calls if not _is_getitem_of_region(node)]


def _is_getitem_of_region(node: torch.fx.Node) -> bool:
    whole = node.args[0] if node.target is operator.getitem else None
    return isinstance(whole, torch.fx.Node) and any(fx.nested(whole))
