"""Of the rules that know where a node comes from the later one wins; what travels is as written."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.fx

from profiler_ext.capture.lineage import order
from profiler_ext.capture.lineage.compiled_autograd import all_with_copied_lineage
from profiler_ext.capture.lineage.order import COPIES, ORDER, TRACED, find_lineages
from profiler_ext.capture.lineage.stage import (
    Compilation,
    JointFindings,
    JointGraph,
    Link,
    TracedFrom,
    op_call,
)
from profiler_ext.capture.traces.dynamo_graphs import DynamoGraph
from profiler_ext.capture.traces.metadata import NodeSnapshot
from profiler_ext.records.evidence import ForwardEvidence, LineEvidence, Mechanism
from profiler_ext.records.lineage import Lineage, ModuleFrame
from profiler_ext.records.provenance import FxNode
from tests.capture.fx_graphs import Graph, aten, frame_text
from tests.capture.lineages import line

OWN = {"stack_trace": frame_text("/src/model.py", 1, "own", "own()"), "seq_nr": 1}
SERVED = "_c10d_functional.all_reduce.default"


def found_of(node: torch.fx.Node, compilation: Compilation) -> tuple[str, Mechanism | None]:
    """Return the function that a node is attributed to, and by which mechanism."""
    lineage = find_lineages([node], compilation)[node.name]
    return lineage.stack[-1].function if lineage.stack else "", lineage.mechanism


def call(**meta: Any) -> torch.fx.Node:
    graph = Graph()
    return graph.call(aten.sin.default, [graph.given("x", 4)], name="sin", **meta)


def copy(**meta: Any) -> torch.fx.Node:
    graph = Graph()
    given = [graph.given("buffer", 4), graph.given("x", 4)]
    return graph.call(aten.copy_.default, given, name="sin", **meta)


def known(
    found: JointFindings | None = None,
    *,
    region: TracedFrom | None = None,
    replaced: NodeSnapshot | None = None,
    node: torch.fx.Node | None = None,
    dynamo: DynamoGraph | None = None,
) -> Compilation:
    joint = JointGraph("j", frozenset({"sin"}), findings=found or JointFindings(), region=region)
    rows = {node.graph: {"sin": (replaced,)}} if node is not None and replaced else {}
    return Compilation(lambda _: joint, dynamo, replaced=rows)


def test_what_torch_says_is_reported_where_nothing_else_is_known() -> None:
    assert found_of(call(**OWN), known()) == ("own", Mechanism.OWN)
    assert found_of(call(), known()) == ("", None)


def test_a_node_that_a_pattern_made_has_the_line_that_it_lost_and_keeps_one_of_its_own() -> None:
    old = NodeSnapshot("mm", line("old", seq_nr=7))
    node = call(partitioner_tag="is_backward")
    compilation = known(replaced=old, node=node)
    assert found_of(node, compilation) == ("old", Mechanism.REPLACED)
    [lineage] = find_lineages([node], compilation).values()
    assert (lineage.seq_nr, lineage.partitioner_tag) == (7, "is_backward")
    node = call(**OWN)
    assert found_of(node, known(replaced=old, node=node)) == ("own", Mechanism.OWN)


def test_a_random_call_has_the_line_of_the_one_that_it_wraps() -> None:
    graph = Graph()
    wrap = torch._prims.rng_prims.graphsafe_run_with_rng_state
    node = graph.call(wrap, [aten.rand.default, graph.given("x", 4)], name="sin")
    inner = op_call(aten.rand.default, node.args[1:])
    found = JointFindings(random={inner: NodeSnapshot("rand", line("dropout"))})
    assert found_of(node, known(found)) == ("dropout", Mechanism.RANDOM)


def test_a_buckets_node_has_the_line_of_the_collective_that_it_serves() -> None:
    node = call(**OWN, original_aten=SERVED)
    member = NodeSnapshot("all_reduce", line("second", original_aten=SERVED))
    assert found_of(node, known(replaced=member, node=node)) == ("second", Mechanism.BUCKET)


STEPS: Mapping[Mechanism, JointFindings] = {
    Mechanism.MUTATED: JointFindings(mutated={"sin": line("mutated_input")}),
    Mechanism.OVERWRITTEN: JointFindings(overwritten={"sin": line("overwritten_by_pass")}),
    Mechanism.GRADIENT: JointFindings(gradients={"sin": line("gradient_of")}),
}


@pytest.mark.parametrize("mechanism", STEPS)
def test_what_was_found_in_the_joint_graph_wins_over_what_torch_says(mechanism: Mechanism) -> None:
    assert found_of(copy(**OWN), known(STEPS[mechanism])) == (mechanism.value, mechanism)


def test_of_several_the_later_rule_wins() -> None:
    found = JointFindings()
    for mechanism, more in STEPS.items():
        found = more.over(found)
        assert found_of(copy(**OWN), known(found)) == (mechanism.value, mechanism)


def test_a_sum_of_gradients_stands_where_its_value_is_made_and_is_marked() -> None:
    found = JointFindings(gradients={"sin": line("value", is_gradient_acc=True)})
    node = call(**OWN)
    assert found_of(node, known(found)) == ("value", Mechanism.GRADIENT_SUM)
    assert find_lineages([node], known(found))["sin"].is_gradient_acc


def test_a_gradient_whose_line_torch_has_right_keeps_it() -> None:
    found = JointFindings(gradients={"sin": None})
    assert found_of(call(**OWN), known(found)) == ("own", Mechanism.OWN)


def test_a_regions_node_comes_from_the_graph_around_it_or_has_no_number() -> None:
    around = TracedFrom({"sin": "sin_4"}, {"sin": line("around", seq_nr=4)}, frozenset({"sin_4"}))
    node = call(**OWN)
    [lineage] = find_lineages([node], known(region=around)).values()
    assert (lineage.stack[-1].function, lineage.seq_nr) == ("around", 4)
    assert (lineage.joint_name, lineage.copied_from) == ("sin_4", "sin_4")
    assert lineage.mechanism is Mechanism.REGION
    [lineage] = find_lineages([node], known(region=TracedFrom())).values()
    assert (lineage.seq_nr, lineage.joint_name, lineage.mechanism) == (None, None, Mechanism.OWN)


def test_a_copy_of_compiled_autograd_is_all_that_its_original_is() -> None:
    original = line("backward", seq_nr=9, forward_node="mm", joint="j0").by(Mechanism.COPIED)
    origin = replace(original, evidence=LineEvidence.COMPILED)
    dynamo = DynamoGraph("d", (), None, {}, copy_sources={"aot0_sin": origin})
    node = call(**OWN, profiler_ext_copied_from="aot0_sin")
    found = find_lineages([node], known(JointFindings(links={"sin": LINK}), dynamo=dynamo))
    assert found["sin"] == replace(original, copied_from="aot0_sin")


def test_of_a_copy_the_truth_is_its_originals_unless_its_own_source_changed() -> None:
    origin = line("backward", copied_call="aot0", evidence=LineEvidence.FRESH_DYNAMO)
    own = line("recorded", copied_from="aot0_sin", copied_call="aot7", evidence=None)
    stale = replace(own, evidence=LineEvidence.STALE)
    nodes = [FxNode("sin", "", each) for each in (own, stale)]
    here, there = all_with_copied_lineage(nodes, {"aot0_sin": origin})
    assert here.lineage == replace(origin, copied_from="aot0_sin")
    assert there.lineage == replace(stale, copied_call=None)


def of_copies(nodes: Graph, **backward: Lineage) -> Mapping[str, Lineage]:
    """Return where the nodes of a graph of compiled autograd's come from."""
    copied = {name: FxNode(name, "", lineage) for name, lineage in backward.items()}
    compilation = Compilation(lambda _: None, backwards={0: copied})
    return find_lineages(nodes.graph.nodes, compilation, COPIES)


