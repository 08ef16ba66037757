"""Attribution of a recording without a device: C++ kernels and operators are the launches."""

from __future__ import annotations

from profiler_ext.attribution import attribute
from tests.attribution.graphs import cpp, extern, graph, node
from tests.attribution.reading import assert_conserves, lines, rows
from tests.attribution.timeline import Timeline

NODES = (node("relu", 3), node("mm", 4), node("sum", 5))
GRAPH = graph(
    NODES, (cpp("cpp_fused_relu_0", "relu"), extern("mm", "mm"), cpp("cpp_fused_1", "sum"))
)


def _step() -> Timeline:
    timeline = Timeline()
    with timeline.range("aten::linear", **{"Sequence number": 5}):
        timeline.op("aten::addmm")
    with timeline.forward("fkey"):
        timeline.op("graph_0_cpp_fused_relu_0")
        with timeline.range("aten::mm"):
            timeline.op("aten::resize_")
        timeline.op("cpp_fused_1")
    with timeline.annotation("Optimizer.step#SGD.step"):
        timeline.op("aten::_foreach_add_")
    return timeline


def test_launches_are_cpp_kernels_and_outermost_operators():
    analysis = attribute(_step().recording(GRAPH))
    assert rows(analysis, "name", "kernel", "kind", "phase", "call_site", "evidence") == [
        ("aten::linear", "", "eager", "other", None, "launching_op"),
        ("graph_0_cpp_fused_relu_0", "cpp_fused_relu_0", "cpp", "forward", 0, "call_order"),
        ("aten::mm", "extern_kernels.mm", "extern", "forward", 1, "call_order_and_op"),
        ("cpp_fused_1", "cpp_fused_1", "cpp", "forward", 2, "call_order"),
        ("aten::_foreach_add_", "", "eager", "optimizer", None, "optimizer_range"),
    ]
    assert lines(analysis)[1:4] == [
        ("graph_0_cpp_fused_relu_0", (3,)),
        ("aten::mm", (4,)),
        ("cpp_fused_1", (5,)),
    ]
    assert_conserves(analysis)


def test_there_is_one_device_and_no_stream():
    assert (
        rows(attribute(_step().recording(GRAPH)), "device", "stream", "gap") == [(0, None, "")] * 5
    )


def test_an_operator_that_calls_a_compiled_graph_is_no_launch():
    timeline = Timeline()
    with timeline.range("mylib::block"), timeline.forward("fkey"):
        timeline.op("cpp_fused_relu_0")
    assert rows(attribute(timeline.recording(GRAPH)), "name") == [("cpp_fused_relu_0",)]


def test_a_graph_that_calls_a_graph_keeps_both_in_order():
    inner = graph(
        (node("exp", 8),), (cpp("cpp_fused_exp_0", "exp"),), key="inner", compile_id="1/0"
    )
    timeline = Timeline()
    with timeline.forward("fkey"):
        timeline.op("cpp_fused_relu_0")
        with timeline.range("mylib::block"), timeline.forward("inner", region="1/0"):
            timeline.op("cpp_fused_exp_0")
        timeline.op("aten::mm")
        timeline.op("cpp_fused_1")
    analysis = attribute(timeline.recording(GRAPH, inner))
    assert rows(analysis, "graph", "call_site") == [(0, 0), (1, 0), (0, 1), (0, 2)]
