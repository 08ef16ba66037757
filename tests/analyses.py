"""Small analyses made by hand: a training step on a GPU, and one on the CPU.

Every number is written out, so that a test can compare whole values.
"""

from __future__ import annotations

from typing import Any

from profiler_ext.records.analysis import Analysis, BreakdownRow, Step
from profiler_ext.records.events import Device
from profiler_ext.records.recording import Recording, Settings
from profiler_ext.sessions.session import Session
from tests.gpu_events import BACKWARD_KEY, FORWARD_KEY, GPU_MARKS, MAIN, host
from tests.gpu_model import GPU_GRAPHS, GPU_PLACES
from tests.handmade import Mark, Piece, Row, idle, launches, shares, trace

GPU_ROWS = (
    Row(23, ((0, 10_000),), "memcpy", "other", "op", "", 3, op_event=1, evidence="launching_op"),
    Row(
        24,
        ((1, 50_000),),
        "extern",
        "forward",
        "line",
        "extern_kernels.addmm",
        3,
        0,
        0,
        6,
        "call_order_and_op",
    ),
    Row(
        25,
        ((2, 13_334), (3, 6_667)),
        "triton",
        "forward",
        "line",
        "triton_poi_fused__to_copy_gelu_0",
        3,
        0,
        1,
        8,
        "call_order",
    ),
    Row(
        26,
        ((4, 20_000), (5, 10_000)),
        "triton",
        "backward",
        "line",
        "triton_red_fused_gelu_backward_sum_0",
        3,
        1,
        0,
        10,
        "call_order",
    ),
    Row(
        27,
        ((6, 40_000),),
        "extern",
        "backward",
        "line",
        "extern_kernels.mm",
        3,
        1,
        1,
        13,
        "call_order_and_op",
    ),
    Row(
        28,
        ((7, 20_000),),
        "extern",
        "backward",
        "none",
        "",
        3,
        1,
        op_event=10,
        gap="ambiguous_extern_run",
    ),
    Row(
        29,
        ((8, 4_000),),
        "eager",
        "gradient_accumulation",
        "op",
        "",
        3,
        op_event=16,
        evidence="autograd_sequence_number",
    ),
    Row(
        30, ((9, 500),), "memset", "optimizer", "op", "", 3, op_event=19, evidence="optimizer_range"
    ),
    Row(
        31,
        ((10, 60_000),),
        "eager",
        "optimizer",
        "op",
        "",
        3,
        op_event=21,
        evidence="optimizer_range",
    ),
)

GPU_IDLE = (
    Piece(3, 0, 0, 10_000, "python"),
    Piece(3, 0, 10_000, 6_000, "launching", "cudaMemcpyAsync"),
    Piece(3, 0, 16_000, 34_000, "launch_latency"),
    Piece(3, 1, 60_000, 9_000, "launching", "aten::addmm"),
    Piece(3, 1, 69_000, 31_000, "launch_latency", f"## Call CompiledFxGraph {FORWARD_KEY} ##"),
    Piece(3, 2, 150_000, 10_000, "between_launches", f"## Call CompiledFxGraph {FORWARD_KEY} ##"),
    Piece(3, 3, 180_001, 39_999, "python"),
    Piece(3, 3, 220_000, 24_000, "launching", f"## Call CompiledFxGraph {BACKWARD_KEY} ##"),
    Piece(3, 3, 244_000, 66_000, "launch_latency", f"## Call CompiledFxGraph {BACKWARD_KEY} ##"),
    Piece(3, 4, 370_000, 30_000, "between_launches", "aten::add_"),
    Piece(3, 5, 420_000, 10_000, "between_launches"),
    Piece(3, 6, 434_000, 16_000, "python", "Optimizer.step#AdamW.step"),
    Piece(3, 6, 450_000, 9_000, "launching", "aten::zero_"),
    Piece(3, 6, 459_000, 41_000, "launch_latency", "Optimizer.step#AdamW.step"),
    Piece(3, 7, 500_500, 93_500, "launching", "aten::_fused_adamw_"),
    Piece(3, 7, 594_000, 106_000, "launch_latency", "Optimizer.step#AdamW.step"),
    Piece(3, 8, 760_000, 240_000, "end_of_step"),
)

