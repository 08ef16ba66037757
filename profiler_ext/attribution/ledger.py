"""Owns the ledger: the wall time of every step on every device, by what the device did.

A step's wall time is the CPU's span of it. A device works behind the CPU, so what counts is
what the device did within that span, whichever step enqueued it. Where launches overlap, the
overlapped time counts once, for the launch that started first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.trace.lookups import Flags
from profiler_ext.records import Ints, Launches, LedgerCategory, LedgerLine, Level, Scope, Step


@dataclass(frozen=True, slots=True)
class BusySpans:
    """When one device was busy: one span for each launch, without overlaps, in order.

    Attributes:
        device: the device.
        launch: row of the launch.
        start_ns: start of the part that counts.
        end_ns: end of that part.
    """

    device: int
    launch: Ints
    start_ns: Ints
    end_ns: Ints

    def within(self, steps: Sequence[Step]) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Yield for each step the launches that ran within it, and the parts of their spans."""
        begins, ends = np.array([(s.start_ns, s.end_ns) for s in steps]).reshape(-1, 2).T
        firsts = np.searchsorted(self.end_ns, begins, side="right")
        lasts = np.maximum(firsts, np.searchsorted(self.start_ns, ends, side="left"))
        for step, first, last in zip(steps, firsts.tolist(), lasts.tolist(), strict=True):
            start = np.maximum(self.start_ns[first:last], step.start_ns)
            yield self.launch[first:last], start, np.minimum(self.end_ns[first:last], step.end_ns)


def busy_spans(launches: Launches) -> tuple[BusySpans, ...]:
    """Return when each device was busy; a trace without launches has one idle device."""
    devices = np.unique(launches.device).tolist() or [0]
    return tuple(_busy(launches, device) for device in devices)


def keep_ledger(
    launches: Launches,
    in_graph: Flags,
    corrected: Flags,
    busy: Sequence[BusySpans],
    steps: Sequence[Step],
) -> tuple[LedgerLine, ...]:
    """Account for the wall time of each step on each device.

    Args:
        launches: the launches.
        in_graph: which of them ran in a compiled graph.
        corrected: which of them have a phase that torch's tag denies.
        busy: when each device was busy.
        steps: the steps.

    Returns:
        The lines; those of one step and device add up to the step's wall time.
    """
    rows = range(len(launches))
    names = [_category(launches, in_graph, corrected, launch) for launch in rows]
    parts = [device.within(steps) for device in busy]
    return tuple(
        line
        for step in steps
        for device, some in zip(busy, parts, strict=True)
        for line in _step_lines(names, device.device, step, next(some))
    )


def _busy(launches: Launches, device: int) -> BusySpans:
    rows = np.flatnonzero(launches.device == device)
    start, end = launches.start_ns[rows], launches.start_ns[rows] + launches.duration_ns[rows]
    covered = np.maximum.accumulate(np.concatenate([start[:1], end]))[:-1]
    start = np.maximum(start, covered)
    return BusySpans(device, rows, start, np.maximum(start, end))


def _step_lines(
    categories: Sequence[tuple[str, str]], device: int, step: Step, busy: tuple[Ints, Ints, Ints]
) -> list[LedgerLine]:
    launches, start, end = busy
    length = end - start
    by_category: dict[tuple[str, str], int] = {}
    for launch, part_ns in zip(launches.tolist(), length.tolist(), strict=True):
        if part_ns:
            key = categories[launch]
            by_category[key] = by_category.get(key, 0) + part_ns
    by_category[Scope.IDLE, LedgerCategory.IDLE] = step.wall_ns - int(length.sum())
    return [
        LedgerLine(step.number, device, scope, category, duration_ns)
        for (scope, category), duration_ns in sorted(by_category.items())
    ]


def _category(
    launches: Launches, in_graph: Flags, corrected: Flags, launch: int
) -> tuple[str, str]:
    level = launches.level[launch]
    scope = Scope.COMPILED if in_graph[launch] else Scope.EAGER
    if level == Level.NONE:
        return scope, launches.gap[launch]
    if level == Level.OP:
        return scope, LedgerCategory.OP
    return scope, LedgerCategory.PHASE_CORRECTED if corrected[launch] else LedgerCategory.LINE
