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
        levels: the rows of each depth, from 0 on.
    """

    parent: Ints
    depth: Ints
    levels: tuple[Ints, ...]

    def nearest(self, wanted: Flags) -> Ints:
        """Return for each row the innermost wanted event that is it or encloses it."""
        rows = np.arange(len(self.parent))
        found = np.where(wanted & (self.depth != NO_ROW), rows, NO_ROW)
        for level in self.levels[1:]:
            rest = level[~wanted[level]]
            found[rest] = found[self.parent[rest]]
        return found

    def outermost(self, wanted: Flags, within: Flags) -> Ints:
        """Return for each row the outermost wanted event that is it or encloses it.

        Args:
            wanted: events to find.
            within: events at which the search starts anew; they are not found themselves.
        """
        found = np.full(len(self.parent), NO_ROW)
        for level in self.levels:
            above = take(found, self.parent[level], NO_ROW)
            own = np.where((above == NO_ROW) & wanted[level], level, above)
            found[level] = np.where(within[level], NO_ROW, own)
        return found

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
    return Nesting(parent, depth, _levels(depth))


def _levels(depth: Ints) -> tuple[Ints, ...]:
    """Return the rows of each depth, in order."""
    rows = np.flatnonzero(depth != NO_ROW)
    counts = np.bincount(depth[rows])
    by_depth = rows[np.argsort(depth[rows], kind="stable")]
    return tuple(np.split(by_depth, np.cumsum(counts)[:-1])) if len(rows) else ()


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
