"""Interval arithmetic on columns of time spans: which is open, gaps between them, cuts.

Vectorized: a stack would need a step of Python for each span.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.trace.lookups import NO_ROW, Rows
from profiler_ext.records.events import Ints

_MIN_VALUE = np.iinfo(np.int64).min


def last_reaching(values: Ints, limits: Ints) -> Rows:
    """Return for each position the last one before it whose value is its limit or more.

    Returns the position, or ``NO_ROW``.
    """
    result = np.arange(-1, len(values) - 1, dtype=np.int32)  # most often it is the one before
    places = blocks = np.append(0, np.flatnonzero(values[:-1] < limits[1:]) + 1)[: len(values)]
    result[places] = NO_ROW
    levels = [values]
    while len(levels[-1]) > 1:
        last = levels[-1]
        if len(last) % 2:
            last = np.append(last, _MIN_VALUE)
        levels.append(np.maximum(last[::2], last[1::2]))
    hits: list[tuple[Ints, Ints]] = []
    for maxima in levels:
        # Whole blocks lie before a position; only for the last, if it is the first of a pair, is a
        # larger block of no use.
        is_hit = (blocks % 2 == 1) & (maxima.take(blocks - 1) >= limits.take(places))
        hits.append((places[is_hit], blocks[is_hit] - 1))
        goes_on = ~is_hit & (blocks > 1)
        places, blocks = places[goes_on], blocks[goes_on] // 2
    places, blocks = np.empty((2, 0), dtype=np.int64)
    for maxima, (more, own) in zip(reversed(levels), reversed(hits), strict=True):
        # The last half that holds such a value: there is one, so it is the first if not the second.
        second = np.minimum(2 * blocks + 1, len(maxima) - 1)
        halves = np.where(maxima.take(second) >= limits.take(places), second, 2 * blocks)
        places, blocks = np.append(places, more), np.append(halves, own)
    result[places] = blocks
    return result


@dataclass(frozen=True, slots=True)
class Gaps:
    """The parts of windows that no span covers; in order, none empty."""

    window: Ints  # index of the window
    following: Ints  # index of the span that ends it, or would; the number of spans after all
    start_ns: Ints
    end_ns: Ints


def gaps_between(start_ns: Ints, end_ns: Ints, begins: Ints, ends: Ints) -> Gaps:
    """Return the parts of windows that are in no span; spans are in order, without overlaps."""
    firsts = np.searchsorted(end_ns, begins, side="right")
    lasts = np.maximum(firsts, np.searchsorted(start_ns, ends, side="left"))
    count = lasts - firsts + 1
    window = np.repeat(np.arange(len(begins)), count)
    following = np.arange(len(window)) - np.repeat(np.cumsum(count) - count - firsts, count)
    is_first, is_last = following == firsts[window], following == lasts[window]
    opens = np.where(is_first, begins[window], np.append(end_ns, 0)[following - 1])
    closes = np.where(is_last, ends[window], np.append(start_ns, 0)[following])
    is_gap = np.flatnonzero(closes > opens)
    return Gaps(window[is_gap], following[is_gap], opens[is_gap], closes[is_gap])


@dataclass(frozen=True, slots=True)
class Cuts:
    """Parts of spans, in order; those of a span one after the other."""

    span: Ints  # index of the span
    segment: Ints  # number of changes before it, so its segment of time
    start_ns: Ints
    duration_ns: Ints  # not zero, if no span is

    def at(self, rows: Ints | slice) -> Cuts:
        """Return some of them."""
        return Cuts(*(getattr(self, name)[rows] for name in self.__slots__))


def cut_at(times_ns: Ints, start_ns: Ints, end_ns: Ints) -> Cuts:
    """Cut spans where times lie within them."""
    first = np.searchsorted(times_ns, start_ns, side="right").astype(np.int64, copy=False)
    last = np.searchsorted(times_ns, end_ns, side="left").astype(np.int64, copy=False)
    return cut_between(times_ns.take, (first, last), start_ns, end_ns)


def cut_between(
    times_ns: Callable[[Ints], Ints], within: tuple[Ints, Ints], start_ns: Ints, end_ns: Ints
) -> Cuts:
    """Cut spans by times within them."""
    # times_ns: returns times by their indices; those within a span are in order
    # within: index of the first time within each span, and of the first after them
    first, last = within
    counts = np.maximum(last - first, 0) + 1
    span = np.repeat(np.arange(len(start_ns)), counts)
    firsts = first.take(span)
    segment = np.arange(len(span)) - (np.cumsum(counts) - counts).take(span) + firsts
    is_first = segment == firsts
    starts, later = start_ns.take(span), np.flatnonzero(~is_first)
    starts[later] = times_ns(segment[later] - 1)
    is_last = np.append(is_first[1:], True)[: len(span)]
    ends = np.where(is_last, end_ns.take(span), np.append(starts[1:], 0)[: len(span)])
    return Cuts(span, segment, starts, ends - starts)


@dataclass(frozen=True, slots=True)
class Timeline:
    """What is open from each time on, until the next."""

    times_ns: Ints  # the changes, in order
    opened: Ints  # the span that is open from then on, or ``NO_ROW``

    def at(self, times_ns: Ints) -> Ints:
        """Return the span that is open at each time, or ``NO_ROW``."""
        before = np.searchsorted(self.times_ns, times_ns, side="right") - 1
        return np.append(self.opened, NO_ROW)[before]


def timeline(starts_ns: Ints, ends_ns: Ints) -> Timeline:
    """Lay out spans; a span is open at its start, and no longer at its end."""
    # The first is open when the span is over; the other, if it begins before that, hides its end.
    backwards = last_reaching(ends_ns[::-1], ends_ns[::-1])[::-1]
    last = len(ends_ns) - 1
    below, hidden_by = (
        last_reaching(ends_ns, ends_ns + 1),
        np.where(backwards == NO_ROW, last + 1, last - backwards),
    )
    starts_after = np.append(starts_ns, np.iinfo(np.int64).max)[hidden_by]
    closing = np.flatnonzero(starts_after >= ends_ns)
    # What ends when others begin is over before them; a span of no time is so after it began.
    begun = np.maximum(np.searchsorted(starts_ns, ends_ns[closing]), closing + 1)
    order = np.lexsort((ends_ns[closing], begun))
    closing, begun = closing[order], begun[order]
    at = np.arange(len(closing)) + begun
    times, opened = np.empty((2, len(starts_ns) + len(closing)), dtype=np.int64)
    is_start = np.ones(len(times), dtype=np.bool_)
    is_start[at] = False
    times[is_start], opened[is_start] = starts_ns, np.arange(len(starts_ns))
    times[at], opened[at] = ends_ns[closing], below[closing]
    return Timeline(times, opened)
