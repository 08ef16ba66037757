"""Owns the idle spans: when a device ran nothing within a step, and what ended that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.ledger import BusySpans
from profiler_ext.attribution.trace.gaps_between import gaps_between
from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.attribution.trace.timelines import timeline
from profiler_ext.records import Ints, Step


@dataclass(frozen=True, slots=True)
class IdleSpans:
    """When devices ran nothing within the steps: by device, in order of time, none of them empty.

    Attributes:
        device: the device of each span.
        step: index of the step that it is of.
        start_ns: start of each.
        end_ns: end of each.
        since_ns: since when the device runs nothing; earlier than the start where a step began.
        ended_by_signal: the launch that the device ran next, or ``NO_ROW``; where a step ended the span,
            that is not in it.
    """

    device: Ints
    step: Ints
    start_ns: Ints
    end_ns: Ints
    since_ns: Ints
    ended_by_signal: Ints

    def __len__(self) -> int:
        """Return the number of spans."""
        return len(self.start_ns)

    def at(self, rows: slice) -> IdleSpans:
        """Return some of them."""
        return IdleSpans(*(getattr(self, name)[rows] for name in self.__slots__))


def idle_spans(busy: Sequence[BusySpans], steps: Sequence[Step]) -> IdleSpans:
    """Return when devices ran nothing.

    Where steps overlap, a moment is of the one that opened last, as what is enqueued then.

    Args:
        busy: for each device when it ran anything, in nanoseconds of the trace's clock.
        steps: the profiled steps.

    Returns:
        The spans of all devices.
    """
    parts = _exclusive_parts(steps)
    columns = zip(*(_idle(device, parts) for device in busy), strict=True)
    return IdleSpans(*(np.concatenate(column).astype(np.int64) for column in columns))


def _exclusive_parts(steps: Sequence[Step]) -> tuple[Ints, Ints, Ints]:
    """Return start, end and step of the parts of steps in which no later one is open."""
    starts, ends = np.array([(s.start_ns, s.end_ns) for s in steps], np.int64).reshape(-1, 2).T
    laid_out = timeline(starts, ends)
    owners = laid_out.opened[:-1]
    selected = np.flatnonzero(owners != NO_ROW)
    return laid_out.times_ns[:-1][selected], laid_out.times_ns[1:][selected], owners[selected]


def _idle(device: BusySpans, parts: tuple[Ints, Ints, Ints]) -> tuple[Ints, ...]:
    """Return what lies before, between and after a device's launches in each part."""
    begins, ends, owners = parts
    idle = gaps_between(device.start_ns, device.end_ns, begins, ends)
    launch = np.append(device.launch, NO_ROW)[idle.following]
    before = np.append(device.end_ns, 0)[idle.following - 1]
    since = np.where(idle.following == 0, idle.start_ns, before)
    every = np.full(len(launch), device.device)
    return every, owners[idle.window], idle.start_ns, idle.end_ns, since, launch
