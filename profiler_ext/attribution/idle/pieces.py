"""Idle spans of devices, cut into pieces of one cause each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler_ext.attribution.idle.launching_threads import MAIN, ThreadGroups
from profiler_ext.attribution.idle.tracks import Causes, Tracks, code, is_of
from profiler_ext.attribution.step_breakdown import BusySpans
from profiler_ext.attribution.trace.intervals import Cuts, cut_at, gaps_between, timeline
from profiler_ext.attribution.trace.launches import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, take
from profiler_ext.kineto import classify
from profiler_ext.records.analysis import Step
from profiler_ext.records.events import Events, Ints, flag_rows
from profiler_ext.records.vocabulary import IdleCause

# Their intermediate arrays are then small compared with the trace
_SPANS_AT_ONCE = 1 << 16
_END_OF_STEP = code(IdleCause.END_OF_STEP)


@dataclass(frozen=True, slots=True)
class IdleSpans:
    """When devices ran nothing within the steps: by device, in order of time, none empty."""

    device: Ints
    step: Ints  # index of the step
    start_ns: Ints
    end_ns: Ints
    since_ns: Ints  # begin of the device's idle time; earlier than the start where a step began
    # The next launch on the device, or ``NO_ROW``; where a step ended it, the launch is not in it
    ended_by_signal: Ints

    def __len__(self) -> int:
        return len(self.start_ns)

    def at(self, rows: slice) -> IdleSpans:
        """Return some of them."""
        return IdleSpans(*(getattr(self, name)[rows] for name in self.__slots__))


def idle_spans(busy: Sequence[BusySpans], steps: Sequence[Step]) -> IdleSpans:
    """Return when devices ran nothing; where steps overlap, a moment is of the last begun."""
    # busy: for each device its busy spans, in nanoseconds of the trace's clock
    starts, ends = np.array([(s.start_ns, s.end_ns) for s in steps], np.int64).reshape(-1, 2).T
    laid_out = timeline(starts, ends)
    owners = laid_out.opened[:-1]
    selected = np.flatnonzero(owners != NO_ROW)
    parts = laid_out.times_ns[:-1][selected], laid_out.times_ns[1:][selected], owners[selected]
    columns = zip(*(_idle(device, parts) for device in busy), strict=True)
    return IdleSpans(*(np.concatenate(column).astype(np.int64) for column in columns))


def _idle(device: BusySpans, parts: tuple[Ints, Ints, Ints]) -> tuple[Ints, ...]:
    """Return what lies before, between and after a device's launches in each part."""
    begins, ends, owners = parts
    idle = gaps_between(device.start_ns, device.end_ns, begins, ends)
    launch = np.append(device.launch, NO_ROW)[idle.following]
    before = np.append(device.end_ns, 0)[idle.following - 1]
    since = np.where(idle.following == 0, idle.start_ns, before)
    every = np.full(len(launch), device.device)
    return every, owners[idle.window], idle.start_ns, idle.end_ns, since, launch


