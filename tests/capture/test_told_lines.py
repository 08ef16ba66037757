"""Which lines and modules are told of nodes whose compile nobody saw, and which are not."""

from profiler_ext.capture.graphs.uncaptured import told_afresh, told_lines
from profiler_ext.capture.traces.dynamo_graphs import DynamoGraph, Source, Sourced
from profiler_ext.records import Frame, FxNode, LineEvidence, ModuleFrame
from tests.fx_nodes import fx_node

CALL = Frame("/m/model.py", 32, "forward", "x = block(x)")
SPLIT = Frame("/m/model.py", 17, "forward", "q, k, v = self.qkv(x)")
LOSS = Frame("/m/model.py", 33, "forward", "return F.cross_entropy(x, t)")
BLOCK = (ModuleFrame("block", "Block"),)

VIEW = fx_node("view_default", "aten.view.default", inputs=("tangents_1",))
SCATTER = fx_node("select_scatter_default", "aten.select_scatter.default", inputs=("view_default",))
FULL = fx_node("full", "aten.full.default", stack=(SPLIT,))


def afresh(printed: FxNode, fresh: FxNode, *frames: Frame) -> Sourced:
    others = (FULL, VIEW)
    known = tuple((node, LineEvidence.TOLD) for node in (printed, *others))
    names = {fresh.name: frames, "full": FULL.lineage.stack, "view_default": ()}
    return told_afresh((printed, *others), known, (fresh, *others), names)[0]


def test_a_node_without_a_line_takes_none_from_another_that_has_none_printed() -> None:
    fresh = fx_node("view_default", VIEW.target, stack=(LOSS,), seq_nr=5, inputs=VIEW.inputs)
    printed = (VIEW, SCATTER)
    told = tuple((node, LineEvidence.ABSENT) for node in printed)
    found = told_afresh(printed, told, (fresh,), {"view_default": ()})
    assert [(node.name, node.lineage.stack, node.lineage.seq_nr, e) for node, e in found] == [
        ("view_default", (LOSS,), 5, LineEvidence.FRESH_GRAPH),
        ("select_scatter_default", (), None, LineEvidence.ABSENT),
    ]


def test_a_fresh_node_of_the_same_line_gives_all_that_is_known_of_it() -> None:
    printed = fx_node("mul", "aten.mul.Tensor", stack=(SPLIT,))
    fresh = fx_node("mul", "aten.mul.Tensor", stack=(CALL, SPLIT), modules=BLOCK, seq_nr=3)
    assert afresh(printed, fresh, SPLIT) == (fresh, LineEvidence.FRESH_GRAPH)


def test_a_name_on_another_line_is_another_node() -> None:
    printed = fx_node("mul", "aten.mul.Tensor", stack=(SPLIT,))
    fresh = fx_node("mul", "aten.mul.Tensor", stack=(LOSS,), modules=BLOCK)
    assert afresh(printed, fresh, LOSS) == (printed, LineEvidence.TOLD)
    assert afresh(printed, fresh) == (printed, LineEvidence.TOLD)


def test_other_text_is_the_same_line_where_the_two_always_go_together() -> None:
    printed = fx_node("mul", "aten.mul.Tensor", stack=(CALL,))
    fresh = fx_node("mul", "aten.mul.Tensor", stack=(LOSS,), modules=BLOCK)
    assert afresh(printed, fresh, LOSS) == (fresh, LineEvidence.FRESH_GRAPH)


def test_names_without_a_line_are_one_node_only_where_they_read_the_same() -> None:
    fresh = fx_node("sub_tensor", "aten.sub.Tensor", stack=(LOSS,), inputs=("mm", "getitem"))
    printed = fx_node("sub_tensor", "aten.sub.Tensor", inputs=("mm_1", "getitem"))
    assert afresh(printed, fresh) == (printed, LineEvidence.TOLD)


def test_what_may_sum_gradients_has_a_line_and_no_module() -> None:
    place = Source((CALL, SPLIT), BLOCK)
    dynamo = DynamoGraph("d", (), None, {}, (place,))
    nodes = (
        fx_node("add", "aten.add.Tensor", stack=(SPLIT,)),
        fx_node("add_1", "aten.add.Tensor", stack=(SPLIT,), partitioner_tag="is_forward"),
        fx_node("mul", "aten.mul.Tensor", stack=(SPLIT,)),
    )
    backward = told_lines(nodes, dynamo, is_backward=True)
    forward = told_lines(nodes, dynamo, is_backward=False)
    assert {node.lineage.stack for node, _ in (*backward, *forward)} == {place.stack}
    assert [node.lineage.modules for node, _ in backward] == [(), BLOCK, BLOCK]
    assert [node.lineage.modules for node, _ in forward] == [BLOCK, BLOCK, BLOCK]


def test_what_stands_where_a_gradient_is_asked_for_is_not_led_to_that_line() -> None:
    asking, product = Source((CALL, SPLIT), BLOCK), Source((LOSS, SPLIT), BLOCK)
    node = fx_node("cos", "aten.cos.default", stack=(SPLIT,))
    known = {("_autograd_grad",): asking, ("mul",): product}
    alone = DynamoGraph("d", (), None, known, (asking,))
    beside = DynamoGraph("d", (), None, known, (asking, product))
    gradient = fx_node("cos", "aten.cos.default", source_fns=("_autograd_grad",))
    assert [told_lines([node], dynamo, is_backward=False) for dynamo in (alone, beside)] == [
        ((gradient, LineEvidence.ABSENT),),
        ((fx_node("cos", "aten.cos.default"), LineEvidence.ABSENT),),
    ]
