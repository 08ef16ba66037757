"""Owns what a CPU did in time, as far as it says why a device waits."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from profiler_ext.attribution.idle.cpu_causes import NO_CAUSE, Causes, code
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, Rows, take
from profiler_ext.attribution.trace.timelines import timeline
from profiler_ext.records import IdleCause, Ints


@dataclass(frozen=True, slots=True)
class Track:
    """What some threads did: the segment before the first time, and from each time on.

    Attributes:
        times_ns: when that changes, in order, none twice.
        cause: the number of a cause for each segment, one more than there are times.
        row: the innermost event of each, or ``NO_ROW``.
    """

    times_ns: Ints
    cause: Causes
    row: Rows

    def segments_at(self, times_ns: Ints) -> Ints:
        """Return the segment that each time is in."""
        return np.searchsorted(self.times_ns, times_ns, side="right").astype(np.int64, copy=False)


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of the CPU's time: when each is open, its event and its cause."""

    start_ns: Ints
    end_ns: Ints
    row: Rows
    cause: Causes

    def of(self, wanted: Flags | Ints | slice) -> Spans:
        """Return the wanted ones, in the order of these."""
        start_ns, end_ns = self.start_ns[wanted], self.end_ns[wanted]
        return Spans(start_ns, end_ns, self.row[wanted], self.cause[wanted])


def track(spans: Spans) -> Track:
    """Lay out spans, of those that are open the one that opened last.

    Args:
        spans: in order of start, the outer ones first.

    Returns:
        The track of the threads whose spans they are.
    """
    laid_out = timeline(spans.start_ns, spans.end_ns)
    times, opened = laid_out.times_ns, laid_out.opened
    is_last = np.append(times[1:] != times[:-1], True)[: len(times)]
    opened = np.append(np.array([NO_ROW], dtype=np.int64), opened[is_last])
    return Track(times[is_last], take(spans.cause, opened, NO_CAUSE), take(spans.row, opened, NO_ROW))


def with_engine(own: Track, of_engine: Flags, others_start_ns: Ints) -> Track:
    """Name the time between two events of autograd's engine, in which nothing else began.

    Args:
        own: what the threads did.
        of_engine: which events run in the engine.
        others_start_ns: when events of the thread that waits for it began, in order.

    Returns:
        The track; that time is autograd's.
    """
    in_engine = of_engine[own.row] & (own.row != NO_ROW)
    between = np.zeros(len(own.cause), dtype=np.bool_)
    if len(own.times_ns) > 1:
        begun = np.searchsorted(others_start_ns, own.times_ns, side="left")
        alone = begun[1:] == begun[:-1]
        between[1:-1] = (own.cause[1:-1] == NO_CAUSE) & in_engine[:-2] & in_engine[2:] & alone
    return replace(own, cause=np.where(between, code(IdleCause.AUTOGRAD), own.cause))


def overlays(first: Track, second: Track) -> tuple[Track, Track]:
    """Lay each of two tracks over the other, which counts where that is in Python or does nothing.

    Args:
        first: one of them.
        second: the other.

    Returns:
        What counts if the first does more, and if the second does; both change at the same times.
    """
    times, (of_first, of_second) = _merged(first.times_ns, second.times_ns)
    first = Track(times, first.cause[of_first], first.row[of_first])
    second = Track(times, second.cause[of_second], second.row[of_second])
    return _overlay(first, second), _overlay(second, first)


def _overlay(first: Track, second: Track) -> Track:
    is_overridden = (first.cause == NO_CAUSE) | (first.cause == code(IdleCause.PYTHON))
    is_overridden &= second.cause != NO_CAUSE
    cause = np.where(is_overridden, second.cause, first.cause)
    return Track(first.times_ns, cause, np.where(is_overridden, second.row, first.row))


def _merged(first: Ints, second: Ints) -> tuple[Ints, tuple[Ints, Ints]]:
    """Return the times of two, none twice; and which segment of each is before them, and from each.

    A stable sort merges two runs in order.
    """
    times = np.concatenate([first, second])
    order = np.argsort(times, kind="stable")
    times, is_first = times[order], order < len(first)
    is_last = np.flatnonzero(np.append(times[1:] != times[:-1], True)[: len(times)])
    of_first = np.append(0, np.cumsum(is_first)[is_last])
    return times[is_last], (of_first, np.append(0, is_last + 1) - of_first)
