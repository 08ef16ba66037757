"""The idle time of devices: each piece with its cause, its line and the CPU's activity.

A thread that waits for a device loses its lead. After the wait the device has nothing left to run,
and idles until the thread has enqueued again. Without the wait the thread would be ahead by the
device's busy time meanwhile, so that much of the following idle time is the wait's consequence; the
rest would exist without it. Costs of waits are used up in the order in which they arose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.cpu_places import CpuPlaces
from profiler_ext.attribution.idle.launching_threads import ThreadGroups, shared_group
from profiler_ext.attribution.idle.pieces import (
    IdleSpans,
    PieceCutter,
    Pieces,
    concatenated,
    idle_spans,
)
from profiler_ext.attribution.idle.tracks import CAUSES, Causes, Spans, code, is_of
from profiler_ext.attribution.step_breakdown import BusySpans, time_before
from profiler_ext.attribution.trace import intervals, launches
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, Rows, take
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.kineto import classify, names
from profiler_ext.records.analysis import NO_IDLE, IdlePieces, Place, Step
from profiler_ext.records.events import Codes, Events, Interned, Ints, flag_rows, ranks
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.vocabulary import IdleCause

# What the CPU did on its way to the launch, and what has a cause of its own but takes time too.
_CONSEQUENCES = (
    IdleCause.LAUNCHING,
    IdleCause.PYTHON,
    IdleCause.AUTOGRAD,
    IdleCause.LAUNCH_LATENCY,
    IdleCause.END_OF_STEP,
)
_NOT_CPU_CAUSES = (
    IdleCause.SYNCHRONISATION,
    IdleCause.BETWEEN_LAUNCHES,
    IdleCause.NO_LAUNCH_CALL,
    IdleCause.NO_CPU_EVENTS,
)
# What the CPU's own way to the next launch is called, if there is one
_CPU_CAUSES = (
    IdleCause.PYTHON,
    IdleCause.END_OF_STEP,
    IdleCause.LAUNCHING,
    IdleCause.AFTER_SYNCHRONISATION,
)
# Their intermediate arrays are then small compared with the trace
_CUTS_AT_ONCE = 1 << 16
_NO_ROWS: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class WaitLines:
    """The places of waiting calls in compiled graphs and in nodes of autograd."""

    calls: Ints  # rows of these calls, in order
    place: Ints  # index into ``places`` for each
    places: tuple[Place, ...]  # of the launches that the same op, or node, made before

    def at(self, rows: Ints) -> Ints:
        """Return the index of the place of each call; ``NO_ROW`` where none is known."""
        at = np.searchsorted(self.calls, rows)
        result = np.append(self.calls, NO_ROW - 1)[at] == rows
        return np.where(result, np.append(self.place, NO_ROW)[at], NO_ROW)


def find_wait_places(
    events: Events,
    nesting: Nesting,
    enqueued: launches.EnqueuedLaunches,
    main_place: Ints,
    places: tuple[Place, ...],
) -> WaitLines:
    """Find the line of each call that waits in an op that launched compiled work, or in a node.

    While an op of an autograd node waits, the CPU is at the line of ``backward()``. The wait is of
    the node's forward, as are its launches.
    """
    has_line = np.array([each.line is not None for each in places], bool)[main_place]
    is_compiled = np.array([each.graph is not None for each in places], bool)[main_place]
    ops = nesting.nearest(flag_rows(events.name, classify.is_dispatched_op))
    nodes = nesting.nearest(flag_rows(events.name, _is_node))
    launches_graph = np.zeros(len(events) + 1, np.bool_)
    launches_graph[take(ops, enqueued.call[has_line & is_compiled], NO_ROW)] = True
    launches_graph[NO_ROW] = False
    around = np.where(launches_graph[ops], ops, nodes)
    is_own = is_compiled | ~launches_graph[take(ops, enqueued.call, NO_ROW)]
    own = take(around, enqueued.call, NO_ROW)
    with_source = np.flatnonzero((own != NO_ROW) & has_line & is_own)
    is_call = flag_rows(events.category, classify.is_runtime_call)
    waiting = np.flatnonzero(is_call & flag_rows(events.name, classify.is_device_wait))
    # What waits in a node outside of its ops is a hook's own call
    waiting = waiting[(around[waiting] != NO_ROW) & (ops[waiting] != NO_ROW)]
    launching = enqueued.call[with_source]
    calls = np.append(waiting, launching)
    by = _last_before(events, around, launching, calls)
    calls, first = np.unique(calls[by != NO_ROW], return_index=True)
    used, place = np.unique(main_place[with_source[by[by != NO_ROW][first]]], return_inverse=True)
    return WaitLines(calls, place, tuple(places[each] for each in used.tolist()))


def _is_node(name: str) -> bool:
    return names.evaluated_function(name) is not None


def _last_before(events: Events, around: Rows, launching: Ints, calls: Ints) -> Ints:
    """Return which call launched last before each call, or is it, within the same event."""
    every = np.append(launching, calls)
    is_query = np.arange(len(every)) >= len(launching)
    order = np.lexsort((is_query, events.start_ns[every], around[every]))
    last = np.maximum.accumulate(np.where(is_query[order], NO_ROW, np.arange(len(every))))
    result = np.where(last == NO_ROW, NO_ROW, order[last])
    is_same = around[every[result]] == around[every[order]]
    before = np.empty(len(every), dtype=np.int64)
    before[order] = np.where((result != NO_ROW) & is_same, result, NO_ROW)
    return before[len(launching) :]


class Activities:
    """Names the innermost event that covers more than half of a piece of time."""

    def __init__(self, events: Events, nesting: Nesting) -> None:
        self._events, self._parent = events, nesting.parent
        self._is_own = flag_rows(events.name, _is_own)

    def rows(self, opened: Rows, start_ns: Ints, end_ns: Ints) -> Rows:
        """Return the innermost event that covers more than half of each piece, or ``NO_ROW``."""
        # opened: the innermost event in the middle of each piece, or ``NO_ROW``: what covers more
        # than half of it is open then
        rows = self._others(opened)
        starts, durations = self._events.start_ns, self._events.duration_ns
        at = np.flatnonzero(rows != NO_ROW)
        while len(at):
            own = rows[at]
            begun = np.maximum(starts[own], start_ns[at])
            over = np.minimum(starts[own] + durations[own], end_ns[at])
            at = at[2 * (over - begun) <= (end_ns - start_ns)[at]]
            rows[at] = self._others(self._parent[rows[at]])
            at = at[rows[at] != NO_ROW]
        return rows

    def named(self, rows: Rows) -> Interned:
        """Return the names of events; a step's own range has none."""
        strings = self._events.name.strings
        silent = [code for code, name in enumerate(strings) if classify.is_step(name)]
        codes = take(self._events.name.codes, rows, len(strings))
        codes = np.where(np.isin(codes, silent), len(strings), codes)
        used, own = ranks(codes)
        texts = tuple((*strings, "")[at] for at in used.tolist())
        return Interned(own.astype(np.int32), texts)

    def _others(self, rows: Rows) -> Rows:
        """Replace each mark of this package by its parent."""
        rows, at = rows.copy(), np.flatnonzero(rows != NO_ROW)
        while len(at := at[self._is_own[rows[at]]]):
            rows[at] = self._parent[rows[at]]
            at = at[rows[at] != NO_ROW]
        return rows


