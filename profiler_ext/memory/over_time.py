"""The memory of each step over time, by kind, and the blocks that the step allocates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.memory.blocks import Block
from profiler_ext.memory.peak import AliveBlock, EveryBlock, StepPeak, every_block, peaks_of
from profiler_ext.records.analysis import Analysis, Step
from profiler_ext.records.events import Ints
from profiler_ext.records.memory import MemoryKind
from profiler_ext.records.vocabulary import Phase


@dataclass(frozen=True, slots=True)
class StepMemory:
    """What a device's memory holds during a step; the kinds add up to the allocator's count.

    A step is here what the CPU did between its two marks: that is when memory is allocated.
    """

    peak: StepPeak
    begin_ns: int
    end_ns: int
    time_ns: Ints  # the begin, and each moment of an allocation or free
    kinds: tuple[MemoryKind, ...]  # in their order in ``MemoryKind``
    kind_bytes: Ints  # alive from each time on: a row for each time, a column for each kind
    allocated: tuple[AliveBlock, ...]  # in the step, in order of time
    phases: tuple[tuple[int, Phase], ...]  # when each begins, by what is allocated and launched


def memory_of_steps(analysis: Analysis) -> tuple[StepMemory, ...]:
    """Return the memory of each step on each device; none where no memory was recorded."""
    every = every_block(analysis)
    if every is None:
        return ()
    return analysis.derived.once("memory of steps", lambda: (*_of_steps(analysis, every),))


def highest(analysis: Analysis) -> tuple[StepMemory, ...]:
    """Return the step with the highest peak of each device."""
    most: dict[int, StepMemory] = {}
    for each in memory_of_steps(analysis):
        known = most.get(each.peak.device)
        if known is None or each.peak.peak_bytes > known.peak.peak_bytes:
            most[each.peak.device] = each
    return tuple(most.values())


def _of_steps(analysis: Analysis, every: EveryBlock) -> Iterator[StepMemory]:
    steps = {step.number: step for step in analysis.steps}
    for device in every.timeline.devices:
        blocks = [block for block in every.timeline.blocks if block.device == device]
        for peak in peaks_of(analysis):
            if peak.device == device:
                yield _of_step(analysis, every, blocks, peak, steps[peak.step])


def _of_step(
    analysis: Analysis, every: EveryBlock, blocks: Sequence[Block], peak: StepPeak, step: Step
) -> StepMemory:
    begin_ns, end_ns = step.cpu_start_ns, step.cpu_end_ns
    times, counted = every.timeline.counted(peak.device, begin_ns, end_ns)
    described = [every.of(block) for block in blocks]
    order = list(MemoryKind)
    sums = np.zeros((len(times) + 1, len(order)), np.int64)
    born = np.searchsorted(times, [block.born_ns for block in blocks])
    freed = np.searchsorted(times, [block.freed_ns for block in blocks])
    column = np.array([order.index(each.kind) for each in described], np.int64)
    size = np.array([each.size_bytes for each in described], np.int64)
    np.add.at(sums, (born, column), size)
    np.add.at(sums, (freed, column), -size)
    sums = np.cumsum(sums[:-1], axis=0)
    sums[:, order.index(MemoryKind.OTHER)] += counted - sums.sum(axis=1)  # as at the peak
    used = np.flatnonzero(sums.any(axis=0)).tolist()
    own = [
        each
        for block, each in zip(blocks, described, strict=True)
        if begin_ns <= block.born_ns <= end_ns
    ]
    return StepMemory(
        peak,
        begin_ns,
        end_ns,
        times,
        tuple(order[at] for at in used),
        sums[:, used],
        tuple(own),
        tuple(_phases(analysis, every, step)),
    )


def _phases(analysis: Analysis, every: EveryBlock, step: Step) -> Iterator[tuple[int, Phase]]:
    """Yield when the CPU went from one phase to another."""
    launches, events = analysis.launches, analysis.recording.trace.events
    is_own = np.ma.filled(launches.step == step.number, False)
    rows = np.flatnonzero(is_own & ~np.ma.getmaskarray(launches.op_event))
    starts = events.start_ns[np.ma.getdata(launches.op_event)[rows]].tolist()
    names = [launches.phase.strings[code] for code in launches.phase.codes[rows].tolist()]
    moments = [(start, Phase(name)) for start, name in zip(starts, names, strict=True)]
    moments += [
        (block.born_ns, every.births[id(block)].place.phase)
        for block in every.timeline.blocks
        if step.cpu_start_ns <= block.born_ns <= step.cpu_end_ns
    ]
    last = None
    for start_ns, phase in sorted(moments, key=lambda each: each[0]):
        if phase is not last:
            yield max(start_ns, step.cpu_start_ns), phase
            last = phase
