"""Owns the idle spans: when a device ran nothing within a step, and what the CPU did then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from profiler_ext.attribution.ledger import BusySpans
from profiler_ext.attribution.trace.lookups import NO_ROW, flag_rows, take
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.attribution.trace.timelines import timeline
from profiler_ext.kineto import classify
from profiler_ext.records import Events, IdleSpan, Ints, Step

LARGEST_SPANS = 50
"""How many idle spans of each step and device are kept; the ledger counts all of them."""


def find_idle(
    events: Events, nesting: Nesting, busy: Sequence[BusySpans], steps: Sequence[Step]
) -> tuple[IdleSpan, ...]:
    """Return the largest idle spans of each step and device, largest first.

    Where steps overlap, a moment is of the one that opened last, as what is enqueued then.

    Args:
        events: the trace's events.
        nesting: which of them stands in which.
        busy: for each device when it ran anything, in nanoseconds of the trace's clock.
        steps: the profiled steps.
    """
    parts = _in_turn(steps)
    spans = [span for device in busy for span in _largest(device, steps, parts)]
    named = _described(events, nesting, spans)
    return tuple(sorted(named, key=lambda span: (-span.duration_ns, span.start_ns, span.device)))


def _in_turn(steps: Sequence[Step]) -> tuple[Ints, Ints, Ints]:
    """Return start, end and step of the parts of steps in which no later one is open."""
    starts, ends = np.array([(s.start_ns, s.end_ns) for s in steps], np.int64).reshape(-1, 2).T
    laid_out = timeline(starts, ends)
    owners = laid_out.opened[:-1]
    kept = np.flatnonzero(owners != NO_ROW)
    return laid_out.times_ns[:-1][kept], laid_out.times_ns[1:][kept], owners[kept]


def _largest(
    device: BusySpans, steps: Sequence[Step], parts: tuple[Ints, Ints, Ints]
) -> Iterator[IdleSpan]:
    """Yield the largest spans of each step that lie between its parts of launches."""
    begins, ends, owners = parts
    opens, lengths, part = _between(device, begins, ends)
    owner = owners[part]
    order = np.lexsort((-lengths, owner))
    first = np.searchsorted(owner[order], owner[order])
    largest = order[np.arange(len(order)) - first < LARGEST_SPANS]
    columns = (owner[largest], opens[largest], lengths[largest])
    for step, start_ns, length_ns in zip(*(each.tolist() for each in columns), strict=True):
        yield IdleSpan(steps[step].number, device.device, start_ns, length_ns, None)


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


def _described(events: Events, nesting: Nesting, spans: Sequence[IdleSpan]) -> list[IdleSpan]:
    """Name the innermost CPU event that covers more than half of each span.

    A step's own range says nothing: within it and outside all else the CPU was in Python.
    """
    named = list[IdleSpan]()
    for span, row in zip(spans, _covering(events, nesting, spans).tolist(), strict=True):
        name = None if row == NO_ROW else events.name[row]
        activity = None if name is None or classify.is_step(name) else name
        named.append(replace(span, cpu_activity=activity))
    return named


def _covering(events: Events, nesting: Nesting, spans: Sequence[IdleSpan]) -> Ints:
    """Return for each span the innermost CPU event that covers more than half of it."""
    start = np.array([span.start_ns for span in spans], dtype=np.int64)
    end = start + np.array([span.duration_ns for span in spans], dtype=np.int64)
    middle = start + (end - start) // 2
    starts, ends = events.start_ns, events.end_ns
    # This package's own marks around a call are no work of the CPU.
    own = nesting.nearest(~flag_rows(events.name, classify.is_call_mark))
    enclosing = take(own, nesting.parent, NO_ROW)
    in_order = np.argsort(middle, kind="stable")
    covering = np.full(len(spans), NO_ROW, dtype=np.int64)
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
