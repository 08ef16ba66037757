"""What is reserved and not in use, on records made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.memory.births import allocated_by
from profiler_ext.memory.blocks import Timeline
from profiler_ext.memory.reserved import Segment, graph_pool, rounding_at, unused_at, unused_rows
from profiler_ext.records.analysis import Step
from profiler_ext.records.memory import (
    AllocatorHistory,
    AllocatorState,
    Blocks,
    MemoryEvents,
    MemoryRecord,
    Segments,
    StackFrame,
    UnusedKind,
    UnusedRow,
)
from tests.analyses import gpu_step

EVENTS = gpu_step().recording.trace.events
BASE_NS, KIB = 1_000_000, 1024
STATE = AllocatorState(0, 4 * KIB, 4 * KIB, 30 * KIB, 100 * KIB, 500 * KIB)


def record() -> MemoryRecord:
    """Of two segments and a graph's pool: one is returned, one reserved, and a block given back."""
    history = AllocatorHistory(
        device=(0,) * 7,
        action=(
            "free_requested",  # of the base, while a stream uses it
            "segment_free",
            "segment_alloc",
            "alloc",
            "segment_map",  # after the peak, and so is the rest
            "free_requested",
            "free_completed",
        ),
        address=(1000, 100_000, 200_000, 200_000, 300_000, 200_000, 200_000),
        requested_bytes=(900, 20 * KIB, 8 * KIB, 5000, 2 * KIB, 5000, 5000),
        stream=(0,) * 7,
        time_us=(1000, 1000, 1001, 1001, 1002, 1002, 1002),
        pool=(0,) * 7,
        stack=(-1,) * 7,
    )
    return MemoryRecord(
        trace_base_ns=BASE_NS,
        events=MemoryEvents(
            time_ns=(110, 1500, 2500),
            thread=(1, 1, 1),
            device=(0, 0, 0),
            address=(1000, 200_000, 200_000),
            size_bytes=(-KIB, 5 * KIB, -5 * KIB),
            allocated_bytes=(3 * KIB, 8 * KIB, 3 * KIB),
        ),
        history=history,
        base=Blocks((0, 0), (1000, 3000), (KIB, 3 * KIB), (0, 0), (0, 0)),
        base_segments=Segments(
            (0, 0, 0),
            (1000, 100_000, 400_000),
            (10 * KIB, 20 * KIB, 6 * KIB),
            (0, 0, 0),
            (0, 0, 7),
        ),
        end_segments=Segments((0,), (0,), (26 * KIB,), (0,), (0,)),  # of it only the sum counts
        before=(STATE,),
    )


def test_a_peak_and_what_is_unused_are_what_is_reserved_at_that_moment() -> None:
    peak = Timeline(record(), EVENTS).peak(Step.on_cpu(0, 100, 3000), 0)
    assert peak.peak_bytes == 8 * KIB
    rows = unused_at(record(), peak)
    assert rows == (
        UnusedRow(UnusedKind.FRAGMENTS, (10 - 1 - 3 + 8 - 5) * KIB),
        UnusedRow(UnusedKind.GRAPH_POOLS, 6 * KIB),
        UnusedRow(UnusedKind.AWAITING, KIB),
        UnusedRow(UnusedKind.OUTSIDE, 70 * KIB),
    )
    reserved = sum(row.size_bytes for row in rows if row.kind is not UnusedKind.OUTSIDE)
    assert peak.peak_bytes + reserved == (10 + 8 + 6) * KIB


def test_without_segments_nothing_is_said() -> None:
    peak = Timeline(record(), EVENTS).peak(Step.on_cpu(0, 100, 3000), 0)
    assert unused_at(replace(record(), base_segments=Segments()), peak) is None


def test_a_history_that_lost_a_segment_says_nothing() -> None:
    peak = Timeline(record(), EVENTS).peak(Step.on_cpu(0, 100, 3000), 0)
    lost = replace(record(), history=AllocatorHistory())
    assert unused_at(lost, peak) is None


def test_a_segment_without_a_block_is_cached() -> None:
    segments = [Segment(0, 10), Segment(100, 20)]
    assert unused_rows(segments, [(100, 20)]) == (UnusedRow(UnusedKind.CACHED, 10),)


def test_a_range_of_a_segment_that_is_unmapped_is_cut_out() -> None:
    (left, right) = Segment(100, 50).without(110, 20)
    assert (left, right) == (Segment(100, 10), Segment(130, 20))
    assert [*Segment(100, 50).without(200, 20)] == [Segment(100, 50)]


def test_the_pool_of_torch_compiles_graphs_is_known_by_its_id() -> None:
    known = replace(record(), graph_pools=(-3,))
    assert graph_pool(known, -3) == "torch.compile's CUDA graphs"
    assert (graph_pool(known, 7), graph_pool(known, -4), graph_pool(known, 0)) == (
        "torch.cuda.graph",
        "",
        "",
    )


def test_blocks_are_larger_than_asked_for() -> None:
    peak = Timeline(record(), EVENTS).peak(Step.on_cpu(0, 100, 3000), 0)
    assert rounding_at(record(), peak) is None  # of what is older nothing is known
    base = replace(record().base, requested_bytes=(KIB, 3 * KIB - 24))
    assert rounding_at(replace(record(), base=base), peak) == 24 + 5 * KIB - 5000


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([("fsdp/_fully_shard/_fsdp_param.py", "alloc_all_gather_outputs")], "unsharded"),
        (
            [
                ("fsdp/_fully_shard/_fsdp_param.py", "init_all_gather_outputs"),
                ("fsdp/_fully_shard/_fsdp_collectives.py", "foreach_all_gather_copy_out"),
            ],
            "unsharded",
        ),
        ([("fsdp/_fully_shard/_fsdp_collectives.py", "foreach_reduce")], "communication"),
        ([("_inductor/runtime/benchmarking.py", "benchmark_gpu")], "workspaces"),
        ([("nn/parallel/distributed.py", "_ddp_init_helper")], "communication"),
        ([("nn/modules/linear.py", "forward"), ("nn/parallel/distributed.py", "_pre_forward")], ""),
    ],
)
def test_functions_of_torch_allocate_for_themselves(
    frames: list[tuple[str, str]], expected: str
) -> None:
    folder = {"fsdp": "distributed/"}
    stack = [
        StackFrame(f"/venv/torch/{folder.get(file[:4], '')}{file}", 1, name)
        for file, name in frames
    ]
    found = allocated_by(stack)
    assert (found[0].value.partition("_")[0] if found else "") == expected
