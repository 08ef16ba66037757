"""Which truth a node's line comes from, in each state of the caches."""

import dataclasses
from pathlib import Path

from profiler_ext.recall import lines
from profiler_ext.recall.dynamo_graph import DynamoGraph, Source
from profiler_ext.records.evidence import LineEvidence
from profiler_ext.records.lineage import Frame, ModuleFrame
from profiler_ext.records.provenance import FxNode, Provenance
from tests.fx_nodes import changed, fx_node

OLD = (Frame("/m/model.py", 10, "forward", "y = x * 3"),)
NEW = (Frame("/m/model.py", 17, "forward", "y = x * 3"),)
MODULES = (ModuleFrame("up", "Linear"),)


def dynamo(**sources: tuple[Frame, ...]) -> DynamoGraph:
    known = {(name,): Source(stack, MODULES) for name, stack in sources.items()}
    return DynamoGraph("d", (), None, known, tuple(known.values()))


def recorded_with(*nodes: FxNode, stacks: tuple[int | None, ...] = ()) -> Provenance:
    return Provenance("", "", False, False, None, "d", nodes, (), dynamo_stacks=stacks)


def evidence_of(*nodes: FxNode) -> list[LineEvidence | None]:
    return [node.lineage.evidence for node in nodes]


def test_a_graph_compiled_here_has_its_own_lines() -> None:
    nodes = (fx_node("mul", "aten.mul.Tensor", stack=OLD), fx_node("view", "aten.view.default"))
    assert lines.compiled_here(nodes) == (
        changed(nodes[0], evidence=LineEvidence.COMPILED),
        changed(nodes[1], evidence=LineEvidence.ABSENT),
    )


def test_on_an_fx_hit_the_fresh_graph_gives_line_and_link_and_the_record_the_rest() -> None:
    recorded = fx_node("mul", "aten.mul.Tensor", stack=OLD, inputs=("a",), entry_name="mul")
    fresh = fx_node(
        "mul", "aten.mul.Tensor", stack=NEW, seq_nr=5, forward_node="sin", inputs=("b",)
    )
    assert lines.from_fresh_graph((recorded,), (fresh,)) == (
        fx_node(
            "mul",
            "aten.mul.Tensor",
            stack=NEW,
            seq_nr=5,
            forward_node="sin",
            inputs=("a",),
            entry_name="mul",
            evidence=LineEvidence.FRESH_GRAPH,
        ),
    )


def test_on_an_fx_hit_a_product_merged_with_a_sum_of_gradients_stands_for_the_product() -> None:
    recorded = fx_node("addmm_7", "aten.addmm.default", replaced=("mm", "add"))
    fresh = (
        fx_node("mm", "aten.mm.default", stack=OLD, seq_nr=1),
        fx_node("add", "aten.add.Tensor", stack=NEW, is_gradient_acc=True),
    )
    [node] = lines.from_fresh_graph((recorded,), fresh)
    assert (node.name, node.lineage.seq_nr, node.lineage.stack, node.lineage.is_gradient_acc) == (
        "addmm_7",
        1,
        OLD,
        False,
    )


def test_on_an_fx_hit_a_node_stands_for_the_op_that_it_stood_for_when_it_was_compiled() -> None:
    product = {"original_aten": "aten.mm.default"}
    recorded = fx_node("addmm_7", "aten.addmm.default", replaced=("mm", "add"), **product)
    fresh = (
        fx_node("mm", "aten.mm.default", stack=OLD, seq_nr=1, **product),
        fx_node("add", "aten.add.Tensor", stack=NEW, seq_nr=2, original_aten="aten.add.Tensor"),
    )
    [node] = lines.from_fresh_graph((recorded,), fresh)
    assert (node.lineage.seq_nr, node.lineage.stack) == (1, OLD)


def test_on_an_fx_hit_a_node_that_a_pass_made_takes_the_line_of_the_last_node_it_replaced() -> None:
    recorded = fx_node("addmm_7", "aten.addmm.default", stack=OLD, replaced=("mm", "add"))
    fresh = (
        fx_node("mm", "aten.mm.default", stack=OLD, seq_nr=1),
        fx_node("add", "aten.add.Tensor", stack=NEW, seq_nr=2),
    )
    [node] = lines.from_fresh_graph((recorded,), fresh)
    own = node.lineage
    assert (node.name, node.target, own.seq_nr, own.stack, own.evidence) == (
        "addmm_7",
        "aten.addmm.default",
        2,
        NEW,
        LineEvidence.FRESH_GRAPH,
    )


