"""The comparison of what our analysis says of a trace with what the independent reader says.

Each function returns both sides, so that a test names what differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from exporters.table_kinds import table_named
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.vocabulary import Scope
from tests.independent.reader import Interval, Launch, by_op, union

Sides = tuple[Any, Any]


def windows(analysis: Analysis) -> dict[int, Interval]:
    """Return when each step begins and ends: the one definition that is taken from the analysis."""
    return {step.number: (step.start_ns, step.end_ns) for step in analysis.steps}


def ran(analysis: Analysis, found: Sequence[Launch]) -> Sides:
    """Return what ran: of each launch its event's place in the file, its device and its times."""
    rows, positions = analysis.launches, analysis.recording.trace.events.position
    ends = rows.start_ns + rows.duration_ns
    ours = zip(positions[rows.event], rows.device, rows.start_ns, ends, strict=True)
    theirs = ((e.at, _device(e, analysis), e.start_ns, e.end_ns) for e in (f.event for f in found))
    return sorted(tuple(map(int, each)) for each in ours), sorted(theirs)


def launching_ops(analysis: Analysis, found: Sequence[Launch]) -> Sides:
    """Return the innermost op of each launch, by its event's place in the file."""
    events, rows = analysis.recording.trace.events, analysis.launches
    ours = zip(rows.event.tolist(), rows.op_event.filled(-1).tolist(), strict=True)
    positions = events.position.tolist()
    return (
        {positions[row]: positions[op] if op >= 0 else None for row, op in ours},
        {each.event.at: each.op.at if each.op else None for each in found},
    )


def time_by_op(analysis: Analysis, found: Sequence[Launch]) -> Sides:
    """Return how long the launches of each innermost op took."""
    rows, name = analysis.launches, analysis.recording.trace.events.name
    ours: Counter[str | None] = Counter()
    for op, took in zip(rows.op_event.filled(-1).tolist(), rows.duration_ns.tolist(), strict=True):
        ours[name[op].removeprefix(_ENGINE) if op >= 0 else None] += took
    theirs = Counter[str | None]()
    for text, took in by_op(found).items():
        theirs[text.removeprefix(_ENGINE) if text else None] += took
    return dict(ours), dict(theirs)


_ENGINE = "autograd::engine::evaluate_function: "
"""What torch 1.8 and 1.9 do not write before the name of an autograd node."""


def eager_ops(analysis: Analysis, found: Sequence[Launch]) -> Sides:
    """Return the time of eager launches by the op that ``by_op`` names: the outermost one."""
    positions = analysis.recording.trace.events.position
    rows, shares = analysis.launches, analysis.shares
    op_of = {each.event.at: each for each in found}
    ours: Counter[str | None] = Counter()
    theirs: Counter[str | None] = Counter()
    is_eager = rows.scope.where(Scope.EAGER) & ~rows.gap.where(GapReason.OUT_OF_ORDER)
    for launch, place, took in zip(shares.launch, shares.place, shares.duration_ns, strict=True):
        if is_eager[launch]:
            ours[analysis.places[place].aten_op] += int(took)
            theirs[op_of[int(positions[rows.event[launch]])].outermost] += int(took)
    return dict(ours), dict(theirs)


def idle(analysis: Analysis, found: Sequence[Launch]) -> Sides:
    """Return how long each device ran nothing in each step: by the breakdown, by the pieces."""
    devices = {_device(each.event, analysis) for each in found} or {0}
    spans = {d: [_span(f) for f in found if _device(f.event, analysis) == d] for d in devices}
    theirs = {
        (number, device): window[1] - window[0] - union(spans[device], window)
        for number, window in windows(analysis).items()
        for device in devices
    }
    breakdown, pieces = Counter[Any](), Counter[Any]()
    for line in analysis.breakdown:
        breakdown[line.step, line.device] += line.duration_ns if line.scope == Scope.IDLE else 0
    own = analysis.idle
    for step, device, took in zip(own.step, own.device, own.duration_ns, strict=True):
        pieces[int(step), int(device)] += int(took)
    same = {key: (value, value) for key, value in theirs.items()}
    return {key: (breakdown[key], pieces[key]) for key in theirs}, same


def tables(analysis: Analysis, found: Sequence[Launch]) -> Sides:
    """Return what ``by_op`` and ``coverage`` add up to: what the steps launched; their time."""
    rows, positions = analysis.launches, analysis.recording.trace.events.position
    in_steps = set(positions[rows.event[~np.ma.getmaskarray(rows.step)]].tolist())
    took = sum(e.end_ns - e.start_ns for e in (f.event for f in found) if e.at in in_steps)
    devices = {_device(each.event, analysis) for each in found} or {0}
    wall = sum(end - start for start, end in windows(analysis).values()) * len(devices)
    by_op_, coverage = (
        table_named(name).make(analysis).to_pandas() for name in ("by_op", "coverage")
    )
    return tuple(int(each.duration_ns.sum()) for each in (by_op_, coverage)), (took, wall)


def exposed(analysis: Analysis, found: Sequence[Launch]) -> Sides:
    """Return for each device how long it ran collectives and nothing else."""
    positions = analysis.recording.trace.events.position
    own, rows = analysis.communication, analysis.launches
    collective = set(positions[rows.event[own.launch]].tolist())
    ours = Counter[int]()
    for launch, took in zip(own.launch, own.exposed_ns, strict=True):
        ours[int(rows.device[launch])] += int(took)
    theirs = dict(_exposed(analysis, found, collective))
    return {device: ours[device] for device in theirs}, theirs


def _exposed(
    analysis: Analysis, found: Sequence[Launch], collective: set[int]
) -> Iterator[tuple[int, int]]:
    for device in sorted({_device(each.event, analysis) for each in found}):
        own = [each for each in found if _device(each.event, analysis) == device]
        others = [_span(each) for each in own if each.event.at not in collective]
        yield device, union(map(_span, own)) - union(others)


def unnamed_collectives(analysis: Analysis, found: Sequence[Launch]) -> list[str]:
    """Return kernels of NCCL's and its kin that our analysis does not call communication."""
    positions = analysis.recording.trace.events.position
    own = analysis.launches.event[analysis.communication.launch]
    known = set(positions[own].tolist())
    libraries = ("nccl", "rccl", "oneccl")
    return [
        each.event.name
        for each in found
        if each.event.name.startswith(libraries) and each.event.at not in known
    ]


def assert_same(analysis: Analysis, found: Sequence[Launch]) -> None:
    """Assert that both sides say the same of everything."""
    for compare in (ran, launching_ops, time_by_op, eager_ops, idle, tables, exposed):
        ours, theirs = compare(analysis, found)
        assert ours == theirs, compare.__name__
    assert unnamed_collectives(analysis, found) == []


def _span(launch: Launch) -> Interval:
    return launch.event.start_ns, launch.event.end_ns


def _device(event: Any, analysis: Analysis) -> int:
    """Return the device; the CPU is device 0, whatever process its events are of."""
    on_cpu = np.ma.getmaskarray(analysis.launches.stream).all() and len(analysis.launches)
    return 0 if on_cpu else event.device
