"""What CPU threads did over time, as the causes for which a device may idle.

The first two controls take turns and change at the same times. A change of any other has a key: the
control, and the number of moments of the others before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from profiler_ext.attribution.trace.intervals import Cuts, cut_between, timeline
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, Rows, take
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.kineto import classify, names
from profiler_ext.records.events import Events, Ints, flag_rows, sorted_distinct
from profiler_ext.records.vocabulary import IdleCause

CAUSES = tuple(IdleCause)
# Numbers of causes, of which there are few: a byte for each piece of each thread's time
Causes = npt.NDArray[np.int8]
NO_CAUSE = np.int8(-1)  # the cause of time without an event
_FOREVER_NS = np.iinfo(np.int64).max // 4
_SHARED_GROUPS = 2


def code(cause: IdleCause) -> np.int8:
    """Return the number of a cause."""
    return np.int8(CAUSES.index(cause))


def is_of(causes: Causes, wanted: Iterable[IdleCause]) -> Flags:
    """Flag the causes that are among some."""
    return np.isin(causes, [code(each) for each in wanted])


def causes_of(events: Events, nesting: Nesting) -> Causes:
    """Return for each event the cause of a device's wait while it is the CPU's innermost."""
    # A step alone, or what is no CPU event, has NOTHING.
    named, is_call = events.name, flag_rows(events.category, classify.is_runtime_call)
    is_op = flag_rows(events.category, classify.is_op)
    evaluates = flag_rows(events.name, lambda name: names.evaluated_function(name) is not None)
    is_node = ~flag_rows(events.name, _is_work)
    of_engine: Flags = evaluates | (is_node & np.append(evaluates, False)[nesting.parent])
    rules = (
        (_within(events, nesting, classify.is_compiling_or_recording), IdleCause.COMPILING),
        (_within(events, nesting, classify.is_data_loader), IdleCause.DATA_LOADER),
        (_within(events, nesting, classify.is_host_collective), IdleCause.OTHER_RANK),
        (is_call & flag_rows(named, classify.is_device_wait), IdleCause.SYNCHRONISATION),
        (is_call & flag_rows(named, classify.is_allocation), IdleCause.ALLOCATING),
        (is_op & of_engine, IdleCause.AUTOGRAD),
        (is_call | is_op | flag_rows(named, classify.is_calling), IdleCause.LAUNCHING),
        (flag_rows(named, classify.is_step), None),
    )
    conditions = [(nesting.depth == NO_ROW), *(condition for condition, _ in rules)]
    codes = [NO_CAUSE, *(NO_CAUSE if each is None else code(each) for _, each in rules)]
    return np.select(conditions, codes, default=code(IdleCause.PYTHON))


def engine_events(events: Events, nesting: Nesting) -> Flags:
    """Flag what runs in autograd's engine."""
    return _within(events, nesting, classify.is_engine)


def _within(events: Events, nesting: Nesting, predicate: Callable[[str], bool]) -> Flags:
    within: Flags = nesting.nearest(flag_rows(events.name, predicate)) != NO_ROW
    return within


def _is_work(name: str) -> bool:
    is_graph = classify.is_compiled_backward(name) or classify.is_compiled_frame(name)
    return is_graph or classify.is_dispatched_op(name) or classify.is_generated_kernel(name)


@dataclass(frozen=True, slots=True)
class Track:
    """What some threads did: the segment before the first time, and from each time on."""

    times_ns: Ints  # the changes, in order, none twice
    cause: Causes  # the number of a cause for each segment, one more than there are times
    row: Rows  # the innermost event of each, or ``NO_ROW``

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
    """Lay out spans, of those that are open the one that opened last."""
    laid_out = timeline(spans.start_ns, spans.end_ns)
    times, opened = laid_out.times_ns, laid_out.opened
    is_last = np.append(times[1:] != times[:-1], True)[: len(times)]
    opened = np.append(np.array([NO_ROW], dtype=np.int64), opened[is_last])
    return Track(
        times[is_last], take(spans.cause, opened, NO_CAUSE), take(spans.row, opened, NO_ROW)
    )


def with_engine(own: Track, of_engine: Flags, others_start_ns: Ints) -> Track:
    """Add the time between two events of autograd's engine in which nothing else began."""
    # others_start_ns: begins of events of the thread that waits for it, in order
    in_engine = of_engine[own.row] & (own.row != NO_ROW)
    between = np.zeros(len(own.cause), dtype=np.bool_)
    if len(own.times_ns) > 1:
        begun = np.searchsorted(others_start_ns, own.times_ns, side="left")
        alone = begun[1:] == begun[:-1]
        between[1:-1] = (own.cause[1:-1] == NO_CAUSE) & in_engine[:-2] & in_engine[2:] & alone
    return replace(own, cause=np.where(between, code(IdleCause.AUTOGRAD), own.cause))