def test_on_an_fx_hit_a_node_that_a_pass_made_keeps_the_op_that_it_was_compiled_with() -> None:
    """As torch 2.11 made it on an H200; the fresh graph has only what the pass replaced."""
    own = "prims.prepare_softmax_online.default"
    recorded = fx_node(
        "prepare_softmax_online_default", own, original_aten=own, replaced=("amax", "sum_1")
    )
    fresh = (
        fx_node("amax", "aten.amax.default", original_aten="aten._log_softmax.default", seq_nr=290),
        fx_node(
            "sum_1", "aten.sum.dim_IntList", original_aten="aten._log_softmax.default", seq_nr=290
        ),
    )
    [node] = lines.from_fresh_graph((recorded,), fresh)
    assert (node.target, node.lineage.original_aten, node.lineage.seq_nr) == (own, own, 290)


def test_on_an_fx_hit_a_node_that_entered_inductor_has_the_op_of_this_process() -> None:
    recorded = fx_node(
        "mul", "aten.mul.Tensor", original_aten="aten.silu.default", entry_name="mul"
    )
    fresh = (fx_node("mul", "aten.mul.Tensor", original_aten="aten.mul.Tensor"),)
    [node] = lines.from_fresh_graph((recorded,), fresh)
    assert node.lineage.original_aten == "aten.mul.Tensor"


def test_a_pass_made_name_is_not_joined_with_another_node_of_that_name() -> None:
    recorded = fx_node("mul_1", "aten.mul.Tensor", stack=OLD, entry_name=None)
    [node] = lines.from_fresh_graph((recorded,), (fx_node("mul_1", "aten.mul.Tensor", stack=NEW),))
    assert (node.lineage.stack, node.lineage.evidence) == (OLD, LineEvidence.STALE)


def test_on_an_aot_hit_the_equal_dynamo_graph_gives_the_line_by_source_function() -> None:
    recorded = fx_node("mul", "aten.mul.Tensor", stack=OLD, source_fns=("mul_1",))
    [node] = lines.from_dynamo(recorded_with(recorded), dynamo(mul_1=NEW, mul=OLD))
    assert (node.lineage.stack, node.lineage.modules, node.lineage.evidence) == (
        NEW,
        MODULES,
        LineEvidence.FRESH_DYNAMO,
    )


def gradient_sum(
    stacks: tuple[int | None, ...], **sources: tuple[Frame, ...]
) -> tuple[str, str | None]:
    """Lead a node without a source function, whose recorded line is OLD, to this process."""
    node = fx_node("add", "aten.add.Tensor", stack=OLD)
    [here] = lines.from_dynamo(recorded_with(node, stacks=stacks), dynamo(**sources))
    return str(here.lineage.stack[0].line), here.lineage.evidence


def test_a_node_without_a_source_function_has_the_line_of_the_same_place_in_the_equal_graph() -> (
    None
):
    assert gradient_sum((None, 0), sin=OLD, mul=NEW) == ("17", "fresh_dynamo_graph")
    assert gradient_sum((0, 0), sin=NEW, mul=NEW) == ("17", "fresh_dynamo_graph")


def test_places_that_disagree_leave_a_line_stale() -> None:
    assert gradient_sum((0, 0), sin=(), mul=NEW) == ("10", "recorded_line_changed")
    assert gradient_sum((0,), sin=NEW, mul=NEW) == ("10", "recorded_line_changed")


