from __future__ import annotations

from dataclasses import replace

from profiler_ext.attribution import attribute
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Thread
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import Gap
from profiler_ext.records.vocabulary import Level, Phase
from tests.attribution.reading import assert_conserves, rows
from tests.attribution.timeline import AUTOGRAD, Timeline


def _place(timeline: Timeline, launch: int = 0) -> Place:
    analysis = attribute(timeline.recording())
    assert_conserves(analysis)
    return analysis.places[analysis.shares.place[launch]]


def test_an_eager_launch_belongs_to_the_outermost_aten_op():
    timeline = Timeline()
    _forward_op(timeline, "aten::linear", 5)
    assert _place(timeline) == Place(aten_op="aten::linear", phase=Phase.OTHER, level=Level.OP)
    assert rows(attribute(timeline.recording()), "kind", "level", "evidence") == [
        ("eager", "op", "launching_op")
    ]


def test_copies_and_memsets_are_rows_of_their_kind():
    timeline = Timeline()
    timeline.op("aten::copy_", "Memcpy HtoD", category="gpu_memcpy")
    timeline.op("aten::zero_", "Memset (Device)", category="gpu_memset")
    assert rows(attribute(timeline.recording()), "kind", "phase") == [
        ("memcpy", "other"),
        ("memset", "other"),
    ]


def test_an_op_that_autograd_never_numbered_is_not_called_forward():
    timeline = Timeline()
    timeline.op("aten::randn", "distribution")
    assert _place(timeline).phase is Phase.OTHER


def test_a_collective_is_communication():
    timeline = Timeline()
    with timeline.range("c10d::allreduce_"):
        timeline.op("nccl:all_reduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)")
    assert rows(attribute(timeline.recording()), "kind", "level") == [("communication", "op")]


def _backward(timeline: Timeline, sequence: int, fwd_thread: int = 1) -> None:
    args = {"Sequence number": sequence, "Fwd thread id": fwd_thread}
    with (
        timeline.on(AUTOGRAD),
        timeline.range("autograd::engine::evaluate_function: AddmmBackward0", **args),
        timeline.range("AddmmBackward0", **args),
    ):
        timeline.op("aten::mm", "cublas")


def _forward_op(timeline: Timeline, name: str, sequence: int) -> None:
    with timeline.range(name):
        timeline.op(f"{name}_inner", "kernel", **{"Sequence number": sequence})


def test_what_a_cuda_graph_of_the_programs_own_replays_is_not_aotinductors():
    timeline = Timeline()
    timeline.replay("triton_poi_fused_gelu_0", "cublas")
    assert rows(attribute(timeline.recording()), "kind", "level", "gap") == [
        ("triton", "none", "own_cuda_graph"),
        ("eager", "none", "own_cuda_graph"),
    ]


def test_what_a_thread_launched_that_was_not_recorded_says_so():
    timeline = Timeline()
    timeline.op("aten::relu", "kernel")
    with timeline.on(Thread(100, 200)):
        timeline.launch("kernel")
        timeline.launch("triton_poi_fused_relu_0")
    timeline.launch("kernel")
    recording = timeline.recording()
    alone = replace(recording, gaps=(Gap(GapReason.THREAD_NOT_RECORDED, "loader"),))
    analysis = attribute(alone)
    assert_conserves(analysis)
    assert rows(analysis, "gap") == [
        ("",),
        ("thread_not_recorded",),
        ("thread_not_recorded",),
        ("no_launching_op",),
    ]
    assert "thread_not_recorded: loader" in analysis.notes
    assert [gap for (gap,) in rows(attribute(recording), "gap")] == [
        "",
        "no_launching_op",
        "aot_inductor",
        "no_launching_op",
    ]


def test_a_backward_op_is_attributed_to_its_forward_op_by_sequence_number():
    timeline = Timeline()
    timeline.op("aten::item", **{"Sequence number": 5})
    _forward_op(timeline, "aten::linear", 5)
    _backward(timeline, 5)
    assert _place(timeline, 1) == Place(
        aten_op="aten::mm",
        phase=Phase.BACKWARD,
        forward_node="aten::linear",
        forward_evidence="autograd_sequence_number",
        level=Level.OP,
    )
    assert rows(attribute(timeline.recording()), "phase", "evidence") == [
        ("forward", "differentiated_op"),
        ("backward", "autograd_sequence_number"),
    ]


def test_a_backward_op_whose_forward_is_not_in_the_trace_is_still_backward():
    timeline = Timeline()
    _backward(timeline, 5)
    assert _place(timeline).forward_node is None
    assert rows(attribute(timeline.recording()), "phase", "evidence") == [
        ("backward", "launching_op")
    ]


