"""Owns which CPU event stands inside which: the parent of each, and lookups up that chain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, flag_rows, take
from profiler_ext.kineto import classify
from profiler_ext.records import Events, Ints


@dataclass(frozen=True, slots=True)
class Nesting:
    """The CPU events of all threads as trees.

    Attributes:
        parent: row of the innermost enclosing event, or ``NO_ROW``.
        depth: number of enclosing events; ``NO_ROW`` for rows that are no CPU event.
    """

    parent: Ints
    depth: Ints

    def nearest(self, wanted: Flags) -> Ints:
        """Return for each row the innermost wanted event that is it or encloses it."""
        rows = np.arange(len(self.parent))
        steps = np.where(wanted, rows, self.parent)
        return _at_the_end(np.where(self.depth == NO_ROW, NO_ROW, steps))

    def outermost(self, wanted: Flags, within: Flags) -> Ints:
        """Return for each row the outermost wanted event that is it or encloses it.

        Args:
            wanted: events to find.
            within: events at which the search starts anew; they are not found themselves.
        """
        rows = np.arange(len(self.parent))
        stop = self.nearest(wanted | within)
        stop = np.where(_told(within, stop), NO_ROW, stop)
        above = take(stop, self.parent, NO_ROW)
        return take(_at_the_end(np.where(above == NO_ROW, rows, above)), stop, NO_ROW)

    def holds(self, wanted: Flags) -> Flags:
        """Tell of each row whether a wanted event stands inside it."""
        parent = self.parent.tolist()
        is_held = [False] * len(parent)
        for row in np.flatnonzero(wanted).tolist():
            above = parent[row]
            while above != NO_ROW and not is_held[above]:
                is_held[above] = True
                above = parent[above]
        return np.array(is_held, dtype=np.bool_)


def _at_the_end(steps: Ints) -> Ints:
    """Follow steps from row to row until they lead to themselves or nowhere.

    Each turn doubles the steps, so that the deepest nesting takes few.
    """
    steps = np.append(steps, NO_ROW)
    while not np.array_equal(further := steps[steps], steps):
        steps = further
    return steps[:-1]


def _told(flags: Flags, rows: Ints) -> Flags:
    """Return the flag of each row, ``False`` where there is none."""
    return np.append(flags, False)[rows]  # NO_ROW is the last


def nest(events: Events) -> Nesting:
    """Find the parent of every CPU event.

    Operators and ranges of a thread enclose what lies wholly inside them. A runtime call
    is timed by another clock and may jut out: it belongs where it starts, and holds nothing.

    Returns:
        One row for each event: parent and depth, ``NO_ROW`` of what is no CPU event.
    """
    leaf = flag_rows(events.category, classify.is_runtime_call)
    holder = flag_rows(events.category, classify.is_op) | flag_rows(
        events.category, classify.is_annotation
    )
    order = _outer_first(events, leaf, np.flatnonzero(leaf | holder))
    parent, depth = np.full((2, len(events)), NO_ROW, dtype=np.int64)
    for rows in np.split(order, np.flatnonzero(np.diff(events.thread[order])) + 1):
        above, depth[rows] = _innermost(events, rows, leaf[rows])
        parent[rows] = take(rows, above, NO_ROW)
    return Nesting(parent, depth)


def _outer_first(events: Events, leaf: Flags, rows: Ints) -> Ints:
    """Sort by thread and start; of those that start together the outer one comes first."""
    keys = (
        events.external_id.filled(0)[rows],
        -events.duration_ns[rows],
        leaf[rows],
        events.start_ns[rows],
        events.thread[rows],
    )
    return rows[np.lexsort(keys)]


def _innermost(events: Events, rows: Ints, leaf: Flags) -> tuple[Ints, Ints]:
    """Return for each of a thread's sorted rows the place of its parent, and how many enclose it.

    It walks them once with a stack of those that are still open. What ends before an event that
    opened after it can enclose nothing more, and leaves the stack: so the ends on the stack only
    shrink, and its top is the innermost.
    """
    start, duration = events.start_ns[rows], events.duration_ns[rows]
    ends = (start + duration).tolist()
    least = (start + np.where(leaf, 1, np.maximum(duration, 1))).tolist()
    above, depth, still_open = list[int](), list[int](), list[int]()
    for at, (until, is_leaf) in enumerate(zip(least, leaf.tolist(), strict=True)):
        while still_open and ends[still_open[-1]] < until:
            still_open.pop()
        above.append(still_open[-1] if still_open else NO_ROW)
        depth.append(len(still_open))
        if not is_leaf:
            still_open.append(at)
    return np.array(above, dtype=np.int64), np.array(depth, dtype=np.int64)
