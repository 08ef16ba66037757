"""Owns which CPU event stands inside which: the parent of each, and questions up that chain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.columns import NO_ROW, Flags, ask, take
from profiler_ext.kineto import classify
from profiler_ext.records import Events, Ints


@dataclass(frozen=True, slots=True)
class Nesting:
    """The CPU events of all threads as trees.

    Attributes:
        parent: row of the innermost enclosing event, or ``NO_ROW``.
        depth: number of enclosing events; ``NO_ROW`` for rows that are no CPU event.
        levels: rows by depth, outermost first.
    """

    parent: Ints
    depth: Ints
    levels: tuple[Ints, ...]

    def nearest(self, wanted: Flags) -> Ints:
        """Return for each row the innermost wanted event that is it or encloses it."""
        found = np.full(len(self.parent), NO_ROW, dtype=np.int64)
        for rows in self.levels:
            inherited = take(found, self.parent[rows], NO_ROW)
            found[rows] = np.where(wanted[rows], rows, inherited)
        return found

    def outermost(self, wanted: Flags, within: Flags) -> Ints:
        """Return for each row the outermost wanted event that is it or encloses it.

        Args:
            wanted: events to find.
            within: events at which the search starts anew; they are not found themselves.
        """
        found = np.full(len(self.parent), NO_ROW, dtype=np.int64)
        for rows in self.levels:
            inherited = take(found, self.parent[rows], NO_ROW)
            own = np.where(wanted[rows], rows, NO_ROW)
            found[rows] = np.where(inherited != NO_ROW, inherited, own)
            found[rows[within[rows]]] = NO_ROW
        return found

    def holds(self, wanted: Flags) -> Flags:
        """Tell of each row whether a wanted event stands inside it."""
        found = np.zeros(len(self.parent), dtype=np.bool_)
        for rows in reversed(self.levels):
            inner = rows[(wanted | found)[rows]]
            parents = self.parent[inner]
            found[parents[parents != NO_ROW]] = True
        return found


def nest(events: Events) -> Nesting:
    """Find the parent of every CPU event.

    Operators and ranges of a thread enclose what lies wholly inside them. A runtime call
    is timed by another clock and may jut out: it belongs where it starts, and holds nothing.
    """
    leaf = ask(events.category, classify.is_runtime_call)
    holder = ask(events.category, classify.is_op) | ask(events.category, classify.is_annotation)
    order = _outer_first(events, leaf, np.flatnonzero(leaf | holder))
    parent, depth = _parents(events, leaf, order)
    return Nesting(parent, depth, _levels(depth))


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


def _parents(events: Events, leaf: Flags, order: Ints) -> tuple[Ints, Ints]:
    """Walk the sorted rows once with a stack of the events that are still open."""
    parent = np.full(len(events), NO_ROW, dtype=np.int64)
    depth = np.full(len(events), NO_ROW, dtype=np.int64)
    sorted_columns = zip(
        order.tolist(),
        events.thread[order].tolist(),
        events.start_ns[order].tolist(),
        events.end_ns[order].tolist(),
        leaf[order].tolist(),
        strict=True,
    )
    thread, open_events = None, list[tuple[int, int, int]]()
    for row, row_thread, start, end, is_leaf in sorted_columns:
        if row_thread != thread:
            thread, open_events = row_thread, []
        while open_events and open_events[-1][1] <= start:
            open_events.pop()
        needed_end = start if is_leaf else end
        above = next((e for e in reversed(open_events) if e[1] >= needed_end), None)
        level = above[2] + 1 if above else 0
        parent[row], depth[row] = above[0] if above else NO_ROW, level
        if not is_leaf:
            open_events.append((row, end, level))
    return parent, depth


def _levels(depth: Ints) -> tuple[Ints, ...]:
    order = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[order], np.arange(depth.max(initial=NO_ROW) + 2))
    return tuple(np.split(order, bounds)[1:-1])