def summed(first: torch.fx.Node, second: torch.fx.Node) -> torch.fx.Node:
    return first.graph.call_function(torch.add, (first, second))


def test_a_sum_of_copies_has_their_line_and_call_where_they_agree() -> None:
    here, there = (line(name, joint="j0", evidence=LineEvidence.COMPILED) for name in "ab")
    graph = Graph()
    x = graph.given("x", 4)
    copies = [graph.call(aten.mm.default, [x, x], name=f"aot0_{name}") for name in ("m", "n", "o")]
    sums = [summed(*copies[:2]), summed(*copies[1:])]
    sums.append(summed(sums[0], copies[0]))
    lineages = of_copies(graph, m=here, n=here, o=there)
    copy_of_m = replace(here, copied_call="aot0", mechanism=Mechanism.COPIED)
    assert lineages["aot0_m"] == copy_of_m
    of_one = replace(
        copy_of_m,
        is_gradient_acc=True,
        mechanism=Mechanism.GRADIENT_SUM,
        evidence=LineEvidence.GRADIENT,
    )
    of_two = Lineage(is_gradient_acc=True, evidence=LineEvidence.EAGER_BACKWARD)
    assert [lineages[each.name] for each in sums] == [of_one, of_two, of_one]


def test_a_copy_of_an_unknown_node_is_not_reported_to_be_anything() -> None:
    graph = Graph()
    graph.call(aten.mm.default, [graph.given("x", 4)] * 2, name="aot0_mm")
    assert "aot0_mm" not in of_copies(graph)


