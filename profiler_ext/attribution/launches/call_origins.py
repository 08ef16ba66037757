"""Where each compiled graph was called: an op of another graph's call, or a line.

A custom op may call a compiled function. Its launches belong to the op: its module and phase, and
they differentiate what it does. Stock layers have no line of the program's: a compiled
``nn.Sequential`` has the line that calls it. What Dynamo compiles within ``__torch_function__`` has
the module whose call is active.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from profiler_ext.attribution.alignment.invocations import Invocation
from profiler_ext.attribution.launches.eager_lines import EagerLines
from profiler_ext.attribution.places import PlaceTable
from profiler_ext.records.analysis import Place
from profiler_ext.records.provenance import CallSite, GraphInstance


def with_callers(
    invocations: Sequence[Invocation], graphs: Sequence[GraphInstance], places: PlaceTable
) -> tuple[Invocation, ...]:
    """Return the calls of a trace, each with the op of another call that runs it, if any."""
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
        """Return the place of the op that runs a call, which another op may run."""
        if inner.call.caller is None:
            return None
        marker, operator = inner.call.caller
        outer = self.resolved(self._of_marker[marker])
        site = self._site(outer, operator)
        if outer.graph is None or site is None or not site.nodes:
            return None
        return self._places.of_node(outer.graph, site.nodes[-1], outer.call.context)

    def _site(self, outer: Invocation, operator: int) -> CallSite | None:
        pairs = zip(outer.call.rows, outer.matches, strict=True)
        at = next((match.site for row, match in pairs if row == operator), None)
        if outer.graph is None or at is None:
            return None
        return self._graphs[outer.graph].call_sites[at]


def with_call_lines(
    invocations: Sequence[Invocation], places: PlaceTable, lines: EagerLines
) -> tuple[Invocation, ...]:
    """Return the calls, with the calling line of each whose graph leaves lines or modules open."""
    # A backward has that of its forward.
    forwards: dict[int, set[int]] = {}
    for each in invocations:
        if each.call.frame_row is not None and not each.call.context.is_backward:
            forwards.setdefault(each.call.frame_row, set()).add(each.call.marker)

    def called(invocation: Invocation) -> Invocation:
        call, graph = invocation.call, invocation.graph
        if not lines.are_watched or graph is None or not places.has_unknown_places(graph):
            return invocation
        own = {call.marker} if not call.context.is_backward else set[int]()
        rows = own or forwards.get(call.frame_row or -1, set())
        if len(rows) != 1:
            return invocation
        line = lines.of_row(next(iter(rows)))
        context = replace(call.context, called_from=line.stack, called_in=line.module)
        return replace(invocation, call=replace(call, context=context))

    return tuple(map(called, invocations))
