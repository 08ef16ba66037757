"""Which lines and modules are told of nodes whose compile nobody saw, and which are not."""

from profiler_ext.recall.dynamo_graph import DynamoGraph, RegionRuns, RetracedCall, Run, Source
from profiler_ext.recall.generated_code import lines_from_code
from profiler_ext.records.evidence import LineEvidence
from profiler_ext.records.lineage import Frame, ModuleFrame
from profiler_ext.records.provenance import FxNode
from tests.fx_nodes import changed, fx_node

CALL = Frame("/m/model.py", 32, "forward", "x = block(x)")
AGAIN = Frame("/m/model.py", 35, "forward", "x = block(block(x))")
SPLIT = Frame("/m/model.py", 17, "forward", "q, k, v = self.qkv(x)")
MOVED = Frame("/m/other.py", 71, "forward", "q, k, v = self.qkv(x)")
FIRST, SECOND = (ModuleFrame("0", "Block"),), (ModuleFrame("1", "Block"),)


def lines_of(node: FxNode, *places: Source) -> FxNode:
    [found] = lines_from_code([node], DynamoGraph("d", (), None, {}, places))
    return found


def mm(*stack: Frame, modules: tuple[ModuleFrame, ...] = ()) -> FxNode:
    return fx_node("mm", "aten.mm.default", stack=stack, modules=modules)


def test_a_printed_line_has_the_stack_and_the_module_of_its_place_in_this_process() -> None:
    here = Source((CALL, SPLIT), FIRST)
    assert lines_of(mm(SPLIT), here) == changed(
        mm(CALL, SPLIT, modules=FIRST), evidence=LineEvidence.CODE_COMMENTS
    )


def test_a_line_of_several_modules_leaves_the_module_open() -> None:
    here = (Source((CALL, SPLIT), FIRST), Source((AGAIN, SPLIT), SECOND))
    assert lines_of(mm(SPLIT), *here) == changed(mm(SPLIT), evidence=LineEvidence.CODE_COMMENTS)


def test_the_same_text_in_the_same_function_elsewhere_is_the_line() -> None:
    here = Source((CALL, MOVED), FIRST)
    assert lines_of(mm(SPLIT), here) == changed(
        mm(CALL, MOVED, modules=FIRST), evidence=LineEvidence.CODE_COMMENTS
    )


def test_a_line_that_this_process_has_not_or_has_twice_is_not_given() -> None:
    twice = MOVED, Frame("/m/other.py", 90, "forward", MOVED.code)
    assert lines_of(mm(SPLIT), Source((CALL,), ())) == changed(
        mm(SPLIT), evidence=LineEvidence.STALE
    )
    places = [Source((frame,), FIRST) for frame in twice]
    assert lines_of(mm(SPLIT), *places) == changed(mm(SPLIT), evidence=LineEvidence.STALE)


def test_a_node_without_a_line_takes_none() -> None:
    assert lines_of(mm(), Source((CALL, SPLIT), FIRST)) == changed(
        mm(), evidence=LineEvidence.ABSENT
    )


def test_a_line_of_a_region_that_is_passed_another_function_elsewhere_is_not_given() -> None:
    there, here = Source((CALL, SPLIT), FIRST), Source((AGAIN, MOVED), FIRST)
    again = RetracedCall(here, {}, {there.stack: here})
    runs = [Run((("r",),), there, (None,)), Run((("r_1",),), there, (again,))]
    graph = DynamoGraph(
        "d", (), None, {}, (there, here), runs=RegionRuns({}, {(("r", "mm"), there.stack): runs})
    )
    assert lines_from_code([mm(SPLIT)], graph) == (changed(mm(SPLIT), evidence=LineEvidence.STALE),)
