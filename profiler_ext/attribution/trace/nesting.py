"""The nesting of CPU events: the parent of each, and lookups up that chain."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from profiler_ext.attribution.trace.intervals import last_reaching
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, Rows, take
from profiler_ext.kineto import classify
from profiler_ext.records.events import Events, Ints, flag_rows

_NEVER_OPEN = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Nesting:
    """The CPU events of all threads as trees."""

    parent: Rows  # row of the innermost enclosing event, or ``NO_ROW``
    depth: Rows  # number of enclosing events; ``NO_ROW`` for rows that are no CPU event
    levels: tuple[Rows, ...]  # the rows of each depth, from 0 on
    # For each of these the position of its parent in the level above; 0 in the first
    above: tuple[Rows, ...]

    def nearest(self, wanted: Flags) -> Rows:
        """Return for each row the innermost wanted event that is it or encloses it."""
        is_wanted = [wanted.take(level) for level in self.levels]
        first = next((at for at, flags in enumerate(is_wanted) if flags.any()), None)
        if first is None:  # a broadcast scalar: a million rows take time
            return np.broadcast_to(np.int32(NO_ROW), len(self.parent))
        result = np.full(len(self.parent), NO_ROW, dtype=np.int32)
        above = np.full(len(self.levels[max(first - 1, 0)]), NO_ROW, dtype=np.int32)
        for at in range(first, len(self.levels)):
            level = self.levels[at]
            above = np.where(is_wanted[at], level, above.take(self.above[at]))
            result[level] = above
        return result

    def outermost(self, wanted: Flags, within: Flags) -> Rows:
        """Return for each row the outermost wanted event that is it or encloses it."""
        # within: events at which the search restarts; they are not found themselves
        result = np.full(len(self.parent), NO_ROW, dtype=np.int32)
        above = np.array([NO_ROW], dtype=np.int32)
        for level, up in zip(self.levels, self.above, strict=True):
            above = above.take(up)
            above = np.where((above == NO_ROW) & wanted.take(level), level, above)
            above[within.take(level)] = NO_ROW
            result[level] = above
        return result

    def holds(self, wanted: Flags) -> Flags:
        """Flag rows that enclose a wanted event."""
        parent = self.parent.tolist()
        is_inside = [False] * len(parent)
        for row in np.flatnonzero(wanted).tolist():
            above = parent[row]
            while above != NO_ROW and not is_inside[above]:
                is_inside[above] = True
                above = parent[above]
        return np.array(is_inside, dtype=np.bool_)


def nest(events: Events, further: Flags | None = None) -> Nesting:
    """Find the parent of every CPU event."""
    # Operators and ranges of a thread enclose what lies wholly inside them. A runtime call is timed
    # by another clock and may overhang: it belongs where it starts, and encloses nothing.
    leaf = flag_rows(events.category, classify.is_runtime_call)
    holder = flag_rows(events.category, classify.is_op) | flag_rows(
        events.category, classify.is_annotation
    )
    holder = holder if further is None else holder | further
    order = _outer_first(events, leaf, np.flatnonzero(leaf | holder).astype(np.int32))
    above = _innermost(events, order, leaf[order])
    parent, depth = (np.full(len(events), NO_ROW, dtype=np.int32) for _ in range(2))
    parent[order], depth[order] = take(order, above, NO_ROW), _depths(above)
    rows = np.flatnonzero(depth != NO_ROW).astype(np.int32)
    own = depth[rows]
    by_depth = rows[np.argsort(own, kind="stable")]
    levels = tuple(np.split(by_depth, np.cumsum(np.bincount(own))[:-1])) if len(rows) else ()
    return Nesting(parent, depth, levels, _above(parent, levels))


def _above(parent: Rows, levels: tuple[Rows, ...]) -> tuple[Rows, ...]:
    place = np.zeros(len(parent), dtype=np.int32)
    for level in levels:
        place[level] = np.arange(len(level))
    return tuple(
        place[parent[level]] if depth else np.zeros(len(level), dtype=np.int32)
        for depth, level in enumerate(levels)
    )


def _outer_first(events: Events, leaf: Flags, rows: Rows) -> Rows:
    """Sort by thread and start; of those that start together the outer one comes first."""
    rows = rows[np.lexsort((events.start_ns[rows], events.thread[rows]))]
    thread, start = events.thread[rows], events.start_ns[rows]
    is_same = (start[1:] == start[:-1]) & (thread[1:] == thread[:-1])
    together = np.flatnonzero(np.append(is_same, False) | np.append(False, is_same))
    some = rows[together]
    keys = (events.external_id[some].filled(0), -events.duration_ns[some], leaf[some])
    rows[together] = some[np.lexsort((*keys, start[together], thread[together]))]
    return rows


def _innermost(events: Events, rows: Rows, leaf: Flags) -> Rows:
    """Return for each of the sorted rows the position of its parent: the last still open."""
    # What ended before an event that opened after it encloses nothing more. So an event stays open
    # for later ones as long as its own time, and a later one that does is within it.
    thread = events.thread[rows]
    firsts = np.flatnonzero(np.append(True, thread[1:] != thread[:-1]))[: len(rows)]
    above = np.empty(len(rows), dtype=np.int32)
    for first, end in pairwise((*firsts.tolist(), len(rows))):
        some = slice(first, end)
        own = last_reaching(*_ends_and_limits(events, rows[some], leaf[some]))
        own[own != NO_ROW] += first
        above[some] = own
    return above


def _ends_and_limits(events: Events, rows: Rows, leaf: Flags) -> tuple[Ints, Ints]:
    """Return until when each of some events encloses others, and until when a parent must."""
    starts, ends = events.start_ns[rows], events.duration_ns[rows]
    limits = np.maximum(ends, 1)
    limits[leaf] = 1
    limits += starts
    ends += starts
    ends[leaf] = _NEVER_OPEN
    return ends, limits


def _depths(above: Rows) -> Rows:
    """Return the number of ancestors of each; each turn looks twice as far up as the last."""
    depth: Rows = (above != NO_ROW).astype(np.int32)
    up = above
    while len(on := np.flatnonzero(up != NO_ROW)):
        depth[on] += depth[up[on]]
        up = up.copy()
        up[on] = up[up[on]]
    return depth