class Overhead:
    """The profiler's work while a thread did nothing else.

    The trace does not show the thread that it delayed: it is the one with a segment that covers
    most of it.
    """

    def __init__(self, events: Events) -> None:
        rows = np.flatnonzero(flag_rows(events.category, classify.is_profilers))
        rows = rows[np.lexsort((-events.duration_ns[rows], events.start_ns[rows]))]
        self._start_ns, self._end_ns = events.start_ns[rows], events.end_of(rows)
        laid_out = timeline(self._start_ns, self._end_ns)
        lasts = np.append(np.diff(laid_out.times_ns) > 0, True)[: len(laid_out.times_ns)]
        self._times_ns = laid_out.times_ns[lasts]
        self._owner = np.append(np.array([NO_ROW], dtype=np.int64), laid_out.opened[lasts])

    def name(self, tracks: Tracks, group: Ints, cuts: Cuts) -> tuple[Cuts, Causes]:
        """Cut parts of spans where the profiler began or ended, and name their causes."""
        finer = cut_at(self._times_ns, cuts.start_ns, cuts.start_ns + cuts.duration_ns)
        segment, owner = cuts.segment[finer.span], self._owner[finer.segment]
        cause = tracks.cause[segment]
        at = np.flatnonzero((owner != NO_ROW) & (cause != code(IdleCause.SYNCHRONISATION)))
        begins, ends = tracks.extents(group[finer.span[at]], segment[at])
        starts, stops = self._start_ns[owner[at]], self._end_ns[owner[at]]
        common = np.minimum(ends, stops) - np.maximum(begins, starts)
        cause[at[2 * common > stops - starts]] = code(IdleCause.PROFILER)
        span = cuts.span[finer.span]
        return Cuts(span, segment, finer.start_ns, finer.duration_ns), cause


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of idle spans, those of a span one after the other."""

    span: Ints  # index of the span
    start_ns: Ints  # when each begins
    duration_ns: Ints
    cause: Causes  # the number of its cause

    def at(self, rows: Ints | Flags | slice) -> Pieces:
        """Return some of them."""
        start_ns, duration_ns = self.start_ns[rows], self.duration_ns[rows]
        return Pieces(self.span[rows], start_ns, duration_ns, self.cause[rows])


def _merged(parts: Sequence[Pieces]) -> Pieces:
    """Merge lists of pieces in order of their spans, and of time."""
    every = concatenated(parts)
    return every.at(np.lexsort((every.start_ns, every.span)))


def concatenated(parts: Sequence[Pieces]) -> Pieces:
    """Return the pieces of several lists."""
    names = Pieces.__slots__
    return Pieces(*(np.concatenate([getattr(each, name) for each in parts]) for name in names))


class PieceCutter:
    """Cuts the idle spans of devices into pieces."""

    def __init__(self, events: Events, enqueued: EnqueuedLaunches, groups: ThreadGroups) -> None:
        self._of_launch = groups.of_launch
        self.tracks = groups.tracks()
        self._overhead = Overhead(events)
        by = enqueued.event if enqueued.on_cpu else enqueued.call
        called_ns = take(events.start_ns, by, NO_ROW)
        if not enqueued.on_cpu:
            called_ns += take(events.duration_ns, by, 0)
        # The last of each is that of spans which no launch ended.
        self._called_ns = np.append(called_ns, 0)
        self._is_known = np.append(by != NO_ROW, True)
        self._enqueued_ns = np.append(enqueued.enqueue_ns, np.iinfo(np.int64).max)

    def groups(self, idle: IdleSpans, spans: Ints) -> Ints:
        """Return the control of what ended spans; of what nothing ended, that of the steps."""
        return take(self._of_launch, idle.ended_by_signal[spans], MAIN)

    def pieces(self, idle: IdleSpans, marks: tuple[Ints, Ints]) -> Pieces:
        """Return the pieces of idle spans."""
        firsts = range(0, max(len(idle), 1), _SPANS_AT_ONCE)
        return concatenated([self._chunk(idle, at, marks) for at in firsts])

    def _chunk(self, every: IdleSpans, first: int, marks: tuple[Ints, Ints]) -> Pieces:
        idle = every.at(slice(first, first + _SPANS_AT_ONCE))
        called = np.where(
            idle.ended_by_signal == NO_ROW, idle.end_ns, self._called_ns[idle.ended_by_signal]
        )
        known = self._is_known[idle.ended_by_signal]
        until = np.where(known, np.clip(called, idle.start_ns, idle.end_ns), idle.start_ns)
        latency, between = (
            code(each) for each in (IdleCause.LAUNCH_LATENCY, IdleCause.BETWEEN_LAUNCHES)
        )
        why = np.where(called > idle.since_ns, latency, between)
        why = np.where(known, why, code(IdleCause.NO_LAUNCH_CALL))
        rows = np.flatnonzero(idle.end_ns > until)
        after_launch = Pieces(rows, until[rows], (idle.end_ns - until)[rows], why[rows])
        pieces = _merged([self._before_launch(idle, until), after_launch])
        pieces = self._with_ends(_without_repeats(pieces), idle, marks)
        return replace(pieces, span=pieces.span + first)

    def _before_launch(self, idle: IdleSpans, until: Ints) -> Pieces:
        """Cut spans by what the CPU did until the launch call was over."""
        rows = np.flatnonzero(until > idle.start_ns)
        group = self.groups(idle, rows)
        cuts = self.tracks.cut(group, idle.start_ns[rows], until[rows])
        cuts, cause = self._overhead.name(self.tracks, group[cuts.span], cuts)
        return Pieces(rows[cuts.span], cuts.start_ns, cuts.duration_ns, cause)

    def _with_ends(self, pieces: Pieces, idle: IdleSpans, marks: tuple[Ints, Ints]) -> Pieces:
        """Name the Python time between the last launch of a step and the step's mark."""
        # On a device that time is of the next step, which begins when the device has finished this
        # one.
        begun_ns, ended_ns = (each[idle.step] for each in marks)
        is_late = self._enqueued_ns[idle.ended_by_signal] >= ended_ns
        is_python = is_of(pieces.cause, [IdleCause.PYTHON])
        begun_ns, ends_ns = begun_ns[pieces.span], pieces.start_ns + pieces.duration_ns
        is_before = is_python & (pieces.start_ns < begun_ns)
        cause = np.where(is_before | (is_python & is_late[pieces.span]), _END_OF_STEP, pieces.cause)
        remaining = np.flatnonzero(is_before & (ends_ns > begun_ns))
        duration_ns = np.minimum(
            pieces.duration_ns, np.where(is_before, begun_ns, ends_ns) - pieces.start_ns
        )
        own = Pieces(pieces.span, pieces.start_ns, duration_ns, cause)
        if not len(remaining):
            return own
        left_ns = (ends_ns - begun_ns)[remaining]
        return _merged(
            [
                own,
                Pieces(
                    pieces.span[remaining], begun_ns[remaining], left_ns, pieces.cause[remaining]
                ),
            ]
        )


def _without_repeats(pieces: Pieces) -> Pieces:
    """Merge neighbours in a span that have the same cause."""
    if not len(pieces.span):
        return pieces
    changes = (np.diff(pieces.span) != 0) | (np.diff(pieces.cause) != 0)
    firsts = np.flatnonzero(np.append(True, changes))
    lengths = np.add.reduceat(pieces.duration_ns, firsts)
    first = pieces.at(firsts)
    return Pieces(first.span, first.start_ns, lengths, first.cause)
