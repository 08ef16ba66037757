"""Blocks over time, on records made by hand."""

from __future__ import annotations

from dataclasses import replace

from profiler_ext.memory.blocks import Owner, Timeline
from profiler_ext.records.analysis import Step
from profiler_ext.records.memory import (
    CPU,
    NO_STACK,
    AllocatorHistory,
    Blocks,
    MemoryEvents,
    MemoryRecord,
    OwnerKind,
    Owners,
)
from tests.analyses import gpu_step

EVENTS = gpu_step().recording.trace.events
STEPS = (Step.on_cpu(0, 100, 200), Step.on_cpu(1, 200, 300))
KIB = 1024


def record() -> MemoryRecord:
    """Of a base of 8 KiB on the GPU: two allocations, of which one is freed in the next step."""
    return MemoryRecord(
        trace_base_ns=0,
        events=MemoryEvents(
            time_ns=(110, 120, 210, 220),
            thread=(1, 1, 1, 1),
            device=(0, 0, 0, 0),
            address=(100, 200, 100, 300),
            size_bytes=(KIB, 2 * KIB, -KIB, 512),
            allocated_bytes=(9 * KIB, 11 * KIB, 10 * KIB, 10 * KIB + 512),
        ),
        history=AllocatorHistory(
            device=(0,) * 6,
            action=("alloc", "segment_alloc", "alloc", "alloc", "free_requested", "alloc"),
            address=(100, 7, 555, 200, 100, 300),
            requested_bytes=(1000, 9999, 8, 2000, 1000, 500),
            stream=(0,) * 6,
            time_us=(0,) * 6,
            pool=(0, 0, 0, 3, 0, 0),
            stack=(4, NO_STACK, 5, 6, NO_STACK, 7),
        ),
        base=Blocks((0,), (900,), (8 * KIB,), (0,), (0,)),
        owners=Owners((0,), (OwnerKind.PARAMETER,), ("up.weight",), (0,), (900,), (8 * KIB,)),
    )


def test_the_peak_counts_what_is_alive_when_a_step_begins() -> None:
    timeline = Timeline(record(), EVENTS)
    first, second = (timeline.peak(step, 0) for step in STEPS)
    assert (first.peak_bytes, first.time_ns) == (11 * KIB, 120)
    assert (second.peak_bytes, second.time_ns) == (11 * KIB, 200)
    assert [each.size_bytes for each in second.blocks] == [8 * KIB, 2 * KIB, KIB]
    assert first.unseen_bytes == second.unseen_bytes == 0


def test_an_owner_holds_the_block_at_its_address() -> None:
    older = Timeline(record(), EVENTS).blocks[0]
    assert older.owners == (Owner(OwnerKind.PARAMETER, "up.weight"),)


def test_stacks_are_matched_in_order_past_those_of_other_threads() -> None:
    blocks = Timeline(record(), EVENTS).blocks
    assert [(each.stack, each.pool) for each in blocks] == [
        *((NO_STACK, 0), (4, 0), (6, 3), (7, 0)),
    ]


def test_what_no_block_has_of_the_allocators_count_is_unseen() -> None:
    made = record()
    counted = tuple(each + 4 * KIB for each in made.events.allocated_bytes)
    peak = Timeline(
        replace(made, events=replace(made.events, allocated_bytes=counted)), EVENTS
    ).peak(STEPS[0], 0)
    assert (peak.peak_bytes, peak.unseen_bytes) == (15 * KIB, 4 * KIB)


def test_on_the_cpu_the_base_is_what_python_held() -> None:
    owners = Owners(
        (0, 0, 0),
        (OwnerKind.PARAMETER, OwnerKind.TENSOR, OwnerKind.TENSOR),
        ("up.weight", "float32 5", "float32 7"),
        (CPU,) * 3,
        (900, 900, 800),
        (20, 20, 28),
    )
    events = MemoryEvents(
        (110, 120, 130), (1,) * 3, (CPU,) * 3, (700, 800, 600), (64, 0, 8), (0,) * 3
    )
    peak = Timeline(MemoryRecord(0, events=events, owners=owners), EVENTS).peak(STEPS[0], CPU)
    assert (peak.peak_bytes, peak.unseen_bytes) == (20 + 28 + 64, 0)
    assert sorted(each.size_bytes for each in peak.blocks) == [20, 28, 64]