def test_a_line_that_still_stands_is_stale_where_this_process_never_ran_it(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("y = x * 3\ny = x * 3\n")
    ours, other = ((Frame(str(file), n, "f", "y = x * 3"),) for n in (1, 2))
    provenance = recorded_with(fx_node("add", "aten.add.Tensor", stack=other))
    assert evidence_of(*lines.from_record(provenance.nodes)) == [LineEvidence.RECORDED]
    ran = lines.from_dynamo(provenance, dynamo(mul=other))
    assert evidence_of(*ran) == [LineEvidence.RECORDED]
    did_not = lines.from_dynamo(provenance, dynamo(mul=ours))
    assert evidence_of(*did_not) == [LineEvidence.STALE]


def test_on_an_fx_hit_a_node_without_a_fresh_one_shares_the_line_of_its_neighbours() -> None:
    known = fx_node("mul", "aten.mul.Tensor", stack=OLD, entry_name="mul")
    made = fx_node("made", "aten.add.Tensor", stack=OLD)
    found = lines.from_fresh_graph((known, made), (fx_node("mul", "", stack=NEW),))
    assert [(node.lineage.stack, node.lineage.evidence) for node in found] == [
        (NEW, LineEvidence.FRESH_GRAPH)
    ] * 2


LAYERS = tuple((ModuleFrame(f"layers.{at}", "Layer"),) for at in range(3))


def made_next_to(*recorded: FxNode, fresh: tuple[FxNode, ...]) -> tuple[ModuleFrame, ...]:
    """Return the modules of a node of layer 0 that a pass made, of which nothing fresh tells."""
    made = fx_node("made", "aten.full.default", stack=OLD, modules=LAYERS[0])
    return lines.from_fresh_graph((*recorded, made), fresh)[-1].lineage.modules


def of_layer(at: int, name: str = "mul") -> FxNode:
    return fx_node(name, "", stack=OLD, modules=LAYERS[at], entry_name=name)


def test_on_an_fx_hit_a_node_without_a_fresh_one_has_the_layer_of_its_neighbours() -> None:
    assert made_next_to(of_layer(0), fresh=(of_layer(0),)) == LAYERS[0]
    assert made_next_to(of_layer(0), fresh=(of_layer(1),)) == LAYERS[1]


def test_a_layer_that_no_neighbour_leads_is_kept_only_where_all_others_are_the_same() -> None:
    """Equal buckets share a cached artifact, whose record names the layers of the first."""
    assert made_next_to(of_layer(1), fresh=(of_layer(1),)) == LAYERS[0]
    assert made_next_to(of_layer(1), fresh=(of_layer(2),)) == ()
    both = (of_layer(0), of_layer(0, "add"))
    assert made_next_to(*both, fresh=(of_layer(1), of_layer(2, "add"))) == ()


def test_what_a_pass_merged_of_two_layers_says_nothing_of_the_others() -> None:
    merged = fx_node("merged", "", stack=OLD, modules=LAYERS[1], replaced=("mul", "add"))
    fresh = (of_layer(1), of_layer(2, "add"))
    assert made_next_to(merged, of_layer(1), fresh=fresh) == LAYERS[0]


def test_on_an_aot_hit_a_node_has_the_layer_that_stands_in_its_place() -> None:
    node = fx_node("add", "aten.add.Tensor", stack=OLD, modules=LAYERS[0])
    for places, expected in ((LAYERS[1:2], LAYERS[1]), (LAYERS[:1], LAYERS[0]), (LAYERS[:2], ())):
        record = dataclasses.replace(
            recorded_with(node, stacks=(0,) * len(places)), dynamo_modules=(0,) * len(places)
        )
        sources = tuple(Source(OLD, modules) for modules in places)
        graph = DynamoGraph("d", (), None, {}, sources)
        [node_here] = lines.from_dynamo(record, graph)
        own = node_here.lineage
        assert (own.modules, own.evidence) == (expected, LineEvidence.FRESH_DYNAMO)


def test_a_recorded_line_counts_while_its_text_stands_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("import torch\n    y = x * 3  \n")
    node = fx_node("mul", "aten.mul.Tensor", stack=(Frame(str(file), 2, "f", "y = x * 3"),))
    assert lines.from_record((node,)) == (changed(node, evidence=LineEvidence.RECORDED),)
    file.write_text("import torch\nimport os\n    y = x * 3\n")
    assert lines.from_record((node,)) == (changed(node, evidence=LineEvidence.STALE),)
    file.unlink()
    assert lines.from_record((node,)) == (changed(node, evidence=LineEvidence.STALE),)


def test_a_recorded_line_without_text_proves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("y = x * 3\n")
    node = fx_node("mul", "aten.mul.Tensor", stack=(Frame(str(file), 1, "f", None),))
    assert lines.from_record((node,)) == (changed(node, evidence=LineEvidence.STALE),)


def test_a_node_without_a_stack_is_absent_not_stale() -> None:
    node = fx_node("mul", "aten.mul.Tensor")
    assert lines.from_record((node,)) == (changed(node, evidence=LineEvidence.ABSENT),)


def test_lines_of_other_source_are_stale() -> None:
    node = fx_node("mul", "aten.mul.Tensor", stack=OLD)
    assert lines.stale((node,)) == (changed(node, evidence=LineEvidence.STALE),)


def test_a_record_of_any_process_says_no_evidence() -> None:
    node = fx_node("mul", "aten.mul.Tensor", stack=OLD)
    assert lines.as_recorded(lines.compiled_here((node,))) == (node,)


def test_an_instance_has_the_folders_of_this_process() -> None:
    node = fx_node("mul", "aten.mul.Tensor", stack=(Frame("<working>/model.py", 1, "f"),))
    assert lines.expanded(node).lineage.stack == (Frame(str(Path.cwd() / "model.py"), 1, "f"),)