def overlays(first: Track, second: Track) -> tuple[Track, Track]:
    """Lay each of two tracks over the other, which counts where that is in Python or idle."""
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
    """Return the distinct times of two, and the segments of each before them, and from each."""
    # A stable sort merges two runs in order.
    times = np.concatenate([first, second])
    order = np.argsort(times, kind="stable")
    times, is_first = times[order], order < len(first)
    is_last = np.flatnonzero(np.append(times[1:] != times[:-1], True)[: len(times)])
    of_first = np.append(0, np.cumsum(is_first)[is_last])
    return times[is_last], (of_first, np.append(0, is_last + 1) - of_first)


@dataclass(frozen=True, slots=True)
class Tracks:
    """What each control did over time: the segment before the first change, and from each on."""

    times_ns: Ints  # changes of the first two controls, in order, none twice
    moments_ns: Ints  # changes of any of the others, in order, none twice
    keys: Ints  # the control and the moment of each change of the others, in order
    # The number of a cause for each segment, one more than there are changes: those of the first
    # control, those of the second, those of the others
    cause: Causes
    row: Rows  # the innermost event of each, or ``NO_ROW``

    def segments_at(
        self, group: Ints, times_ns: Ints, side: Literal["left", "right"] = "right"
    ) -> Ints:
        """Return the segments of controls at times."""
        count = len(self.times_ns)
        segments: Ints = group * count + np.searchsorted(self.times_ns, times_ns, side=side)
        separate = np.flatnonzero(group >= _SHARED_GROUPS)
        moments = np.searchsorted(self.moments_ns, times_ns[separate], side=side)
        keys = group[separate] * (len(self.moments_ns) + 1) + moments
        segments[separate] = _SHARED_GROUPS * count + np.searchsorted(self.keys, keys, side="right")
        return segments

    def cut(self, group: Ints, start_ns: Ints, end_ns: Ints) -> Cuts:
        """Cut spans of time where what their controls do changes."""
        last = self.segments_at(group, end_ns, "left")
        within = (self.segments_at(group, start_ns), last)
        return cut_between(lambda changes: self._changes(changes)[1], within, start_ns, end_ns)

    def extents(self, group: Ints, segment: Ints) -> tuple[Ints, Ints]:
        """Return begin and end of segments; the outer ones are unbounded."""
        begins, ends = np.full((2, len(segment)), _FOREVER_NS)
        begins[:] = -_FOREVER_NS
        for times, changes in ((begins, segment - 1), (ends, segment)):
            at = np.flatnonzero((changes >= 0) & (changes < len(self.cause) - 1))
            own, times_ns = self._changes(changes[at])
            is_own = own == group[at]
            times[at[is_own]] = times_ns[is_own]
        return begins, ends

    def _changes(self, changes: Ints) -> tuple[Ints, Ints]:
        count = len(self.times_ns)
        is_shared = changes < _SHARED_GROUPS * count
        own, times_ns = np.empty((2, len(changes)), dtype=np.int64)
        own[is_shared] = changes[is_shared] // count
        times_ns[is_shared] = self.times_ns[changes[is_shared] % count]
        keys = self.keys[changes[~is_shared] - _SHARED_GROUPS * count]
        own[~is_shared], moments = np.divmod(keys, len(self.moments_ns) + 1)
        times_ns[~is_shared] = self.moments_ns[moments - 1]
        return own, times_ns


def combine_tracks(pairs: Sequence[tuple[Track, Track]], spans: Spans, group: Ints) -> Tracks:
    """Combine tracks with those of other controls."""
    # spans: what the threads of all other controls did, the outer ones first
    first, second = zip(*pairs, strict=True)
    moments = sorted_distinct(np.concatenate([spans.start_ns, spans.end_ns]))
    shift = group * (len(moments) + 1) + 1
    starts = np.searchsorted(moments, spans.start_ns) + shift
    ends = np.searchsorted(moments, spans.end_ns) + shift
    order = np.argsort(starts, kind="stable")
    rest = track(Spans(starts, ends, spans.row, spans.cause).of(order))
    every = (*first, *second, rest)
    return Tracks(
        np.concatenate([each.times_ns for each in first]),
        moments,
        rest.times_ns,
        np.concatenate([[NO_CAUSE], *(each.cause[1:] for each in every)]),
        np.concatenate([[np.int32(NO_ROW)], *(each.row[1:] for each in every)]),
    )
