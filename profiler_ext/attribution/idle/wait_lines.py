"""Owns the line of a wait within a compiled graph: that of what the same op gave the device.

Generated code has no line of the user's, so where the CPU was says nothing of a ``.cpu()`` that is
compiled. But the op that waits launched its copy before, and that launch was led to its line.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.trace.enqueued import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW, Rows, flag_rows, take
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.kineto import classify, waits
from profiler_ext.records import Events, Ints, Place


@dataclass(frozen=True, slots=True)
class WaitLines:
    """At which place calls wait that stand in compiled graphs.

    Attributes:
        calls: rows of these calls, in order.
        place: index into ``places`` for each.
        places: the places of the launches that they are led by.
    """

    calls: Ints
    place: Ints
    places: tuple[Place, ...]

    def at(self, rows: Ints) -> Ints:
        """Return the index of the place of each call; ``NO_ROW`` where none is known.

        Args:
            rows: rows of events, or ``NO_ROW``.
        """
        at = np.searchsorted(self.calls, rows)
        result = np.append(self.calls, NO_ROW - 1)[at] == rows
        return np.where(result, np.append(self.place, NO_ROW)[at], NO_ROW)


def find_wait_places(
    events: Events,
    nesting: Nesting,
    enqueued: EnqueuedLaunches,
    main_place: Ints,
    places: tuple[Place, ...],
) -> WaitLines:
    """Find the line of each call that waits in an op that launched something of a compiled graph.

    Args:
        events: the trace's events.
        nesting: which of them stands in which.
        enqueued: the launches.
        main_place: index of the place of the largest share of each launch.
        places: the places.

    Returns:
        These calls and their places.
    """
    has_source = np.array([each.graph is not None and each.line is not None for each in places], bool)
    ops = nesting.nearest(flag_rows(events.name, classify.is_dispatched_op))
    own = take(ops, enqueued.call, NO_ROW)
    with_source = np.flatnonzero((own != NO_ROW) & has_source[main_place])
    is_call = flag_rows(events.category, classify.is_runtime_call)
    waiting = np.flatnonzero(is_call & flag_rows(events.name, waits.is_device_wait))
    waiting = waiting[ops[waiting] != NO_ROW]
    calls = np.concatenate([waiting, enqueued.call[with_source]])
    by = _last_before(events, ops, calls, enqueued.call[with_source])
    calls, first = np.unique(calls[by != NO_ROW], return_index=True)
    used, place = np.unique(main_place[with_source[by[by != NO_ROW][first]]], return_inverse=True)
    return WaitLines(calls, place, tuple(places[each] for each in used.tolist()))


def _last_before(events: Events, ops: Rows, calls: Ints, launching: Ints) -> Ints:
    """Return which launching call was the last of the same op up to each call, or ``NO_ROW``."""
    every = np.append(launching, calls)
    is_query = np.arange(len(every)) >= len(launching)
    order = np.lexsort((is_query, events.start_ns[every], ops[every]))
    last = np.maximum.accumulate(np.where(is_query[order], NO_ROW, np.arange(len(every))))
    result = np.where(last == NO_ROW, NO_ROW, order[last])
    is_same = ops[every[result]] == ops[every[order]]
    before = np.empty(len(every), dtype=np.int64)
    before[order] = np.where((result != NO_ROW) & is_same, result, NO_ROW)
    return before[len(launching) :]
