"""Owns the pieces of idle spans, each of one cause, told by what ended the span."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.idle.controls import Controls
from profiler_ext.attribution.idle.cpu_causes import code, is_of
from profiler_ext.attribution.idle.spans import DeviceIdle
from profiler_ext.attribution.idle.tracks import Track
from profiler_ext.attribution.trace.cutting import cut_at
from profiler_ext.attribution.trace.enqueued import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, take
from profiler_ext.records import Events, IdleCause, Ints


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of one device's idle spans.

    Attributes:
        span: index of the span.
        start_ns: when each begins.
        duration_ns: how long it is.
        cause: the number of its cause.
    """

    span: Ints
    start_ns: Ints
    duration_ns: Ints
    cause: Ints

    def at(self, rows: Ints | Flags) -> Pieces:
        """Return some of them."""
        columns = (self.span, self.start_ns, self.duration_ns, self.cause)
        return Pieces(*(column[rows] for column in columns))


def joined(parts: list[Pieces]) -> Pieces:
    """Return pieces of several lists in order of time."""
    names = Pieces.__slots__
    every = Pieces(*(np.concatenate([getattr(each, name) for each in parts]) for name in names))
    return every.at(np.argsort(every.start_ns, kind="stable"))


class Cutter:
    """Cuts the idle spans of devices into pieces."""

    def __init__(
        self, events: Events, enqueued: EnqueuedLaunches, controls: Controls, step_ends: Ints
    ) -> None:
        """Take what is known.

        Args:
            events: the trace's events.
            enqueued: the launches.
            controls: what led to each.
            step_ends: the end of each step.
        """
        self._enqueued, self._controls, self._step_ends = enqueued, controls, step_ends
        self._tracks = dict(controls.tracks())
        starts = events.end_ns if not enqueued.on_cpu else events.start_ns
        by = enqueued.event if enqueued.on_cpu else enqueued.call
        self._called_ns = take(starts, by, NO_ROW)
        self._is_known = by != NO_ROW

    def pieces(self, idle: DeviceIdle) -> Iterator[tuple[int, Track, Pieces]]:
        """Yield for each control its track and the pieces of the spans that it ended, in order.

        Args:
            idle: the idle spans of a device.
        """
        # What nothing ended, the thread that makes the steps did not end.
        controls = take(self._controls.of_launch, idle.ended_by, 0)
        for control in np.unique(controls).tolist():
            track, rows = self._tracks[control], np.flatnonzero(controls == control)
            yield control, track, self._named(self._cut(idle, rows, track), idle)

    def _cut(self, idle: DeviceIdle, rows: Ints, track: Track) -> Pieces:
        """Cut spans by what the CPU did until the launch call was over, and add what followed."""
        start, end, launch = idle.start_ns[rows], idle.end_ns[rows], idle.ended_by[rows]
        called = np.where(launch == NO_ROW, end, np.append(self._called_ns, 0)[launch])
        known = np.append(self._is_known, True)[launch]
        until = np.where(known, np.clip(called, start, end), start)
        on_way = np.flatnonzero(until > start)
        cuts = cut_at(track.times_ns, start[on_way], until[on_way])
        span = rows[on_way[cuts.span]]
        led = Pieces(span, cuts.start_ns, cuts.duration_ns, track.cause[cuts.segment])
        after = np.flatnonzero(end > until)
        codes = (code(each) for each in (IdleCause.LAUNCH_LATENCY, IdleCause.BETWEEN_LAUNCHES))
        latency, between = codes
        why = np.where(called > idle.since_ns[rows], latency, between)
        why = np.where(known, why, code(IdleCause.NO_LAUNCH_CALL))[after]
        rest = Pieces(rows[after], until[after], (end - until)[after], why)
        return _without_repeats(joined([led, rest]))

    def _named(self, pieces: Pieces, idle: DeviceIdle) -> Pieces:
        """Give Python after the last launch of a step its name."""
        enqueued_ns = np.append(self._enqueued.enqueue_ns, np.iinfo(np.int64).max)
        is_late = enqueued_ns[idle.ended_by] >= self._step_ends[idle.step]
        is_end = is_of(pieces.cause, [IdleCause.PYTHON]) & is_late[pieces.span]
        cause = np.where(is_end, code(IdleCause.END_OF_STEP), pieces.cause)
        return Pieces(pieces.span, pieces.start_ns, pieces.duration_ns, cause)


def _without_repeats(pieces: Pieces) -> Pieces:
    """Put together what follows each other in a span and has the same cause."""
    if not len(pieces.span):
        return pieces
    changes = (np.diff(pieces.span) != 0) | (np.diff(pieces.cause) != 0)
    firsts = np.flatnonzero(np.append(True, changes))
    lengths = np.add.reduceat(pieces.duration_ns, firsts)
    first = pieces.at(firsts)
    return Pieces(first.span, first.start_ns, lengths, first.cause)
