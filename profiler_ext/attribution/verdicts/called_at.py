"""Owns where the program called each compiled graph that has nodes of no line or of no module.

Stock layers have no line of the program's: a compiled ``nn.Sequential`` runs for the line that
calls it. What Dynamo compiles within ``__torch_function__`` knows no module: it runs in the one
whose call is under way. Both are known where the lines of the program were watched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from profiler_ext.attribution.alignment.invocations import Invocation
from profiler_ext.attribution.places.places import PlaceTable
from profiler_ext.attribution.verdicts.eager_lines import EagerLines


def with_call_lines(
    invocations: Sequence[Invocation], places: PlaceTable, lines: EagerLines
) -> tuple[Invocation, ...]:
    """Return the calls of a trace, with the line of each whose graph leaves lines or modules open.

    A backward has that of its forward.

    Args:
        invocations: the calls.
        places: tells what is open.
        lines: the lines that ran.
    """
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
