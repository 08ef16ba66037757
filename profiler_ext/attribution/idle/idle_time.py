"""Owns the way from idle spans to their pieces, each of one cause, at one place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from profiler_ext.attribution.cpu_places import CpuPlaces
from profiler_ext.attribution.idle.activities import Activities
from profiler_ext.attribution.idle.after_waits import consequences, split
from profiler_ext.attribution.idle.controls import ThreadGroups, shared_group
from profiler_ext.attribution.idle.cpu_causes import CAUSES, Causes, code, is_of
from profiler_ext.attribution.idle.pieces import PieceCutter, Pieces, concatenated
from profiler_ext.attribution.idle.spans import IdleSpans, idle_spans
from profiler_ext.attribution.idle.wait_lines import WaitLines
from profiler_ext.attribution.ledger import BusySpans
from profiler_ext.attribution.trace.cutting import Cuts, cut_at
from profiler_ext.attribution.trace.enqueued import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, Rows
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.records import (
    NO_IDLE,
    Codes,
    Events,
    GapReason,
    IdleCause,
    IdlePieces,
    Interned,
    Ints,
    Step,
)

_CPU_CAUSES = (
    IdleCause.PYTHON,
    IdleCause.END_OF_STEP,
    IdleCause.LAUNCHING,
    IdleCause.AFTER_SYNCHRONISATION,
)
"""What the CPU's own way to the next launch is called, if there is one."""

_CUTS_AT_ONCE = 1 << 16
"""What is made of them on the way to their names is then small beside the trace."""

_NO_ROWS: Ints = np.empty(0, dtype=np.int64)


def find_idle(
    events: Events,
    nesting: Nesting,
    enqueued: EnqueuedLaunches,
    places: CpuPlaces,
    wait_lines: WaitLines,
    busy: Sequence[BusySpans],
    steps: Sequence[Step],
) -> IdlePieces:
    """Return all idle time of the steps, in pieces.

    Args:
        events: the trace's events.
        nesting: which of them stands in which.
        enqueued: the launches.
        places: where the thread that makes the steps was.
        wait_lines: at which lines compiled graphs wait.
        busy: when each device was busy.
        steps: the profiled steps.
    """
    if not steps:
        return NO_IDLE
    return _IdleFinder(events, nesting, enqueued, places, wait_lines).pieces(busy, steps)


