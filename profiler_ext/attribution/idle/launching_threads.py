"""The threads that a launch depends on: their activity over time, and their waits.

The thread that runs the steps and autograd's threads take turns: one waits for the other, so a
launch of either depends on both. Any other thread that launches is independent.

Gloo works in threads of its own, and the thread that waits for it has no event meanwhile. It waits
if it does nothing from the call on, and continues within a moment of the collective's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from profiler_ext.attribution.idle.tracks import (
    NO_CAUSE,
    Spans,
    Track,
    Tracks,
    causes_of,
    code,
    combine_tracks,
    engine_events,
    overlays,
    track,
    with_engine,
)
from profiler_ext.attribution.trace.launches import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, Rows, take
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.kineto import classify, communication, names
from profiler_ext.records.events import Codes, Events, Ints, flag_rows
from profiler_ext.records.vocabulary import IdleCause

_SPANS_AT_ONCE = 1 << 16
_LINGER_NS = 1_000_000
_IN_PYTHON = (NO_CAUSE, code(IdleCause.PYTHON))
# The controls of the thread that runs the steps, and of autograd's threads; an independent thread
# has a number of its own after these
MAIN, ENGINE = 0, 1
_EMPTY: Ints = np.empty(0, dtype=np.int64)


def windows(
    spans: Spans, grace_ns: Callable[[Rows], Ints], may_begin: Callable[[Rows], Flags]
) -> Iterator[Spans]:
    """Cut spans where all of them are over and one begins alone."""
    # grace_ns: for how long after the spans of some events none may begin a window
    # Yields the spans of each window, at least one; a window is long where they cannot be cut
    begin, over_ns = 0, spans.start_ns[:1]
    for first in range(0, len(spans.row), _SPANS_AT_ONCE):
        chunk = spans.of(slice(first, first + _SPANS_AT_ONCE))
        ends_ns = np.append(over_ns, chunk.end_ns + grace_ns(chunk.row))
        reached_ns = np.maximum.accumulate(ends_ns)
        is_alone = np.diff(chunk.start_ns, append=chunk.start_ns[-1:]) > 0
        starts = np.flatnonzero(is_alone & (chunk.start_ns > reached_ns[:-1]))
        starts = starts[may_begin(chunk.row[starts])]
        if len(starts):
            yield spans.of(slice(begin, first + starts[0]))
            begin = first + starts[0]
        over_ns = reached_ns[-1:]
    yield spans.of(slice(begin, None))


class HostCollectives:
    """The collectives of a trace that the CPU does itself."""

    def __init__(self, events: Events, nesting: Nesting) -> None:
        self._is_collective = flag_rows(events.name, classify.is_host_collective) & (
            nesting.depth != NO_ROW
        )
        self._is_call = flag_rows(events.name, communication.is_communication)
        rows = np.flatnonzero(self._is_collective)
        ends_ns = events.start_ns[rows] + events.duration_ns[rows]
        order = np.argsort(ends_ns, kind="stable")
        self._rows, self._ends_ns = rows[order], ends_ns[order]

    def grace_ns(self, rows: Rows) -> Ints:
        """Return for how long after events a thread may still wait for them."""
        return np.where(self._is_collective[rows], _LINGER_NS, 0)

    def waited_for(self, own: Track) -> Track:
        """Return a track with the thread's waits for such collectives."""
        if not len(self._rows) or len(own.times_ns) < 2:
            return own
        begins, ends = own.times_ns[:-1], own.times_ns[1:]
        last = np.searchsorted(self._ends_ns, ends, side="right") - 1
        over = np.where(last >= 0, self._ends_ns[last], begins)
        is_after = self._is_call[own.row[:-2]] & (own.row[:-2] != NO_ROW)
        waited = np.isin(own.cause[1:-1], _IN_PYTHON) & is_after
        waited &= (over > begins) & (ends - over <= _LINGER_NS)
        at = np.flatnonzero(waited)
        over_ns = over[waited]
        rows = self._rows[last[waited]]
        segment, cause, row = at + 1, own.cause.copy(), own.row.copy()
        following = (own.cause[segment], own.row[segment])
        cause[segment], row[segment] = code(IdleCause.OTHER_RANK), rows
        inside = over_ns < own.times_ns[segment]
        after = segment[inside] + 1
        return Track(
            np.insert(own.times_ns, segment[inside], over_ns[inside]),
            np.insert(cause, after, following[0][inside]),
            np.insert(row, after, following[1][inside]),
        )


