"""Forward is what runs in a module's forward, a compiled function, or is differentiated."""

from __future__ import annotations

import pytest

from profiler_ext.attribution import attribute
from tests.attribution.graphs import graph, node
from tests.attribution.reading import assert_conserves, rows
from tests.attribution.timeline import Timeline

PYTHON = "python_function"
RECOMPUTED = "torch/utils/checkpoint.py(1500): recompute_fn"


def _phases(timeline: Timeline, *graphs) -> list[tuple]:
    analysis = attribute(timeline.recording(*graphs))
    assert_conserves(analysis)
    return rows(analysis, "phase", "evidence")


def _node(timeline: Timeline, name: str, sequence: int):
    args = {"Sequence number": sequence, "Fwd thread id": 0}
    return timeline.range(f"autograd::engine::evaluate_function: {name}", **args)


def test_what_a_module_runs_is_forward_whether_autograd_records_it_or_not() -> None:
    timeline = Timeline()
    timeline.op("aten::randn", "distribution")
    with timeline.range("nn.Module: Net_0", PYTHON):
        timeline.op("aten::addmm", "cublas")
        timeline.op("aten::relu", "relu", **{"Sequence number": 3})
        timeline.launch("kernel of the program")
    timeline.op("aten::mul_", "average")
    assert _phases(timeline) == [
        ("other", "launching_op"),
        ("forward", "module_call"),
        ("forward", "module_call"),
        ("forward", ""),
        ("other", "launching_op"),
    ]


def test_of_what_autograd_numbers_outside_of_modules_what_is_differentiated_is_forward() -> None:
    timeline = Timeline()
    timeline.op("aten::mul", "batch", **{"Sequence number": 4})
    with timeline.range("aten::cross_entropy_loss", **{"Sequence number": 4}):
        timeline.op("aten::to", "cast", **{"Sequence number": 4})
        timeline.op("aten::_log_softmax", "softmax", **{"Sequence number": 4})
    with _node(timeline, "LogSoftmaxBackward0", 4):
        timeline.op("aten::_log_softmax_backward_data", "softmax_backward")
    timeline.op("aten::item", "copy", **{"Sequence number": 5})
    assert _phases(timeline) == [
        ("other", "launching_op"),
        ("forward", "differentiated_op"),
        ("forward", "differentiated_op"),
        ("backward", "autograd_sequence_number"),
        ("other", "launching_op"),
    ]


@pytest.mark.parametrize(("runs_optimizer", "phase"), [(False, "forward"), (True, "other")])
def test_what_runs_in_a_compiled_function_next_to_its_graphs_is_forward_unless_it_updates(
    runs_optimizer: bool, phase: str
) -> None:
    timeline = Timeline()
    with timeline.range("Torch-Compiled Region: 0/0"):
        timeline.op("aten::nonzero", "kernel")
    compiled = graph((node("relu", 3),), (), runs_optimizer=runs_optimizer, compile_id="0/0")
    assert [each for each, _ in _phases(timeline, compiled)] == [phase]


def test_what_stands_next_to_an_optimizers_op_in_a_compiled_function_may_be_its() -> None:
    timeline = Timeline()
    with timeline.range("Torch-Compiled Region: 0/0"):
        timeline.op("aten::_foreach_add_", "count")
        timeline.op("aten::_fused_adamw_", "update")
    assert [phase for phase, _ in _phases(timeline)] == ["other", "optimizer"]


def test_what_a_checkpoint_runs_again_is_recompute_and_the_backward_that_it_calls_is_not() -> None:
    timeline = Timeline()
    with _node(timeline, "CheckpointFunctionBackward", 4):
        with timeline.range("torch/utils/checkpoint.py(300): backward", PYTHON):
            with timeline.range("nn.Module: Linear_0", PYTHON):
                timeline.op("aten::addmm", "cublas", **{"Sequence number": 1})
            with _node(timeline, "AddmmBackward0", 1):
                timeline.op("aten::mm", "cublas")
                with timeline.range(f"/opt/{RECOMPUTED}", PYTHON):
                    timeline.op("aten::mm", "cublas")
        timeline.op("aten::mul", "after")
    assert [phase for phase, _ in _phases(timeline)] == [
        "recompute",
        "backward",
        "recompute",
        "backward",
    ]


def test_a_forward_outside_of_the_engine_is_no_recomputation() -> None:
    timeline = Timeline()
    with timeline.range(RECOMPUTED, PYTHON), timeline.range("nn.Module: Linear_0", PYTHON):
        timeline.op("aten::addmm", "cublas")
    assert _phases(timeline) == [("forward", "module_call")]
