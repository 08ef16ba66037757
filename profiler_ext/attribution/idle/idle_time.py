"""Owns the way from idle spans to their pieces, each of one cause, at one place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from profiler_ext.attribution.cpu_places import CpuPlaces
from profiler_ext.attribution.idle.activities import Activities
from profiler_ext.attribution.idle.after_waits import lost_leads, with_consequences
from profiler_ext.attribution.idle.controls import Controls
from profiler_ext.attribution.idle.cpu_causes import CAUSES, code, is_of
from profiler_ext.attribution.idle.pieces import Cutter, Pieces
from profiler_ext.attribution.idle.spans import DeviceIdle, all_idle
from profiler_ext.attribution.idle.tracks import Track
from profiler_ext.attribution.ledger import BusySpans
from profiler_ext.attribution.trace.cutting import cut_at
from profiler_ext.attribution.trace.enqueued import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import Flags
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.records import (
    NO_IDLE,
    Events,
    GapReason,
    IdleCause,
    IdlePieces,
    Interned,
    Ints,
    Step,
)

_Columns = tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints]


def find_idle(
    events: Events,
    nesting: Nesting,
    enqueued: EnqueuedLaunches,
    places: CpuPlaces,
    busy: Sequence[BusySpans],
    steps: Sequence[Step],
) -> IdlePieces:
    """Return all idle time of the steps, in pieces.

    Args:
        events: the trace's events.
        nesting: which of them stands in which.
        enqueued: the launches.
        places: where the thread that makes the steps was.
        busy: when each device was busy.
        steps: the profiled steps.
    """
    finder = _Finder(events, nesting, enqueued, places, steps)
    columns = [each for own in busy for each in finder.of(own)]
    if not columns:
        return NO_IDLE
    return finder.pieces([np.concatenate(column) for column in zip(*columns, strict=True)])


class _Finder:
    def __init__(
        self,
        events: Events,
        nesting: Nesting,
        enqueued: EnqueuedLaunches,
        places: CpuPlaces,
        steps: Sequence[Step],
    ) -> None:
        self._places, self._steps = places, steps
        self._activities = Activities(events, nesting)
        self._controls = Controls(events, nesting, enqueued, places.thread)
        ends = np.array([step.end_ns for step in steps], dtype=np.int64)
        self._cutter = Cutter(events, enqueued, self._controls, ends)
        self._enqueue_ns = np.sort(enqueued.enqueue_ns)
        self._numbers = np.array([step.number for step in steps], dtype=np.int64)
        self._spans = 0

    def of(self, busy: BusySpans) -> Iterator[_Columns]:
        """Yield the columns of a device's pieces, for each control of launches."""
        (idle,) = all_idle([busy], self._steps)
        for control, track, pieces in self._cutter.pieces(idle):
            leads = lost_leads(self._controls.waits(control), busy, self._enqueue_ns)
            yield self._columns(idle, track, *with_consequences(pieces, leads))
        self._spans += len(idle.step)

    def pieces(self, columns: Sequence[Ints]) -> IdlePieces:
        """Return the pieces of all devices in order of time."""
        order = np.lexsort((columns[1], columns[3]))
        step, device, span, start, length, cause, place, of_cause, row = (
            column[order] for column in columns
        )
        return IdlePieces(
            step=step,
            device=device,
            span=span,
            start_ns=start,
            duration_ns=length,
            cause=Interned(cause.astype(np.int32), tuple(each.value for each in CAUSES)),
            place=place.astype(np.int32),
            cause_place=of_cause.astype(np.int32),
            cpu_activity=self._activities.named(row),
            places=self._places.places,
        )

    def _columns(self, idle: DeviceIdle, track: Track, pieces: Pieces, moments: Ints) -> _Columns:
        """Cut pieces by where the CPU was."""
        ends = pieces.start_ns + pieces.duration_ns
        cuts = cut_at(self._places.times_ns, pieces.start_ns, ends)
        place, cause = self._places.codes[cuts.segment], pieces.cause[cuts.span]
        is_after = is_of(cause, [IdleCause.AFTER_SYNCHRONISATION])
        of_cause = np.where(is_after, self._places.at(moments)[cuts.span], place)
        cause = np.where(self._is_recorders(cause, place), code(IdleCause.PROFILER), cause)
        end_ns = cuts.start_ns + cuts.duration_ns
        return (
            self._numbers[idle.step[pieces.span[cuts.span]]],
            np.full(len(cause), idle.device),
            self._spans + pieces.span[cuts.span],
            cuts.start_ns,
            cuts.duration_ns,
            cause,
            place,
            of_cause,
            self._activities.rows(track, cuts.start_ns, end_ns),
        )

    def _is_recorders(self, cause: Ints, place: Ints) -> Flags:
        """Flag Python after the watch of lines had ended: the recording itself ends then."""
        ended = _of_gap(self._places, GapReason.LINES_ENDED)
        is_python = is_of(cause, [IdleCause.PYTHON, IdleCause.END_OF_STEP])
        flags: Flags = is_python & np.isin(place, list(ended))
        return flags


def _of_gap(places: CpuPlaces, gap: GapReason) -> Iterable[int]:
    return [number for number, place in enumerate(places.places) if place.gap == gap]