def test_a_hook_has_the_users_frames_and_autograds_own_node_has_none() -> None:
    graph = Graph()
    x = graph.given("x", 4)
    machinery = frame_text("/torch/_dynamo/compiled_autograd.py", 5, "runs", "hook()")
    graph.call(aten.mm.default, [x, x], name="mm", stack_trace=machinery + OWN["stack_trace"])
    graph.call(aten.mm.default, [x, x], name="mm_1", stack_trace=machinery)
    lineages = of_copies(graph)
    assert lineages["mm"] == line("own", evidence=LineEvidence.COMPILED)
    assert lineages["mm_1"] == Lineage(evidence=LineEvidence.EAGER_BACKWARD)


def calling(name: str, nodes: Graph, *called: str, inner: torch.fx.Node) -> torch.fx.Node:
    """Return a call of graphs, which all are the one that a node stands in."""
    body = inner.graph.owning_module or torch.fx.GraphModule(torch.nn.Module(), inner.graph)
    args = [nodes.graph.get_attr(each) for each in called]
    node = nodes.call(torch.ops.higher_order.invoke_subgraph, args, name=name)
    root = torch.nn.Module()
    for each in called:
        root.register_module(each, body)
    torch.fx.GraphModule(root, nodes.graph)
    return node


def test_in_a_graph_of_a_call_a_name_leads_through_the_calls_and_which_of_their_graphs() -> None:
    node = call(**OWN)
    inner = calling("inner", Graph(), "yes", "no", inner=node)
    outer = calling("outer", Graph(), "body", inner=inner)
    joint = JointGraph("j", frozenset({"sin", "inner", "outer"}))
    found = find_lineages(
        [node], Compilation(lambda _: joint), prefix="outer/inner/no", caller=outer
    )
    assert found["sin"].joint_name == "outer/inner/no/sin"
    found = find_lineages([node], Compilation(lambda _: joint), prefix="outer/gone", caller=outer)
    assert found["sin"].joint_name is None


def test_what_is_attributed_elsewhere_than_its_metadata_says_is_reported() -> None:
    found = JointFindings(overwritten={"a": line("a")}, gradients={"b": None})
    region = TracedFrom(lineages={"c": line("c")})
    joint = JointGraph("j", frozenset("abcd"), findings=found, region=region)
    assert [joint.has_other_origin(name) for name in (*"abcd", None)] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert not replace(joint, region=None).has_other_origin("c")


LINK = Link("cos", ForwardEvidence.SEQ_NR)


def test_the_joint_graph_names_a_node_and_its_forward_node() -> None:
    found = find_lineages([call(**OWN)], known(JointFindings(links={"sin": LINK})))["sin"]
    assert (found.joint_name, found.forward_node, found.forward_evidence) == (
        "sin",
        "cos",
        "seq_nr",
    )


def test_modules_are_the_users_and_without_any_the_one_that_was_compiled() -> None:
    dynamo = DynamoGraph("d", ("L['self']",), ModuleFrame("", "Model"), {})
    stack = {"1": ("L['self'].layers.0", "Layer")}
    inside = find_lineages([call(**OWN, nn_module_stack=stack)], known(dynamo=dynamo))
    assert inside["sin"].modules == (ModuleFrame("layers.0", "Layer"),)
    outside = find_lineages([call(**OWN)], known(dynamo=dynamo))
    assert outside["sin"].modules == (ModuleFrame("", "Model"),)


def test_each_rule_stands_once_in_the_order_with_when_it_applies() -> None:
    assert ORDER[: len(TRACED)] == TRACED
    assert len({*ORDER, *COPIES}) == len(ORDER) + len(COPIES)
    text = inspect.getsource(order)
    for rule in (*ORDER, *COPIES):
        assert re.search(rf"# [^\n]+\n    {rule.__name__},\n", text), rule.__name__
