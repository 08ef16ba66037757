"""The memory of each step over time, by kind, and the blocks that the step allocates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from profiler_ext.memory.blocks import Block, Peak, peaks
from profiler_ext.memory.peak import AliveBlock, AllBlocks, StepPeak, all_blocks, peaks_of
from profiler_ext.records.analysis import Analysis, Step
from profiler_ext.records.events import Ints
from profiler_ext.records.memory import CPU, MemoryKind, MemoryRecord
from profiler_ext.records.vocabulary import Phase

_KINDS = tuple(MemoryKind)


@dataclass(frozen=True, slots=True)
class StepMemory:
    """What a device's memory holds during a step; the kinds add up to the allocator's count.

    A step is here what the CPU did between its two marks: that is when memory is allocated.
    """

    peak: StepPeak
    peak_ns: int  # when the peak is
    begin_ns: int
    end_ns: int
    time_ns: Ints  # the begin, and each moment of an allocation or free
    kinds: tuple[MemoryKind, ...]  # in their order in ``MemoryKind``
    kind_bytes: Ints  # alive from each time on: a row for each time, a column for each kind
    allocated: tuple[AliveBlock, ...]  # in the step; those alive at the peak are in its blocks, too
    phases: tuple[tuple[int, Phase], ...]  # when each begins, by what is allocated and launched


def memory_of_steps(analysis: Analysis) -> tuple[StepMemory, ...]:
    """Return the memory of each step on each device; none where no memory was recorded."""
    record = analysis.recording.memory
    if record is None:
        return ()
    return analysis.derived.once("memory of steps", lambda: (*_of_steps(analysis, record),))


def highest(analysis: Analysis) -> tuple[StepPeak, ...]:
    """Return the highest peak of each device."""
    most: dict[int, StepPeak] = {}
    for peak in peaks_of(analysis):
        known = most.get(peak.device)
        if known is None or peak.peak_bytes > known.peak_bytes:
            most[peak.device] = peak
    return tuple(most.values())


def kinds_bytes(peak: StepPeak) -> dict[MemoryKind, int]:
    """Return the bytes of each kind at a peak, the largest first."""
    sums = Counter[MemoryKind]()
    for block in peak.blocks:
        sums[block.kind] += block.size_bytes
    return dict(sums.most_common())


def _of_steps(analysis: Analysis, record: MemoryRecord) -> Iterator[StepMemory]:
    every = all_blocks(analysis, record)
    steps = {step.number: step for step in analysis.steps}
    found = peaks(every.timeline, analysis.steps)
    for raw, peak in zip(found, peaks_of(analysis), strict=True):
        yield _of_step(analysis, record, every, raw, peak, steps[peak.step])


def _of_step(
    analysis: Analysis,
    record: MemoryRecord,
    every: AllBlocks,
    raw: Peak,
    peak: StepPeak,
    step: Step,
) -> StepMemory:
    described = _described(every, raw, peak)
    times, sums = _sums(record, described, raw, step)
    used = np.flatnonzero(sums.any(axis=0)).tolist()
    begin_ns, end_ns = step.cpu_start_ns, step.cpu_end_ns
    return StepMemory(
        peak=peak,
        peak_ns=raw.time_ns,
        begin_ns=begin_ns,
        end_ns=end_ns,
        time_ns=times,
        kinds=tuple(_KINDS[at] for at in used),
        kind_bytes=sums[:, used],
        allocated=tuple(
            each for block, each in described.items() if begin_ns <= block.born_ns <= end_ns
        ),
        phases=tuple(_phases(analysis, every, step)),
    )


def _described(every: AllBlocks, raw: Peak, peak: StepPeak) -> dict[Block, AliveBlock]:
    """Return what each block of the device is; those at the peak as they are there."""
    pairs = zip(every.timeline.blocks, every.described, strict=True)
    own = {block: each for block, each in pairs if block.device == raw.device}
    # What no block has is the last of the step's.
    return own | dict(zip(raw.blocks, peak.blocks, strict=False))


def _sums(
    record: MemoryRecord, described: Mapping[Block, AliveBlock], raw: Peak, step: Step
) -> tuple[Ints, Ints]:
    """Return the moments of a step, and the bytes of each kind that are alive from each on."""
    events = record.events
    is_own = np.array(events.device, np.int64) == raw.device
    time_ns = np.array(events.time_ns, np.int64)[is_own]
    is_within = (step.cpu_start_ns <= time_ns) & (time_ns <= step.cpu_end_ns)
    times = np.unique(np.append(time_ns[is_within], (step.cpu_start_ns, raw.time_ns)))
    sums = np.zeros((len(times) + 1, len(_KINDS)), np.int64)
    column = np.array([_KINDS.index(each.kind) for each in described.values()], np.int64)
    size = np.array([block.size_bytes for block in described], np.int64)
    born = np.searchsorted(times, np.array([block.born_ns for block in described], np.int64))
    freed = np.searchsorted(times, np.array([block.freed_ns for block in described], np.int64))
    np.add.at(sums, (born, column), size)
    np.add.at(sums, (freed, column), -size)
    sums = np.cumsum(sums[:-1], axis=0)
    counted = sums.sum(axis=1)
    if raw.device != CPU:  # whose allocator counts nothing
        count = np.array(events.allocated_bytes, np.int64)[is_own]
        last = np.searchsorted(time_ns, times, side="right") - 1
        counted = np.where(last >= 0, count[last], counted)
    counted[times == raw.time_ns] = raw.peak_bytes
    sums[:, _KINDS.index(MemoryKind.OTHER)] += counted - sums.sum(axis=1)  # as at the peak
    return times, sums


def _phases(analysis: Analysis, every: AllBlocks, step: Step) -> Iterator[tuple[int, Phase]]:
    """Yield when the CPU went from one phase to another."""
    launches, events = analysis.launches, analysis.recording.trace.events
    is_own = np.ma.filled(launches.step == step.number, False)
    rows = np.flatnonzero(is_own & ~np.ma.getmaskarray(launches.op_event))
    starts = events.start_ns[np.ma.getdata(launches.op_event)[rows]].tolist()
    names = [launches.phase.strings[code] for code in launches.phase.codes[rows].tolist()]
    moments = [(start, Phase(name)) for start, name in zip(starts, names, strict=True)]
    moments += [
        (block.born_ns, birth.place.phase)
        for block, birth in zip(every.timeline.blocks, every.born, strict=True)
        if step.cpu_start_ns <= block.born_ns <= step.cpu_end_ns
    ]
    last = None
    for start_ns, phase in sorted(moments, key=lambda each: each[0]):
        if phase is not last:
            yield max(start_ns, step.cpu_start_ns), phase
            last = phase
