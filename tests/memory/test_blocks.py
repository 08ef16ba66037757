"""Blocks over time, on records made by hand."""

from __future__ import annotations

from dataclasses import replace

from profiler_ext.memory.blocks import Owner, Timeline
from profiler_ext.memory.peak import peaks_of
from profiler_ext.records.analysis import Step
from profiler_ext.records.memory import (
    CPU,
    NO_STACK,
    AllocatorHistory,
    Blocks,
    Holders,
    LifeReason,
    MemoryEvents,
    MemoryGap,
    MemoryKind,
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


def test_what_is_older_is_what_held_it_when_the_recording_began() -> None:
    kinds = (OwnerKind.SAVED, OwnerKind.TENSOR, OwnerKind.TENSOR)
    owned = Owners(
        (0,) * 3,
        kinds,
        ("ExpBackward0.result", "float32 2x128", "float32 64"),
        (0,) * 3,
        (1, 2, 3),
        (512, 1024, 256),
    )
    held = Holders((0,), ("out['logits']",), ("/gpt/train.py",), (7,), ("<module>",), (0,), (2,))
    base = Blocks((0,) * 4, (1, 2, 3, 4), (512, 1024, 256, 128), (0,) * 4, (0,) * 4)
    analysis = gpu_step()
    none = AllocatorHistory()
    made = replace(record(), base=base, owners=owned, holders=held, history=none)
    analysis = replace(analysis, recording=replace(analysis.recording, memory=made))
    gaps = (*BY_NAME, MemoryGap.BEFORE_RECORDING)
    older = [each for each in peaks_of(analysis)[0].blocks if each.place.gap in gaps]
    assert [(e.size_bytes, e.kind, e.name, e.place.gap, e.life.reason) for e in older] == [
        (1024, MemoryKind.HELD, "out['logits'] of train.py", *BY_NAME, LifeReason.PYTHON),
        (512, MemoryKind.SAVED, "ExpBackward0.result", *BY_NAME, LifeReason.SAVED_TENSOR),
        (256, MemoryKind.HELD, "float32 64", *BY_NAME, None),
        (128, MemoryKind.OTHER, "", MemoryGap.BEFORE_RECORDING, None),
    ]


BY_NAME = (MemoryGap.HELD_BY_NAME,)