class ThreadGroups:
    """What the threads behind each launch did over time.

    Attributes:
        of_launch: the control of each launch.
    """

    def __init__(
        self, events: Events, nesting: Nesting, enqueued: EnqueuedLaunches, step_thread: int
    ) -> None:
        self._events, self._nesting = events, nesting
        self._of_engine = engine_events(events, nesting)
        by = np.where(enqueued.call == NO_ROW, enqueued.cpu, enqueued.call)
        launching = take(events.thread, by, NO_ROW)
        self._number = self._numbers(launching, step_thread)
        self.of_launch: Ints = take(self._number, launching, MAIN)
        self._spans = self._all_spans(enqueued)
        self._collectives = HostCollectives(events, nesting)

    def waits(self) -> tuple[Spans, Ints]:
        """Return when threads waited for a device, and their turns; by these, and in time."""
        frees = flag_rows(self._events.name, classify.is_free)[self._spans.row]
        is_wait = self._spans.cause == code(IdleCause.SYNCHRONISATION)
        is_wait |= frees & (self._spans.cause == code(IdleCause.ALLOCATING))
        selected = self._spans.of(is_wait)
        shared = shared_group(self._groups(selected.row))
        # A copy is waited for as long as its call lasts, of which the rest is a span.
        selected = replace(selected, start_ns=self._events.start_ns[selected.row])
        order = np.lexsort((selected.start_ns, shared))
        return selected.of(order), shared[order]

    def tracks(self) -> Tracks:
        """Return what the threads of each control did."""
        others = self._spans.of(self._groups(self._spans.row) > ENGINE)
        # Cut the spans where the thread that runs the steps restarts, and none waits for
        # it. What lies before is then no time of autograd's, nor any in which a collective is
        # awaited.
        overlaid = list(
            map(
                self._overlaid_tracks,
                windows(self._spans, self._collectives.grace_ns, self._starts_window),
            )
        )
        selected = combine_tracks(overlaid, others, self._groups(others.row))
        is_call = flag_rows(self._events.category, classify.is_runtime_call)
        is_known = ((self._nesting.depth != NO_ROW) & ~is_call).any()
        default_cause = code(IdleCause.PYTHON if is_known else IdleCause.NO_CPU_EVENTS)
        selected.cause[selected.cause == NO_CAUSE] = default_cause
        return selected

    def _starts_window(self, rows: Rows) -> Flags:
        starts: Flags = (self._groups(rows) == MAIN) & ~self._of_engine[rows]
        return starts

    def _overlaid_tracks(self, spans: Spans) -> tuple[Track, Track]:
        """Return the tracks of the thread that runs the steps, and of autograd's."""
        group = self._groups(spans.row)
        mains, engines = spans.of(group == MAIN), spans.of(group == ENGINE)
        main = self._collectives.waited_for(with_engine(track(mains), self._of_engine, _EMPTY))
        return overlays(main, with_engine(track(engines), self._of_engine, mains.start_ns))

    def _groups(self, rows: Rows) -> Ints:
        return self._number[self._events.thread[rows]]

    def _numbers(self, launching: Codes, step_thread: int) -> Ints:
        count = len(self._events.threads)
        numbers = np.full(count, NO_ROW, dtype=np.int64)
        own = np.unique(launching[launching != NO_ROW])
        numbers[own] = ENGINE + 1 + np.arange(len(own))
        numbers[np.unique(self._events.thread[self._of_engine])] = ENGINE
        numbers[[step_thread] if step_thread != NO_ROW else []] = MAIN
        return numbers

    def _all_spans(self, enqueued: EnqueuedLaunches) -> Spans:
        """Return the spans of the CPU's events, the outer ones first, and the ends of copies."""
        events, depth = self._events, self._nesting.depth
        causes = causes_of(events, self._nesting)
        copied = _copies_waited_for(events, enqueued)
        own = np.flatnonzero((depth != NO_ROW) & (causes != NO_CAUSE))
        rows = np.append(own, enqueued.call[copied]).astype(np.int32)
        is_copys = slice(len(own), None)
        start_ns, innermost, cause = events.start_ns[rows], depth[rows], causes[rows]
        start_ns[is_copys] = events.end_of(enqueued.event[copied])
        innermost[is_copys] += 1
        cause[is_copys] = code(IdleCause.SYNCHRONISATION)
        order = np.lexsort((innermost, start_ns))
        rows = rows[order]
        return Spans(start_ns[order], events.end_of(rows), rows, cause[order])


def shared_group(group: Ints) -> Ints:
    """Return which controls take turns: waits of one hold up all of these."""
    return np.where(group == ENGINE, MAIN, group)


def _copies_waited_for(events: Events, enqueued: EnqueuedLaunches) -> Ints:
    """Return the copies whose launch call returned after them: it waited, unlike others."""
    is_copy = flag_rows(events.category, classify.is_copy)[enqueued.event]
    replayed = flag_rows(events.name, names.is_graph_launch)
    rows = np.flatnonzero(is_copy & (enqueued.call != NO_ROW))
    calls, ends = enqueued.call[rows], events.end_of(enqueued.event[rows])
    waited = (ends > events.start_ns[calls]) & (ends < events.end_of(calls))
    is_wait = flag_rows(events.name, classify.is_device_wait)
    return rows[waited & ~replayed[calls] & ~is_wait[calls]]
