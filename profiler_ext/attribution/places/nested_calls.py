"""Owns who called a compiled graph that runs inside an op of another compiled graph.

A custom op may call a function that is compiled itself. Its launches are work of the op: of its
module and phase, and differentiate what it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from profiler_ext.attribution.alignment.invocations import Invocation
from profiler_ext.attribution.places.places import PlaceTable
from profiler_ext.records import CallSite, GraphInstance, Place


def with_callers(
    invocations: Sequence[Invocation], graphs: Sequence[GraphInstance], places: PlaceTable
) -> tuple[Invocation, ...]:
    """Return the calls of a trace, each with the op of another call that runs it, if one does.

    Args:
        invocations: the calls.
        graphs: the graph instances of the process.
        places: tells the place of an op.
    """
    callers = _Callers(invocations, graphs, places)
    return tuple(callers.resolved(each) for each in invocations)


class _Callers:
    def __init__(
        self, invocations: Sequence[Invocation], graphs: Sequence[GraphInstance], places: PlaceTable
    ) -> None:
        self._of_marker = {each.call.marker: each for each in invocations}
        self._graphs, self._places = graphs, places
        self._known: dict[int, Invocation] = {}

    def resolved(self, inner: Invocation) -> Invocation:
        marker = inner.call.marker
        if marker not in self._known:
            self._known[marker] = self._resolve(inner)
        return self._known[marker]

    def _resolve(self, inner: Invocation) -> Invocation:
        place = self._caller(inner)
        if place is None:
            return inner
        context = replace(inner.call.context, caller=place)
        return replace(inner, call=replace(inner.call, context=context))

    def _caller(self, inner: Invocation) -> Place | None:
        """Return the place of the op that runs a call, which may be run by yet another op."""
        if inner.call.caller is None:
            return None
        marker, operator = inner.call.caller
        outer = self.resolved(self._of_marker[marker])
        site = self._site(outer, operator)
        if outer.graph is None or site is None or not site.nodes:
            return None
        return self._places.of_node(outer.graph, site.nodes[-1], outer.call.context)

    def _site(self, outer: Invocation, operator: int) -> CallSite | None:
        """Return the call site that an operator of a call was led to."""
        pairs = zip(outer.call.rows, outer.matches, strict=True)
        at = next((match.site for row, match in pairs if row == operator), None)
        if outer.graph is None or at is None:
            return None
        return self._graphs[outer.graph].call_sites[at]
