"""A compiled graph that an op of another compiled graph runs is that op's work, on its own line."""

from __future__ import annotations

from profiler_ext.attribution import attribute
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.lineage import ModuleFrame
from tests.attribution.graphs import MODEL, extern, graph, node, triton
from tests.attribution.reading import rows
from tests.attribution.timeline import Timeline

INNER = graph(
    [node("div", 50, modules=())],
    [triton("triton_poi_fused_div_0", "div")],
    key="finner",
    compile_id="3/0",
)
FORWARD = graph(
    [node("mm", 1), node("mm_1", 2)],
    [extern("mm", "mm"), extern("mm", "mm_1")],
    key="fouter",
    compile_id="0/0",
)
ONE = graph([node("mm", 1)], [extern("mm", "mm")], key="fouter", compile_id="0/0")
BACKWARD = graph(
    [node("mm", 2, partitioner_tag="is_backward", forward_node="mm_1", forward_evidence="seq_nr")],
    [extern("mm", "mm")],
    key="fback",
    compile_id="0/0",
    is_backward=True,
)


def inner(timeline: Timeline, key: str = "finner") -> None:
    with (
        timeline.range("Torch-Compiled Region: 3/0"),
        timeline.annotation(f"## Call CompiledFxGraph {key} ##"),
    ):
        timeline.triton("triton_poi_fused_div_0")


def places(analysis: Analysis, *columns: str) -> list[tuple[object, ...]]:
    found = [analysis.places[at] for at in analysis.shares.place.tolist()]
    return [tuple(getattr(place, column) for column in columns) for place in found]


def test_it_has_its_own_line_and_the_module_and_line_of_the_op_for_each_call_of_the_op():
    timeline = Timeline()
    with timeline.forward("fouter"):
        for _ in range(2):
            with timeline.range("aten::mm"):
                inner(timeline)
    analysis = attribute(timeline.recording(INNER, FORWARD))
    columns = ("line", "module", "caller_file", "caller_line", "phase", "forward_evidence")
    assert places(analysis, *columns) == [
        (50, "layers.1", MODEL, 1, "forward", None),
        (50, "layers.2", MODEL, 2, "forward", None),
    ]
    stacks = [stack for (stack,) in places(analysis, "stack")]
    assert [[frame.line for frame in stack] for stack in stacks] == [[1, 50], [2, 50]]
    assert rows(analysis, "kernel", "graph", "gap") == [("triton_poi_fused_div_0", 0, "")] * 2


def test_in_a_backward_it_differentiates_what_the_op_differentiates():
    timeline = Timeline()
    with timeline.forward("fouter"):
        timeline.op("aten::mm", "gemm")
        timeline.op("aten::mm", "gemm")
    with timeline.backward("fback"), timeline.range("aten::mm"):
        inner(timeline)
    analysis = attribute(timeline.recording(INNER, FORWARD, BACKWARD))
    columns = ("line", "module", "caller_line", "phase", "forward_node", "forward_evidence")
    assert places(analysis, *columns)[-1] == (
        50,
        "layers.2",
        2,
        "backward",
        "mm_1",
        "link_of_call",
    )


def test_a_call_two_ops_down_has_the_line_of_the_one_right_around_it_and_the_model_of_both():
    middle = graph(
        [node("mm", 30, modules=())], [extern("mm", "mm")], key="fmiddle", compile_id="2/0"
    )
    timeline = Timeline()
    with (
        timeline.forward("fouter"),
        timeline.range("aten::mm"),
        timeline.range("Torch-Compiled Region: 2/0"),
        timeline.annotation("## Call CompiledFxGraph fmiddle ##"),
        timeline.range("aten::mm"),
    ):
        inner(timeline)
    analysis = attribute(timeline.recording(INNER, middle, ONE))
    assert places(analysis, "line", "caller_line", "module") == [(50, 30, "layers.1")]
    ((stack,),) = places(analysis, "stack")
    assert [frame.line for frame in stack] == [1, 30, 50]


def test_what_has_no_line_of_its_own_has_that_of_the_op():
    silent = graph(
        [node("div", 50, stack=(), modules=())],
        INNER.provenance.call_sites,
        key="finner",
        compile_id="3/0",
    )
    timeline = Timeline()
    with timeline.forward("fouter"), timeline.range("aten::mm"):
        inner(timeline)
    analysis = attribute(timeline.recording(silent, ONE))
    assert places(analysis, "line", "caller_line", "gap") == [(1, 1, None)]


def test_a_call_in_an_op_that_was_attributed_nowhere_has_its_own_line_alone():
    timeline = Timeline()
    with timeline.forward("fouter"), timeline.range("aten::conv"):
        inner(timeline)
    analysis = attribute(timeline.recording(INNER, ONE))
    found = places(analysis, "line", "caller_line", "module", "phase")
    assert (50, None, None, "forward") in found


def test_a_module_of_the_inner_graph_is_no_module_of_the_users_model():
    own = graph(
        [node("div", 50, modules=(ModuleFrame("scale", "Scale"),))],
        INNER.provenance.call_sites,
        key="finner",
        compile_id="3/0",
    )
    timeline = Timeline()
    with timeline.forward("fouter"), timeline.range("aten::mm"):
        inner(timeline)
    analysis = attribute(timeline.recording(own, ONE))
    assert places(analysis, "module", "module_class") == [("layers.1", "Layer")]
