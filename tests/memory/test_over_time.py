"""The memory of recorded H100 steps over time: its kinds, what is allocated, and its table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from profiler_ext.exporters.tables import folders, read_csv
from profiler_ext.memory.over_time import StepMemory, highest, memory_of_steps
from profiler_ext.records.memory import CPU, MemoryKind
from profiler_ext.records.vocabulary import Phase
from tests.analyses import gpu_step
from tests.memory.test_recorded_peaks import PEAKS, every_program, recorded


def steps(name: str) -> list[StepMemory]:
    return [each for each in memory_of_steps(recorded(name).analysis) if each.peak.device == 0]


@every_program
def test_the_kinds_add_up_to_the_allocators_count_and_are_highest_at_the_peak(name: str) -> None:
    events = recorded(name).recording.memory.events  # type: ignore[union-attr]
    counted = dict(zip(events.time_ns, events.allocated_bytes, strict=True))
    for step in steps(name):
        total = step.kind_bytes.sum(axis=1)
        assert total.tolist()[1:] == [counted[time] for time in step.time_ns.tolist()[1:]]
        at = int(total.argmax())
        assert (int(total[at]), int(step.time_ns[at])) == (step.peak.peak_bytes, step.peak_ns)
        of_kinds = Counter[MemoryKind]()
        for block in step.peak.blocks:
            of_kinds[block.kind] += block.size_bytes
        sums = zip(step.kinds, step.kind_bytes[at].tolist(), strict=True)
        assert {kind: size for kind, size in sums if size} == of_kinds
        assert step.kind_bytes.min() >= 0


@every_program
def test_the_rows_have_all_that_the_step_allocates(name: str) -> None:
    events = recorded(name).recording.memory.events  # type: ignore[union-attr]
    rows = recorded(name).columns("by_memory").records()
    for step in steps(name):
        sizes = [
            size
            for time, device, size in zip(
                events.time_ns, events.device, events.size_bytes, strict=True
            )
            if device == 0 and size > 0 and step.begin_ns <= time <= step.end_ns
        ]
        own = [row for row in rows if (row["step"], row["device"]) == (step.peak.step, 0)]
        assert sum(row["allocated_bytes"] for row in own) == sum(sizes)
        assert sum(row["allocations"] for row in own) == len(sizes)
        assert sum(row["peak_bytes"] for row in own) == step.peak.peak_bytes
        assert sum(row["blocks"] for row in own) == len(step.peak.blocks)


def test_the_phases_follow_each_other() -> None:
    named = [phase for _, phase in steps("gpt_graphs")[-1].phases]
    assert named[0] is Phase.OTHER and named[-1] is Phase.OPTIMIZER
    assert named.index(Phase.FORWARD) < named.index(Phase.BACKWARD)


def test_the_highest_step_of_each_device() -> None:
    most = highest(recorded("llama_compiled").analysis)
    assert [(each.device, each.step) for each in most] == [(0, 5), (CPU, 5)]


def test_the_csv_is_read_back_and_is_not_there_without_memory(tmp_path: Path) -> None:
    folders.export_csv(recorded("gpt_graphs").analysis, tmp_path)
    read = read_csv(tmp_path / "by_memory.csv")
    on_device = read[read.device == 0].groupby("step").peak_bytes.sum()
    assert tuple(on_device.tolist()) == PEAKS["gpt_graphs"]
    folders.export_csv(gpu_step(), tmp_path)
    assert not (tmp_path / "by_memory.csv").exists()
    assert (tmp_path / "launches.csv").exists()


def test_without_a_record_there_is_no_memory() -> None:
    assert memory_of_steps(gpu_step()) == () and highest(gpu_step()) == ()


@pytest.mark.parametrize("name", ["gpt_eager", "gpt_compiled"])
def test_a_row_that_is_freed_before_the_peak_has_no_bytes_there(name: str) -> None:
    rows = recorded(name).columns("by_memory", step=7).records()
    gone = [row for row in rows if not row["blocks"]]
    assert gone and all(row["peak_bytes"] == 0 < row["allocated_bytes"] for row in gone)
