"""Owns the profiled steps and the step that each launch belongs to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profiler_ext.attribution.trace.enqueued import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, flag_rows, take
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.attribution.trace.timelines import timeline
from profiler_ext.kineto import classify, names
from profiler_ext.records import Events, Ints, Step


def find_steps(events: Events, nesting: Nesting, enqueued: EnqueuedLaunches) -> tuple[Step, ...]:
    """Return the profiled steps in order of time; without any, one that spans all work.

    What follows the last ``prof.step()`` is a step only if something was enqueued in it.

    Args:
        events: the trace's events.
        nesting: which of them stands in which.
        enqueued: the launches.
    """
    is_cpu = nesting.depth != NO_ROW
    rows = np.flatnonzero(flag_rows(events.name, classify.is_step) & is_cpu)
    steps = [_step(events, int(row)) for row in rows[np.argsort(events.start_ns[rows])]]
    if len(steps) > 1 and not _is_inside(enqueued, steps[-1]).any():
        steps.pop()
    return tuple(steps) or _spanning_step(events, np.flatnonzero(is_cpu), enqueued.event)


def steps_of(enqueued: EnqueuedLaunches, steps: Sequence[Step]) -> Ints:
    """Return the number of the step in which each launch was enqueued, or ``NO_ROW``.

    Args:
        enqueued: the launches.
        steps: the profiled steps, in order of time.

    Returns:
        As many as there are launches.
    """
    starts, ends, numbers = (
        np.array([getattr(step, name) for step in steps], dtype=np.int64)
        for name in ("start_ns", "end_ns", "number")
    )
    return take(numbers, timeline(starts, ends).at(enqueued.enqueue_ns), NO_ROW)


def _is_inside(enqueued: EnqueuedLaunches, step: Step) -> Flags:
    inside: Flags = (enqueued.enqueue_ns >= step.start_ns) & (enqueued.enqueue_ns < step.end_ns)
    return inside


def _step(events: Events, row: int) -> Step:
    number = names.step_number(events.name[row])
    assert number is not None
    start_ns = int(events.start_ns[row])
    return Step(number, start_ns, start_ns + int(events.duration_ns[row]))


def _spanning_step(events: Events, cpu: Ints, launches: Ints) -> tuple[Step, ...]:
    rows = np.concatenate([cpu, launches])
    if not len(rows):
        return ()
    return (Step(0, int(events.start_ns[rows].min()), int(events.end_of(rows).max())),)