class _IdleFinder:
    def __init__(
        self,
        events: Events,
        nesting: Nesting,
        enqueued: EnqueuedLaunches,
        places: CpuPlaces,
        wait_lines: WaitLines,
    ) -> None:
        self._places, self._wait_lines = places, wait_lines
        self._activities = Activities(events, nesting)
        groups = ThreadGroups(events, nesting, enqueued, places.thread)
        self._waits, self._wait_groups = groups.waits()
        self._piece_cutter = PieceCutter(events, enqueued, groups)

    def pieces(self, busy: Sequence[BusySpans], steps: Sequence[Step]) -> IdlePieces:
        """Return the pieces of all devices in order of time."""
        idle = idle_spans(busy, steps)
        marks = [(step.cpu_start_ns, step.cpu_end_ns) for step in steps]
        begun_ns, ended_ns = np.array(marks, dtype=np.int64).T
        cut = self._piece_cutter.pieces(idle, (begun_ns, ended_ns))
        pieces, cause_times_ns = self._with_waits(cut, idle, busy)
        numbers = np.array([step.number for step in steps], dtype=np.int64)
        return self._placed(idle, numbers[idle.step], pieces, cause_times_ns)

    def _with_waits(
        self, pieces: Pieces, idle: IdleSpans, busy: Sequence[BusySpans]
    ) -> tuple[Pieces, Ints]:
        """Cut pieces where leads are used up, some at a time."""
        consequence_ns, blamed_ns = self._after_waits(pieces, idle, busy)
        firsts = range(0, max(len(consequence_ns), 1), _CUTS_AT_ONCE)
        some = [slice(first, first + _CUTS_AT_ONCE) for first in firsts]
        parts = [split(pieces.at(each), consequence_ns[each], blamed_ns[each]) for each in some]
        cut, cause_times_ns = zip(*parts, strict=True)
        return concatenated(cut), np.concatenate(cause_times_ns)

    def _after_waits(
        self, pieces: Pieces, idle: IdleSpans, busy: Sequence[BusySpans]
    ) -> tuple[Ints, Ints]:
        """Return how much of each piece is the consequence of a wait, and when that began."""
        waits, wait_groups = self._waits, self._wait_groups
        consequence_ns, blamed_ns = np.zeros((2, len(pieces.span)), dtype=np.int64)
        for own in busy if len(wait_groups) else ():
            spans = np.searchsorted(idle.device, (own.device, own.device + 1))
            begin, end = np.searchsorted(pieces.span, spans).tolist()
            shared = shared_group(self._piece_cutter.groups(idle, pieces.span[begin:end]))
            for each in np.unique(wait_groups).tolist():
                is_in_group, group_waits = shared == each, waits.of(wait_groups == each)
                # Mostly there is one turn: what a slice has of columns is no copy.
                some = slice(begin, end) if is_in_group.all() else begin + np.flatnonzero(is_in_group)
                consequence_ns[some], blamed_ns[some] = consequences(pieces.at(some), group_waits, own)
        return consequence_ns, blamed_ns

    def _placed(self, idle: IdleSpans, step: Ints, pieces: Pieces, cause_times_ns: Ints) -> IdlePieces:
        """Cut pieces by where the CPU was, and name those some at a time."""
        ends = pieces.start_ns + pieces.duration_ns
        cuts = cut_at(self._places.times_ns, pieces.start_ns, ends)
        cuts = cuts.at(np.lexsort((idle.device[pieces.span[cuts.span]], cuts.start_ns)))
        cause, place, of_cause, row = self._names(idle, pieces, cause_times_ns, cuts)
        span = pieces.span[cuts.span]
        return IdlePieces(
            step=step[span],
            device=idle.device[span],
            span=span,
            start_ns=cuts.start_ns,
            duration_ns=cuts.duration_ns,
            cause=Interned(cause, tuple(each.value for each in CAUSES)),
            place=place,
            cause_place=of_cause,
            cpu_activity=self._activities.named(row),
            places=(*self._places.places, *self._wait_lines.places),
        )

    def _names(
        self, idle: IdleSpans, pieces: Pieces, cause_times_ns: Ints, cuts: Cuts
    ) -> tuple[Codes, Codes, Codes, Rows]:
        """Return the cause of each cut, the place, the place of the cause, the CPU's event."""
        firsts = range(0, max(len(cuts.span), 1), _CUTS_AT_ONCE)
        some = (cuts.at(slice(first, first + _CUTS_AT_ONCE)) for first in firsts)
        named = [self._names_of_chunk(idle, pieces, cause_times_ns, each) for each in some]
        cause, place, of_cause, row = map(np.concatenate, zip(*named, strict=True))
        return cause, place, of_cause, row

    def _names_of_chunk(
        self, idle: IdleSpans, pieces: Pieces, cause_times_ns: Ints, cuts: Cuts
    ) -> tuple[Codes, Codes, Codes, Rows]:
        cause, place = pieces.cause[cuts.span], self._places.codes[cuts.segment]
        cause = np.where(self._is_profiler_overhead(cause, place), code(IdleCause.PROFILER), cause)
        group = self._piece_cutter.groups(idle, pieces.span[cuts.span])
        place, of_cause = self._of_waits(cause, place, group, cuts, cause_times_ns[cuts.span])
        causes, places, of_causes = (each.astype(np.int32) for each in (cause, place, of_cause))
        return causes, places, of_causes, self._cpu_activity(group, cuts)

    def _of_waits(
        self, cause: Causes, place: Ints, group: Ints, cuts: Cuts, cause_times_ns: Ints
    ) -> tuple[Ints, Ints]:
        """Return the place of each piece, and of its cause, now that waits have theirs."""
        is_after = is_of(cause, [IdleCause.AFTER_SYNCHRONISATION])
        is_wait = is_of(cause, [IdleCause.SYNCHRONISATION])
        of_cause = np.where(is_after, self._places.at(cause_times_ns), place)
        rows = np.flatnonzero(is_wait | is_after) if self._wait_lines.places else _NO_ROWS
        times_ns = np.where(is_after[rows], cause_times_ns[rows], cuts.start_ns[rows])
        tracks = self._piece_cutter.tracks
        calls = tracks.row[tracks.segments_at(group[rows], times_ns)]
        waiting = self._wait_lines.at(calls.astype(np.int64))
        rows, waiting = rows[waiting != NO_ROW], waiting[waiting != NO_ROW]
        of_cause[rows] = len(self._places.places) + waiting
        return np.where(is_wait, of_cause, place), of_cause

    def _cpu_activity(self, group: Ints, cuts: Cuts) -> Rows:
        tracks, middle_ns = self._piece_cutter.tracks, cuts.start_ns + cuts.duration_ns // 2
        opened = tracks.row[tracks.segments_at(group, middle_ns)]
        return self._activities.rows(opened, cuts.start_ns, cuts.start_ns + cuts.duration_ns)

    def _is_profiler_overhead(self, cause: Causes, place: Ints) -> Flags:
        """Flag what came after the watch of lines had ended: the recording itself ends then.

        It may end within a call, of a compiled optimizer say, that launches no more.
        """
        ended = _of_gap(self._places, GapReason.LINES_ENDED)
        is_cpus = is_of(cause, _CPU_CAUSES)
        flags: Flags = is_cpus & np.isin(place, list(ended))
        return flags


def _of_gap(places: CpuPlaces, gap: GapReason) -> Iterable[int]:
    return [number for number, place in enumerate(places.places) if place.gap == gap]