def test_two_forward_threads_with_one_sequence_number_are_distinguished_where_it_was_learnt():
    timeline = Timeline()
    _forward_op(timeline, "aten::linear", 5)
    with timeline.on(Thread(100, 200)):
        _forward_op(timeline, "aten::conv2d", 5)
    _backward(timeline, 5)
    assert _place(timeline, 2).forward_node is None
    _forward_op(timeline, "aten::linear", 6)
    _backward(timeline, 6)
    assert _place(timeline, 2).forward_node == "aten::linear"


def test_adding_to_a_parameters_gradient_is_gradient_accumulation():
    timeline = Timeline()
    node = "torch::autograd::AccumulateGrad"
    with timeline.range(f"autograd::engine::evaluate_function: {node}"), timeline.range(node):
        timeline.op("aten::add_", "add")
        timeline.op("c10d::allreduce_", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)")
    assert _place(timeline).phase is Phase.GRADIENT_ACCUMULATION
    assert _place(timeline, 1).phase is Phase.BACKWARD


def test_what_an_optimizer_runs_is_the_optimizers():
    timeline = Timeline()
    with timeline.annotation("Optimizer.step#AdamW.step"):
        timeline.op("aten::_foreach_add_", "add")
    with timeline.annotation("Optimizer.zero_grad#AdamW.zero_grad"):
        timeline.op("aten::zero_", "zero")
    assert rows(attribute(timeline.recording()), "phase", "evidence") == [
        ("optimizer", "optimizer_range"),
        ("optimizer", "optimizer_range"),
    ]


def test_what_runs_while_compiling_is_distinguished_from_the_trials_that_inductor_times():
    timeline = Timeline()
    with timeline.annotation("_compile.compile_inner (dynamo_timed)"):
        timeline.op("aten::mm", "cublas")
        with timeline.annotation("benchmark_fused_nodes (dynamo_timed)"):
            timeline.op("aten::mm", "cublas")
            with timeline.annotation("CachingAutotuner.benchmark_all_configs (dynamo_timed)"):
                timeline.op("aten::mm", "cublas")
        with timeline.annotation("mm_template_autotuning (dynamo_timed)"):
            timeline.op("aten::mm", "cublas")
        timeline.op("aten::mm", "cublas")
    assert rows(attribute(timeline.recording()), "kind", "level", "gap") == [
        ("eager", "none", "compiling"),
        *[("eager", "none", "autotuning")] * 3,
        ("eager", "none", "compiling"),
    ]


def test_an_operator_that_only_an_optimizer_calls_is_the_optimizers():
    timeline = Timeline()
    timeline.op("aten::_fused_adamw_", "multi_tensor_apply_kernel", **{"Sequence number": 5})
    assert _place(timeline).phase is Phase.OPTIMIZER


def test_what_fsdp_gathers_and_reduces_belongs_to_the_pass_and_the_module_it_is_for():
    timeline = Timeline()
    gather, reduce = "ncclDevKernel_AllGather_RING_LL(x)", "ncclDevKernel_ReduceScatter_RING_LL(x)"
    pre, inner = "FSDP::pre_forward (layers.0)", "FSDP::all_gather (layers.0)"
    with timeline.annotation(pre), timeline.annotation(inner):
        timeline.op("c10d::_allgather_base_", gather)
    with timeline.annotation("FSDP::root_post_backward_callback"):
        timeline.op("aten::div_", "div")
        with timeline.annotation("FSDP::post_backward_reduce (layers.1)"):
            timeline.op("c10d::_reduce_scatter_base_", reduce)
    with timeline.range("autograd::engine::evaluate_function: MulBackward0"):
        with timeline.annotation("FSDP::backward_prefetch for layers.2"):
            timeline.op("c10d::_allgather_base_", gather)
        with timeline.annotation("FSDP::pre_forward (layers.3)"):
            timeline.op("c10d::_allgather_base_", gather)
    analysis = attribute(timeline.recording())
    assert [(place.phase, place.module) for place in analysis.places] == [
        (Phase.FORWARD, "layers.0"),
        (Phase.BACKWARD, None),
        (Phase.BACKWARD, "layers.1"),
        (Phase.BACKWARD, "layers.2"),
        (Phase.RECOMPUTE, "layers.3"),
    ]
    assert set(rows(analysis, "evidence")) == {("sharding_range",)}


def test_a_generated_kernel_that_no_wrapper_launched_in_no_graph_call_is_aotinductors():
    timeline = Timeline()
    timeline.launch("triton_poi_fused_gelu_0")
    with timeline.annotation("my model"):
        timeline.launch("triton_poi_fused_gelu_0")
        timeline.launch("cublas")
    timeline.triton("triton_poi_fused_gelu_0")  # its graph call began before the trace
    assert rows(attribute(timeline.recording()), "kind", "level", "gap") == [
        ("triton", "none", "aot_inductor"),
        ("triton", "none", "aot_inductor"),
        ("eager", "none", "no_launching_op"),
        ("triton", "none", "no_launching_op"),
    ]