GPU_BREAKDOWN = (
    BreakdownRow(3, 0, "compiled", "line", "line", 130_001),
    BreakdownRow(3, 0, "compiled", "none", "ambiguous_extern_run", 20_000),
    BreakdownRow(3, 0, "eager", "op", "op", 74_500),
    BreakdownRow(3, 0, "idle", None, "idle", 775_499),
)


def gpu_step() -> Analysis:
    """Return a step on one GPU: forward, backward, optimizer, copies, an overlap and a gap."""
    return Analysis(
        recording=Recording(
            trace=trace(GPU_MARKS, (Device(0, "NVIDIA H200"),)),
            graphs=GPU_GRAPHS,
            settings=Settings(
                user_roots=("/home/ann/gpt",),
                command=("train.py",),
                torch_version="2.11.0",
                step_source="prof.step",
            ),
        ),
        steps=(Step.on_cpu(3, 0, 1_000_000),),
        launches=launches(GPU_MARKS, GPU_ROWS),
        places=GPU_PLACES,
        shares=shares(GPU_ROWS),
        idle=idle(GPU_IDLE),
        breakdown=GPU_BREAKDOWN,
    )


CPU_MARKS = (
    Mark("ProfilerStep#0", "user_annotation", MAIN, 0, 500_000, {"External id": 1}),
    host("Torch-Compiled Region: 0/0", MAIN, 10_000, 300_000, External_id=2),
    host("aten::addmm", MAIN, 20_000, 100_000, External_id=3),
    host("cpp_fused_gelu_0", MAIN, 130_000, 60_001, External_id=4),
    host("aten::_fused_adamw_", MAIN, 400_000, 50_000, External_id=5),
)

CPU_ROWS = (
    Row(
        2,
        ((1, 100_000),),
        "extern",
        "forward",
        "line",
        "extern_kernels.addmm",
        0,
        0,
        0,
        2,
        "call_order_and_op",
    ),
    Row(
        3,
        ((2, 40_001), (3, 20_000)),
        "cpp",
        "forward",
        "line",
        "cpp_fused_gelu_0",
        0,
        0,
        1,
        3,
        "call_order",
    ),
    Row(
        4,
        ((10, 50_000),),
        "eager",
        "optimizer",
        "op",
        "",
        0,
        op_event=4,
        evidence="optimizer_range",
    ),
)


CPU_IDLE = (
    Piece(0, 0, 0, 10_000, "python"),
    Piece(0, 0, 10_000, 10_000, "launching", "Torch-Compiled Region: 0/0"),
    Piece(0, 1, 120_000, 10_000, "launching", "Torch-Compiled Region: 0/0"),
    Piece(0, 2, 190_001, 119_999, "launching", "Torch-Compiled Region: 0/0"),
    Piece(0, 2, 310_000, 90_000, "python"),
    Piece(0, 3, 450_000, 50_000, "end_of_step"),
)


def cpu_step() -> Analysis:
    """Return a step on the CPU: its launches are CPU events, and have no stream."""
    return Analysis(
        recording=Recording(trace=trace(CPU_MARKS), graphs=GPU_GRAPHS[:1]),
        steps=(Step.on_cpu(0, 0, 500_000),),
        launches=launches(CPU_MARKS, CPU_ROWS),
        places=GPU_PLACES,
        shares=shares(CPU_ROWS),
        idle=idle(CPU_IDLE),
        breakdown=(
            BreakdownRow(0, 0, "compiled", "line", "line", 160_001),
            BreakdownRow(0, 0, "eager", "op", "op", 50_000),
            BreakdownRow(0, 0, "idle", None, "idle", 289_999),
        ),
    )


def session_of(analysis: Analysis) -> Session:
    """A session whose analysis is this one."""
    session = Session(analysis.recording)
    session.analysis = analysis
    return session


def report(analysis: Analysis, **options: Any) -> str:
    """All of the text report."""
    return session_of(analysis).report(verbose=True, **options)
