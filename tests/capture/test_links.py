"""A backward node without a number of a forward one is linked by its line, in its own layer."""

from __future__ import annotations

from typing import Any

from profiler_ext.capture.lineage.links import find_links, follow_replaced
from profiler_ext.capture.lineage.stage import Link
from profiler_ext.capture.traces.metadata import NodeSnapshot
from profiler_ext.records.evidence import ForwardEvidence
from profiler_ext.records.lineage import Lineage, ModuleFrame
from tests.capture.fx_graphs import Graph, aten

LAYERS = [(ModuleFrame(f"layers.{at}", "Layer"),) for at in range(3)]


def reported(name: str, tag: str, number: int, modules: Any, stack_text: str) -> NodeSnapshot:
    lineage = Lineage(seq_nr=number, partitioner_tag=tag, modules=modules)
    return NodeSnapshot(name, lineage, stack_text)


def linked(backward: NodeSnapshot) -> Link | None:
    """Return the link of a backward node of a model that calls one line for each of two layers."""
    rows = [
        *(reported(f"look{at}", "is_forward", at, LAYERS[at], "the line") for at in range(2)),
        backward,
    ]
    graph = Graph()
    x = graph.given("x", 4)
    nodes = [graph.call(aten.sin.default, [x], name=row.name) for row in rows]
    return find_links(nodes, {row.name: row for row in rows}).get(backward.name)


def test_where_a_line_is_called_for_each_layer_the_link_is_to_the_same_layer() -> None:
    for at in range(2):
        back = reported("back", "is_backward", 9, LAYERS[at], "the line")
        assert linked(back) == Link(f"look{at}", ForwardEvidence.STACK)


def test_where_all_of_its_line_are_of_other_modules_it_is_not_linked() -> None:
    assert linked(reported("back", "is_backward", 9, LAYERS[2], "the line")) is None


def test_one_whose_module_is_not_known_is_linked_to_the_last_of_its_line() -> None:
    back = reported("back", "is_backward", 9, (), "the line")
    assert linked(back) == Link("look1", ForwardEvidence.STACK)


def test_a_line_that_no_forward_node_has_links_nothing() -> None:
    assert linked(reported("back", "is_backward", 9, LAYERS[0], "another line")) is None


def followed_from_full(op: str | None) -> dict[str, Link]:
    """Lead on the link to a `full` that is gone: two nodes, `ones` and then `mul`, replaced it."""
    graph = Graph()
    ones = graph.call(aten.ones.default, [[4, 8]], name="ones")
    product = graph.call(aten.mul.Tensor, [ones, ones], name="mul")
    gone = (NodeSnapshot("full", Lineage(original_aten=op, seq_nr=1)),)
    links = {"back": Link("full", ForwardEvidence.SEQ_NR)}
    return follow_replaced(links, [ones, product], {"ones": gone, "mul": gone})


def test_a_link_to_a_node_that_is_gone_and_does_not_say_its_op_leads_on_to_the_last_in_its_place():
    """torchtitan's flex attention: its mask's `full` is replaced, and has no `original_aten`."""
    assert followed_from_full(None) == {"back": Link("mul", ForwardEvidence.SEQ_NR)}


def test_a_link_to_a_node_that_is_gone_leads_on_to_what_stands_for_it_with_its_op():
    assert followed_from_full("aten.ones.default") == {"back": Link("ones", ForwardEvidence.SEQ_NR)}
