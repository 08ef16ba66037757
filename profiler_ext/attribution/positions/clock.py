"""Owns how the clock of the watch of lines is laid over the trace's, and how exactly.

Each mark gives bounds: its event began after the watch read its clock the first time, and was
over before it read it again. All of them together leave little room, if both clocks run alike;
where one of them was set meanwhile, what is between two marks is between their bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.trace.lookups import flag_rows
from profiler_ext.kineto import names
from profiler_ext.records import ClockMark, Events, Ints


@dataclass(frozen=True, slots=True)
class WatchClock:
    """The clock of the watch on the trace's clock.

    Attributes:
        moments_ns: moments on the watch's clock, in order.
        offsets_ns: what is added at each to have the trace's time; between them it is in between.
        error_ns: how far that may be off.
    """

    moments_ns: Ints
    offsets_ns: Ints
    error_ns: int

    def on_trace(self, times_ns: Ints) -> Ints:
        """Return times of the watch as the trace's clock has them."""
        start = int(self.moments_ns[0])
        offsets = np.interp(times_ns - start, self.moments_ns - start, self.offsets_ns)
        return times_ns + np.round(offsets).astype(np.int64)


def watch_clock(events: Events, marks: Sequence[ClockMark]) -> WatchClock | None:
    """Lay the watch's clock over the trace's.

    Args:
        events: the events of the trace; those of the marks name their numbers.
        marks: the moments as the watch noted them.

    Returns:
        The clock; ``None`` where the trace has none of the marks.
    """
    bounds = np.array(sorted(_bounds(events, marks)), dtype=np.int64).reshape(-1, 3)
    moments, lows, highs = bounds.T
    if not len(bounds):
        return None
    low, high = int(lows.max()), int(highs.min())
    if low <= high:
        error = (high - low + 1) // 2
        return WatchClock(moments[:1], _middle(lows.max(keepdims=True), highs.min()), error)
    offsets = _middle(lows, highs)
    drift = int(np.abs(np.diff(offsets)).max())
    return WatchClock(moments, offsets, int((highs - lows).max()) + drift)


def _middle(low: Ints, high: Ints) -> Ints:
    return low + (high - low) // 2


def _bounds(events: Events, marks: Sequence[ClockMark]) -> Iterator[tuple[int, int, int]]:
    """Yield the moment of each mark, and the least and largest offset that it allows."""
    rows = np.flatnonzero(
        flag_rows(events.name, lambda name: names.marked_moment(name) is not None)
    )
    known = {names.marked_moment(events.name[row]): row for row in rows.tolist()}
    for mark in marks:
        if (row := known.get(mark.number)) is not None:
            start, end = int(events.start_ns[row]), events.end_at(row)
            low, high = end - mark.after_ns, start - mark.before_ns
            if low <= high:
                yield mark.before_ns, low, high
