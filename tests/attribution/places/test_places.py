"""What is said of a node or of a gap: its line, module, phase and reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler_ext.attribution import attribute
from profiler_ext.attribution.enclosing import CallContext
from profiler_ext.attribution.places import PlaceTable
from profiler_ext.records.analysis import Place
from profiler_ext.records.evidence import LineEvidence
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.lineage import Frame, ModuleFrame
from profiler_ext.records.recording import Settings
from profiler_ext.records.vocabulary import Level, Phase
from tests.attribution.graphs import MODEL, extern, graph, node, triton
from tests.attribution.reading import rows
from tests.attribution.small_graph import NODES, SITES, one_call, one_graph
from tests.fx_nodes import changed


def test_a_place_says_all_that_is_known_of_its_node():
    annotated = node("mul", 3, annotation=(("stage", "embed"), ("head", "2")))
    annotated = changed(annotated, autograd_backward=False)
    recording = one_call().recording(graph((annotated, *NODES[1:]), SITES))
    assert attribute(recording).places[0] == Place(
        graph=0,
        node="mul",
        aten_op="aten.mul.default",
        seq_nr=3,
        phase=Phase.FORWARD,
        autograd_backward=False,
        file=MODEL,
        line=3,
        function="forward",
        code="mul(x)",
        user_file=MODEL,
        user_line=3,
        stack=(Frame(MODEL, 3, "forward", "mul(x)"),),
        module="layers.3",
        module_class="Layer",
        annotation="stage=embed, head=2",
        level=Level.LINE,
        evidence=LineEvidence.COMPILED,
    )


def test_a_stale_line_is_not_given():
    place = attribute(one_graph(evidence=LineEvidence.STALE)).places[0]
    assert (place.line, place.stack, place.level, place.gap, place.aten_op) == (
        None,
        (),
        Level.OP,
        GapReason.STALE_SOURCE_LINE,
        "aten.mul.default",
    )


def test_a_node_without_a_stack_is_known_by_its_op():
    bare = tuple(node(n.name, 1, stack=()) for n in NODES)
    analysis = attribute(one_call().recording(graph(bare, SITES)))
    assert rows(analysis, "level", "gap") == [("op", "no_source_line")] * 4


def test_what_compiled_autograd_copied_from_an_unknown_graph_and_what_it_made_are_gaps():
    nodes = [node(name, 1, stack=(), partitioner_tag=None) for name in ("mm", "add", "view")]
    nodes[2] = changed(nodes[2], joint="joint")
    absent, eager = LineEvidence.ABSENT, LineEvidence.EAGER_BACKWARD
    given = [changed(n, evidence=e) for n, e in zip(nodes, (absent, eager, absent), strict=True)]
    made = graph(nodes, [extern("aten::mm", "mm")], compile_id="!0/1/0")
    table = PlaceTable((replace(made, nodes=tuple(given)),), Settings())
    places = [table.add_node(0, name, CallContext()) for name in ("mm", "add", "view")]
    assert [table.places[place].gap for place in places] == [
        GapReason.COMPILED_AUTOGRAD,
        GapReason.EAGER_BACKWARD,
        GapReason.NO_SOURCE_LINE,
    ]
    assert {table.places[place].phase for place in places} == {Phase.BACKWARD}


def test_what_compiled_autograd_copied_has_the_module_of_the_forward_where_that_is_one():
    copies = [node("mm", 1, joint="one"), node("add", 1, joint="shared"), node("sin", 1)]
    made = graph(copies, [extern("aten::mm", "mm")], compile_id="!0/1/0")
    blocks = [ModuleFrame(f"blocks.{number}", "Block") for number in range(2)]
    forwards = {"one": set(blocks[:1]), "shared": set(blocks)}
    table = PlaceTable((made,), Settings(), forwards)
    places = [table.add_node(0, each.name, CallContext()) for each in copies]
    assert [table.places[place].module for place in places] == [
        "blocks.0.layers.1",
        None,
        "layers.1",
    ]


@pytest.mark.parametrize("known", [(), (ModuleFrame("", "Net"),)])
def test_a_sum_of_gradients_is_of_the_innermost_module_that_holds_what_it_sums(known):
    block, norm = ModuleFrame("blocks.0", "Block"), ModuleFrame("norm", "Norm")
    up, down = (ModuleFrame(f"blocks.0.{name}", "Linear") for name in ("up", "down"))
    one = node("mm", 1, modules=(block, up))
    other = node("mm_1", 2, modules=(block, down))
    third = node("mm_2", 3, modules=(norm,))
    gathered = {"is_gradient_acc": True, "modules": known}
    inner = node("add", 4, inputs=("mm", "mm_1"), **gathered)
    outer = node("add_1", 5, inputs=("add", "mm_2"), **gathered)
    nodes = [one, other, third, inner, outer]
    table = PlaceTable((graph(nodes, [triton("triton_0", "add", "add_1")]),), Settings())
    places = [table.add_node(0, each.name, CallContext()) for each in nodes]
    assert [table.places[place].module for place in places] == [
        "blocks.0.up",
        "blocks.0.down",
        "norm",
        "blocks.0",
        known[0].path if known else None,
    ]


def test_what_is_reported_of_a_graph_leaves_a_module_open_where_a_record_says_the_root():
    bare = node("mm", 1, modules=())
    made = graph([bare], [extern("mm", "mm")], evidence=LineEvidence.CODE_COMMENTS)
    given = replace(made, provenance=replace(made.provenance, is_inferred=True))
    called = CallContext(module=ModuleFrame("", "Net"))
    tables = [PlaceTable((each,), Settings()) for each in (made, given)]
    for table in tables:
        table.add_node(0, "mm", called)
    places = [table.places[0] for table in tables]
    assert [(place.module, place.line) for place in places] == [("", 1), (None, 1)]
