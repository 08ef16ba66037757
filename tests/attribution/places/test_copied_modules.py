"""A kernel that compiled autograd copied has the module of the very forward it was copied of."""

from dataclasses import replace

import pytest

from profiler_ext.attribution import attribute
from profiler_ext.kineto.names import call_mark
from profiler_ext.records.lineage import ModuleFrame
from profiler_ext.records.provenance import FxNode, GraphInstance
from profiler_ext.records.recording import Recording
from tests.attribution.graphs import extern, graph, node
from tests.attribution.timeline import AUTOGRAD, SETTINGS, Timeline
from tests.fx_nodes import changed

BLOCKS = tuple((at, ModuleFrame(f"blocks.{at}", "Block")) for at in range(3))
ROOT = (ModuleFrame("", "Block"),)
COPY = node("mm", 1, modules=ROOT, joint="joint0", partitioner_tag="is_backward")
NODES = (
    changed(COPY, copied_call="aot4"),
    changed(COPY, name="mm_1", copied_call="aot4_1"),
)


def forward(key: str = "fkey", joint: str = "joint0") -> GraphInstance:
    made = graph([node("mm", 1, modules=ROOT)], [extern("mm", "mm")], key=key)
    assert made.provenance is not None
    return replace(made, provenance=replace(made.provenance, joint=joint))


def copied(*nodes: FxNode) -> GraphInstance:
    found = nodes or NODES
    return graph(found, [extern("mm", each.name) for each in found], key="ckey", compile_id="!0")


def call(timeline: Timeline, block: int, number: int, key: str = "fkey") -> None:
    args = {"Sequence number": number, "Fwd thread id": 0}
    with timeline.range("CompiledFunction", **args), timeline.range(str(call_mark(module=block))):
        run(timeline, key, 1)


def backward(timeline: Timeline, *calls: tuple[str, int], kernels: int = 2) -> None:
    with timeline.range(str(call_mark(copies=calls))):
        run(timeline, "ckey", kernels)


def run(timeline: Timeline, key: str, kernels: int) -> None:
    with timeline.annotation(f"## Call CompiledFxGraph {key} ##"):
        for _ in range(kernels):
            timeline.op("aten::mm", "gemm")


def modules(timeline: Timeline, *graphs: GraphInstance) -> list[str | None]:
    """Return the modules of the kernels that were copied, in order."""
    settings = replace(SETTINGS, called_modules=BLOCKS)
    recording = Recording(timeline.trace(), graphs or (forward(), copied()), settings)
    places = attribute(recording).places
    shares = attribute(recording).shares.place.tolist()
    return [places[at].module for at in shares if places[at].phase == "backward"]


@pytest.mark.parametrize("order", [(8, 7), (7, 8)])
def test_each_copy_has_the_module_of_its_own_forward_in_whichever_order(order: tuple[int, int]):
    timeline = Timeline()
    for at in range(3):
        call(timeline, at, 7 + at)
    backward(timeline, ("aot4", order[0]), ("aot4_1", order[1]))
    assert modules(timeline) == [f"blocks.{number - 7}" for number in order]


def test_a_graph_that_is_run_again_copies_other_forwards():
    timeline = Timeline()
    for first, second in ((0, 1), (2, 0)):
        number = 7 + 10 * first
        call(timeline, first, number)
        call(timeline, second, number + 1)
        backward(timeline, ("aot4", number + 1), ("aot4_1", number))
    assert modules(timeline) == ["blocks.1", "blocks.0", "blocks.0", "blocks.2"]


def test_one_copy_of_a_forward_that_several_modules_share_has_its_own():
    timeline = Timeline()
    call(timeline, 0, 7)
    call(timeline, 1, 8)
    backward(timeline, ("aot4", 8), kernels=1)
    assert modules(timeline, forward(), copied(NODES[0])) == ["blocks.1"]


def test_one_of_several_copies_whose_forward_is_not_in_the_trace_has_none():
    timeline = Timeline()
    call(timeline, 1, 8)
    backward(timeline, ("aot4", 8), ("aot4_1", 7))
    assert modules(timeline) == ["blocks.1", None]


def test_the_only_copy_of_a_forward_that_is_not_in_the_trace_has_the_one_module_of_such():
    timeline = Timeline()
    call(timeline, 1, 8)
    backward(timeline, ("aot4", 7), kernels=1)
    assert modules(timeline, forward(), copied(NODES[0])) == ["blocks.1"]


def test_a_number_of_another_graphs_forward_tells_nothing():
    timeline = Timeline()
    call(timeline, 1, 7)
    call(timeline, 2, 8, key="other")
    backward(timeline, ("aot4", 8), ("aot4_1", 7))
    other = forward("other", "joint1")
    assert modules(timeline, forward(), other, copied()) == [None, "blocks.1"]


def test_a_number_that_two_threads_gave_tells_nothing():
    timeline = Timeline()
    call(timeline, 0, 7)
    call(timeline, 1, 8)
    with timeline.on(AUTOGRAD):
        call(timeline, 2, 8)
    backward(timeline, ("aot4", 8), ("aot4_1", 7))
    assert modules(timeline) == [None, "blocks.0"]


def test_without_a_mark_copies_of_a_shared_forward_have_none():
    timeline = Timeline()
    call(timeline, 0, 7)
    call(timeline, 1, 8)
    run(timeline, "ckey", 2)
    assert modules(timeline) == [None, None]
