"""Finds the profiled steps, their bounds on the device, and the step of each launch.

A loop that does not wait for the device marks a step when it has enqueued its work, and the device
works on it later. So a step ends when the devices have finished all that was enqueued between its
marks, and begins where the step before it ended::

    marks      |0     |1     |2     |3                         the CPU enqueues three steps
    device         [ 0          ][ 1           ][ 2           ]
    steps      |-- 0 -----------|-- 1 ---------|-- 2 ---------|

- The first step begins at its mark, or when the devices have finished earlier work, if that is
  later; so does a step whose number does not follow that of the one before it.
- Of several streams the one that computes longest bounds the steps, together with collectives.
  Other streams, with the copies of a checkpoint say, do not hold up the next step; the breakdown
  has their work where it runs. Of several devices the last one counts.
- A pipeline stage's wait for other stages is idle time, or time of the collective that waits.
- A step that enqueued nothing ends at the CPU's mark, or with the step before it.

On the CPU alone the marks bound a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from profiler_ext.attribution.trace import intervals, lookups
from profiler_ext.attribution.trace.launches import EnqueuedLaunches
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.kineto import classify, communication, names
from profiler_ext.records.analysis import Step
from profiler_ext.records.events import Events, Ints, first_rows, flag_rows

_NEVER = np.iinfo(np.int64).min


def find_steps(
    events: Events, nesting: Nesting, enqueued: EnqueuedLaunches, first_step_ns: int | None = None
) -> tuple[Step, ...]:
    """Return the profiled steps in order of time; without any, one that spans all work."""
    # What follows the last ``prof.step()`` is a step only if something was enqueued in it.
    # first_step_ns: when the first one began on the devices, if known
    is_cpu = nesting.depth != lookups.NO_ROW
    rows = np.flatnonzero(flag_rows(events.name, classify.is_step) & is_cpu)
    steps = [_step(events, int(row)) for row in rows[np.argsort(events.start_ns[rows])]]
    if len(steps) > 1 and not (_owner(enqueued, steps) == len(steps) - 1).any():
        steps.pop()
    if not steps:
        return _spanning_step(events, np.flatnonzero(is_cpu), enqueued.event)
    if enqueued.on_cpu:
        return tuple(steps)
    first, *others = _on_device(events, enqueued, steps)
    if first_step_ns is not None:
        first = replace(first, start_ns=min(first_step_ns, first.end_ns))
    return (first, *others)


def steps_of(enqueued: EnqueuedLaunches, steps: Sequence[Step]) -> Ints:
    """Return the number of the step in which each launch was enqueued, or ``NO_ROW``."""
    numbers = np.array([step.number for step in steps], dtype=np.int64)
    return lookups.take(numbers, _owner(enqueued, steps), lookups.NO_ROW)


def _owner(enqueued: EnqueuedLaunches, steps: Sequence[Step]) -> Ints:
    """Return the index of the step in which each launch was enqueued, or ``NO_ROW``."""
    starts_ns, ends_ns = (
        np.array([getattr(step, name) for step in steps], dtype=np.int64)
        for name in ("cpu_start_ns", "cpu_end_ns")
    )
    return intervals.timeline(starts_ns, ends_ns).at(enqueued.enqueue_ns)


def _on_device(
    events: Events, enqueued: EnqueuedLaunches, steps: Sequence[Step]
) -> tuple[Step, ...]:
    owner, computes = _owner(enqueued, steps), _computing(events, enqueued)
    ends_ns = events.end_of(enqueued.event)
    earlier_ns = _done_before(enqueued.enqueue_ns[computes], ends_ns[computes], steps)
    own = owner != lookups.NO_ROW
    done_ns = _last_of(owner[own & computes], ends_ns[own & computes], len(steps))
    done_ns = np.where(done_ns == _NEVER, _last_of(owner[own], ends_ns[own], len(steps)), done_ns)
    bounded: list[Step] = []
    for at, step in enumerate(steps):
        start_ns = max(step.cpu_start_ns, int(earlier_ns[at]))
        if bounded and step.number == bounded[-1].number + 1:
            start_ns = bounded[-1].end_ns
        end_ns = step.cpu_end_ns if done_ns[at] == _NEVER else int(done_ns[at])
        bounded.append(replace(step, start_ns=start_ns, end_ns=max(start_ns, end_ns)))
    return tuple(bounded)


def _computing(events: Events, enqueued: EnqueuedLaunches) -> lookups.Flags:
    """Flag the launches of the queue of each device that computes longest, and collectives."""
    rows = enqueued.event
    is_collective = flag_rows(events.name, communication.is_communication)[rows]
    computes = flag_rows(events.category, classify.is_kernel)[rows] & ~is_collective
    queues, number = np.unique(enqueued.queue, return_inverse=True)
    took_ns = np.bincount(number, events.duration_ns[rows] * computes, len(queues))
    device_of = events.device[rows].filled(0)[first_rows(number)]
    order = np.lexsort((-took_ns, device_of))
    _, firsts = np.unique(device_of[order], return_index=True)
    return np.isin(number, order[firsts]) | is_collective


def _done_before(enqueue_ns: Ints, ends_ns: Ints, steps: Sequence[Step]) -> Ints:
    order = np.argsort(enqueue_ns, kind="stable")
    marks_ns = np.array([step.cpu_start_ns for step in steps], dtype=np.int64)
    count = np.searchsorted(enqueue_ns[order], marks_ns)
    return np.append(_NEVER, np.maximum.accumulate(ends_ns[order]))[count]


def _last_of(owner: Ints, ends_ns: Ints, steps: int) -> Ints:
    """Return for each step when the last of its launches ended, ``_NEVER`` without one."""
    last_ns = np.full(steps, _NEVER, dtype=np.int64)
    np.maximum.at(last_ns, owner, ends_ns)
    return last_ns


def _step(events: Events, row: int) -> Step:
    number = names.step_number(events.name[row])
    assert number is not None
    start_ns = int(events.start_ns[row])
    return Step.on_cpu(number, start_ns, start_ns + int(events.duration_ns[row]))


def _spanning_step(events: Events, cpu: Ints, launches: Ints) -> tuple[Step, ...]:
    rows = np.concatenate([cpu, launches])
    if not len(rows):
        return ()
    return (Step.on_cpu(0, int(events.start_ns[rows].min()), int(events.end_of(rows).max())),)
