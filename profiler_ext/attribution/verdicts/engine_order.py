"""Owns the order in which autograd's engine evaluates nodes in each thread.

Source: ``torch/csrc/autograd/engine.cpp``, ``CompareNodeTaskTime``: the largest sequence number
goes first, and that of ``AccumulateGrad`` is the largest: it runs right after the node that gives
the gradient, in the same thread.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from profiler_ext.attribution.calls.enclosing import EnclosingRanges
from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.kineto import classify
from profiler_ext.records import Ints


class EngineOrder:
    """Tells what the engine evaluated before something."""

    def __init__(self, enclosing: EnclosingRanges) -> None:
        """Go through the engine's events."""
        events, parent = enclosing.events, enclosing.nesting.parent
        rows: Ints = np.flatnonzero(enclosing.engine == np.arange(len(events), dtype=np.int32))
        rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
        self._events = events
        self._node_before: dict[int, int] = {}
        self._starts: dict[int, list[int]] = {}
        self._ends: dict[int, list[int]] = {}
        last: dict[tuple[int, int], int] = {}
        for row in rows.tolist():
            around, thread = int(parent[row]), int(events.thread[row])
            outer = NO_ROW if around == NO_ROW else int(enclosing.engine[around])
            self._starts.setdefault(thread, []).append(int(events.start_ns[row]))
            self._ends.setdefault(thread, []).append(events.end_at(row))
            if not classify.is_gradient_accumulation(events.name[row]):
                last[thread, outer] = row
            elif (thread, outer) in last:
                self._node_before[row] = last[thread, outer]

    def node_before(self, accumulation: int) -> int | None:
        """Return the node that the same thread evaluated before it accumulates a gradient."""
        return self._node_before.get(accumulation)

    def last_end_ns(self, row: int) -> int | None:
        """Return when the thread of a row was last done with a node before it."""
        ends = self._ends.get(int(self._events.thread[row]), [])
        at = bisect_left(ends, int(self._events.start_ns[row]))
        return ends[at - 1] if at else None

    def next_start_ns(self, row: int) -> int | None:
        """Return when the thread of a row next began with a node after it."""
        starts = self._starts.get(int(self._events.thread[row]), [])
        at = bisect_left(starts, self._events.end_at(row))
        return starts[at] if at < len(starts) else None