def _is_own(name: str) -> bool:
    """Tell whether an event is a mark of this package, not work of the CPU."""
    return classify.is_call_mark(name) or names.is_clock_mark(name)


def consequences(pieces: Pieces, waits: Spans, busy: BusySpans) -> tuple[Ints, Ints]:
    """Return how much of each piece, from its begin, is the consequence of a wait."""
    # pieces: pieces of one device's idle spans, in order of time, all ended by the same threads
    # waits: the threads' waits for a device, in order of start; at least one
    spans = (busy.start_ns, busy.end_ns)
    each_ns = time_before(*spans, waits.end_ns) - time_before(*spans, waits.start_ns)
    lost = np.cumsum(each_ns)
    counts = ~is_of(pieces.cause, _NOT_CPU_CAUSES)
    used = np.where(counts, pieces.duration_ns, 0)
    np.cumsum(used, out=used)
    # A lead cannot become negative: the sum of lost time bounds what is used up.
    left = np.append(0, lost)[np.searchsorted(waits.start_ns, pieces.start_ns, side="right")]
    left -= used
    np.minimum.accumulate(left, out=left)
    used += np.minimum(left, 0, out=left)
    before = np.append(0, used[:-1])[: len(used)]
    is_named = is_of(pieces.cause, _CONSEQUENCES)
    blamed = np.searchsorted(lost, before, side="right")
    np.minimum(blamed, len(lost) - 1, out=blamed)
    used -= before
    used[~is_named] = 0
    return used, waits.start_ns[blamed]


