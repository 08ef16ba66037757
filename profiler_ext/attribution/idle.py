"""Owns the idle spans: when a device ran nothing within a step, and what the CPU did then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.ledger import BusySpans
from profiler_ext.attribution.trace.lookups import NO_ROW, flag_rows, take
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.attribution.trace.timelines import timeline
from profiler_ext.kineto import classify, names
from profiler_ext.records import Events, Ints, Step

LARGEST_SPANS = 50
"""How many idle spans of each step and device are kept; the ledger counts all of them."""


@dataclass(frozen=True, slots=True)
class DeviceIdle:
    """When a device ran nothing within the steps: spans in order of time, none of them empty.

    Attributes:
        device: the device.
        step: index of the step that each span is of.
        start_ns: start of each.
        duration_ns: length of each.
    """

    device: int
    step: Ints
    start_ns: Ints
    duration_ns: Ints


def all_idle(busy: Sequence[BusySpans], steps: Sequence[Step]) -> tuple[DeviceIdle, ...]:
    """Return when each device ran nothing.

    Where steps overlap, a moment is of the one that opened last, as what is enqueued then.

    Args:
        busy: for each device when it ran anything, in nanoseconds of the trace's clock.
        steps: the profiled steps.
    """
    parts = _in_turn(steps)
    return tuple(_idle(device, parts) for device in busy)


def largest_spans(idle: DeviceIdle) -> Ints:
    """Return the rows of the largest spans of each step; of equal ones the earlier."""
    order = np.lexsort((-idle.duration_ns, idle.step))
    step = idle.step[order]
    rank = np.arange(len(order)) - np.searchsorted(step, step)
    return order[rank < LARGEST_SPANS]


def _in_turn(steps: Sequence[Step]) -> tuple[Ints, Ints, Ints]:
    """Return start, end and step of the parts of steps in which no later one is open."""
    starts, ends = np.array([(s.start_ns, s.end_ns) for s in steps], np.int64).reshape(-1, 2).T
    laid_out = timeline(starts, ends)
    owners = laid_out.opened[:-1]
    kept = np.flatnonzero(owners != NO_ROW)
    return laid_out.times_ns[:-1][kept], laid_out.times_ns[1:][kept], owners[kept]


def _idle(device: BusySpans, parts: tuple[Ints, Ints, Ints]) -> DeviceIdle:
    """Return what lies between a device's parts of launches."""
    begins, ends, owners = parts
    opens, lengths, part = _between(device, begins, ends)
    return DeviceIdle(device.device, owners[part], opens, lengths)


def _between(device: BusySpans, begins: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
    """Return start, length and part of what lies before, between and after launches in a part."""
    firsts, lasts = device.within(begins, ends)
    count = lasts - firsts + 1
    part = np.repeat(np.arange(len(begins)), count)
    following = np.arange(len(part)) - np.repeat(np.cumsum(count) - count - firsts, count)
    starts, stops = np.append(device.start_ns, 0), np.append(device.end_ns, 0)
    is_first, is_last = following == firsts[part], following == lasts[part]
    opens = np.where(is_first, begins[part], stops[following - 1])
    closes = np.where(is_last, ends[part], starts[following])
    idle = np.flatnonzero(closes > opens)
    return opens[idle], (closes - opens)[idle], part[idle]


def activities(
    events: Events, nesting: Nesting, start: Ints, duration: Ints
) -> tuple[str | None, ...]:
    """Name the innermost CPU event that covers more than half of each span.

    A step's own range says nothing: within it and outside all else the CPU was in Python.

    Args:
        events: the trace's events.
        nesting: which of them stands in which.
        start: when each span began.
        duration: how long each was.

    Returns:
        A name for each span; ``None`` where no event says anything.
    """
    says = {code: not classify.is_step(name) for code, name in enumerate(events.name.strings)}
    rows = _covering(events, nesting, start, start + duration).tolist()
    return tuple(
        events.name[row] if row != NO_ROW and says[int(events.name.codes[row])] else None
        for row in rows
    )


def _covering(events: Events, nesting: Nesting, start: Ints, end: Ints) -> Ints:
    """Return for each span the innermost CPU event that covers more than half of it."""
    middle = start + (end - start) // 2
    starts, ends = events.start_ns, events.end_ns
    own = nesting.nearest(~flag_rows(events.name, _is_own))
    enclosing = take(own, nesting.parent, NO_ROW)
    in_order = np.argsort(middle, kind="stable")
    covering = np.full(len(start), NO_ROW, dtype=np.int64)
    for rows in _by_thread(events, nesting):
        # What covers more than half of a span is open in its middle.
        reach = (starts[rows[0]], ends[rows].max())
        first, last = np.searchsorted(middle[in_order], reach)
        some = in_order[first:last]
        opened = take(rows, timeline(starts[rows], ends[rows]).at(middle[some]), NO_ROW)
        opened = take(own, opened, NO_ROW)
        inner = _wide_enough((starts, ends), enclosing, opened, start[some], end[some])
        depth, known = (take(nesting.depth, each, NO_ROW) for each in (inner, covering[some]))
        covering[some] = np.where(depth > known, inner, covering[some])
    return covering


def _is_own(name: str) -> bool:
    """Tell whether an event is a mark of this package, which is no work of the CPU."""
    return classify.is_call_mark(name) or names.is_clock_mark(name)


def _by_thread(events: Events, nesting: Nesting) -> Iterator[Ints]:
    """Yield the CPU events of each thread in order of start, the outer ones first."""
    cpu = np.flatnonzero(nesting.depth != NO_ROW)
    order = cpu[np.lexsort((nesting.depth[cpu], events.start_ns[cpu], events.thread[cpu]))]
    bounds = np.flatnonzero(np.diff(events.thread[order])) + 1
    yield from (rows for rows in np.split(order, bounds) if len(rows))


def _wide_enough(
    times: tuple[Ints, Ints], enclosing: Ints, rows: Ints, start: Ints, end: Ints
) -> Ints:
    """Climb from each row to the first event around it that covers more than half of a span."""
    starts, ends = times
    rows, at = rows.copy(), np.flatnonzero(rows != NO_ROW)
    while len(at):
        begun, over = np.maximum(starts[rows[at]], start[at]), np.minimum(ends[rows[at]], end[at])
        at = at[2 * (over - begun) <= end[at] - start[at]]
        rows[at] = enclosing[rows[at]]
        at = at[rows[at] != NO_ROW]
    return rows