def split(pieces: Pieces, consequence_ns: Ints, blamed_ns: Ints) -> tuple[Pieces, Ints]:
    """Cut pieces where a lead is used up.

    Returns the pieces; and the begin of each one's wait, else its own begin.
    """
    is_cut, has_rest = consequence_ns > 0, consequence_ns < pieces.duration_ns
    own = np.repeat(np.arange(len(consequence_ns)), is_cut.astype(np.int64) + has_rest)
    is_first = np.append(True, own[1:] != own[:-1])[: len(own)]
    is_consequence, consequence_ns = is_cut[own] & is_first, consequence_ns[own]
    selected = pieces.at(own)
    begins = selected.start_ns + np.where(is_consequence, 0, consequence_ns)
    lengths = np.where(is_consequence, consequence_ns, selected.duration_ns - consequence_ns)
    cause = np.where(is_consequence, code(IdleCause.AFTER_SYNCHRONISATION), selected.cause)
    moments = np.where(is_consequence, blamed_ns[own], begins)
    return Pieces(selected.span, begins, lengths, cause), moments


def find_idle(
    events: Events,
    nesting: Nesting,
    enqueued: launches.EnqueuedLaunches,
    places: CpuPlaces,
    wait_lines: WaitLines,
    busy: Sequence[BusySpans],
    steps: Sequence[Step],
) -> IdlePieces:
    """Return all idle time of the steps, in pieces."""
    if not steps:
        return NO_IDLE
    return _IdleFinder(events, nesting, enqueued, places, wait_lines).pieces(busy, steps)


class _IdleFinder:
    def __init__(
        self,
        events: Events,
        nesting: Nesting,
        enqueued: launches.EnqueuedLaunches,
        places: CpuPlaces,
        wait_lines: WaitLines,
    ) -> None:
        self._places, self._wait_lines = places, wait_lines
        self._activities = Activities(events, nesting)
        groups = ThreadGroups(events, nesting, enqueued, places.thread)
        self._waits, self._wait_groups = groups.waits()
        self._piece_cutter = PieceCutter(events, enqueued, groups)

    def pieces(self, busy: Sequence[BusySpans], steps: Sequence[Step]) -> IdlePieces:
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
                some = (
                    slice(begin, end) if is_in_group.all() else begin + np.flatnonzero(is_in_group)
                )
                consequence_ns[some], blamed_ns[some] = consequences(
                    pieces.at(some), group_waits, own
                )
        return consequence_ns, blamed_ns

    def _placed(
        self, idle: IdleSpans, step: Ints, pieces: Pieces, cause_times_ns: Ints
    ) -> IdlePieces:
        ends = pieces.start_ns + pieces.duration_ns
        cuts = intervals.cut_at(self._places.times_ns, pieces.start_ns, ends)
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
        self, idle: IdleSpans, pieces: Pieces, cause_times_ns: Ints, cuts: intervals.Cuts
    ) -> tuple[Codes, Codes, Codes, Rows]:
        """Return the cause of each cut, the place, the place of the cause, the CPU's event."""
        firsts = range(0, max(len(cuts.span), 1), _CUTS_AT_ONCE)
        some = (cuts.at(slice(first, first + _CUTS_AT_ONCE)) for first in firsts)
        named = [self._names_of_chunk(idle, pieces, cause_times_ns, each) for each in some]
        cause, place, of_cause, row = map(np.concatenate, zip(*named, strict=True))
        return cause, place, of_cause, row

    def _names_of_chunk(
        self, idle: IdleSpans, pieces: Pieces, cause_times_ns: Ints, cuts: intervals.Cuts
    ) -> tuple[Codes, Codes, Codes, Rows]:
        cause, place = pieces.cause[cuts.span], self._places.codes[cuts.segment]
        cause = np.where(self._is_profiler_overhead(cause, place), code(IdleCause.PROFILER), cause)
        group = self._piece_cutter.groups(idle, pieces.span[cuts.span])
        place, of_cause = self._of_waits(cause, place, group, cuts, cause_times_ns[cuts.span])
        causes, places, of_causes = (each.astype(np.int32) for each in (cause, place, of_cause))
        tracks, middle_ns = self._piece_cutter.tracks, cuts.start_ns + cuts.duration_ns // 2
        opened = tracks.row[tracks.segments_at(group, middle_ns)]
        return (
            causes,
            places,
            of_causes,
            self._activities.rows(opened, cuts.start_ns, cuts.start_ns + cuts.duration_ns),
        )

    def _of_waits(
        self, cause: Causes, place: Ints, group: Ints, cuts: intervals.Cuts, cause_times_ns: Ints
    ) -> tuple[Ints, Ints]:
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

    def _is_profiler_overhead(self, cause: Causes, place: Ints) -> Flags:
        """Flag what came after the recording of lines ended: the recording itself ends then."""
        # It may end within a call, of a compiled optimizer say, that launches no more.
        ended = [
            number
            for number, place in enumerate(self._places.places)
            if place.gap == GapReason.LINES_ENDED
        ]
        is_cpus = is_of(cause, _CPU_CAUSES)
        return is_cpus & np.isin(place, list(ended))
