"""A backward node is attributed to the forward node it differentiates."""

from dataclasses import replace
from typing import Any

import pytest
import torch.fx

from profiler_ext.capture.lineage.joint import describe_joint
from profiler_ext.capture.lineage.stage import JointGraph, Link
from profiler_ext.capture.traces.metadata import NodeSnapshot, snapshot
from profiler_ext.errors import PrivateNameError
from tests.capture.fx_graphs import Graph, aten, frame_text

FORWARD: dict[str, Any] = {"partitioner_tag": "is_forward"}
BACKWARD: dict[str, Any] = {"partitioner_tag": "is_backward"}


def module_stack(path: str) -> dict[str, tuple[str, str]]:
    return {path: (path, "Layer")}


def joint_of(graph: Graph, *outputs: torch.fx.Node) -> JointGraph:
    return describe_joint(graph.module(*outputs), {})


def test_the_number_links_where_one_forward_node_carries_it() -> None:
    graph = Graph()
    x = graph.given("x", 4)
    graph.call(aten.sin.default, [x], name="sin", seq_nr=7, **FORWARD)
    grad = graph.call(aten.cos.default, [x], name="cos", seq_nr=7, **BACKWARD)
    assert joint_of(graph, grad).findings.links == {"cos": Link("sin", "seq_nr")}


def test_nodes_that_share_a_number_are_distinguished_by_source_function() -> None:
    graph = Graph()
    x = graph.given("x", 4)
    graph.call(aten.embedding.default, [x, x], name="embedding", seq_nr=7, **FORWARD,
               source_fn_stack=[("embedding", None)])  # fmt: skip
    graph.call(aten.cos.default, [x], name="rotary", seq_nr=7, **FORWARD,
               source_fn_stack=[("cos", None)])  # fmt: skip
    grad = graph.call(aten.mul.Tensor, [x, x], name="grad", seq_nr=7, **BACKWARD,
                      fwd_source_fn_stack=[("embedding", None)])  # fmt: skip
    assert joint_of(graph, grad).findings.links == {"grad": Link("embedding", "seq_nr_and_source")}


def test_nodes_that_share_number_and_function_are_distinguished_by_module() -> None:
    graph = Graph()
    x = graph.given("x", 4)
    for layer in ("a", "b"):
        graph.call(aten.sin.default, [x], name=layer, seq_nr=7, **FORWARD,
                   source_fn_stack=[("sin", None)],
                   nn_module_stack=module_stack(layer))  # fmt: skip
    grad = graph.call(aten.cos.default, [x], name="grad", seq_nr=7, **BACKWARD,
                      fwd_source_fn_stack=[("sin", None)],
                      fwd_nn_module_stack=module_stack("a"))  # fmt: skip
    assert joint_of(graph, grad).findings.links == {"grad": Link("a", "seq_nr_and_source")}


def test_of_one_op_that_decomposed_the_last_node_is_taken_and_says_so() -> None:
    graph = Graph()
    x = graph.given("x", 4)
    for name in ("var_mean", "rsqrt"):
        graph.call(aten.sin.default, [x], name=name, seq_nr=7, **FORWARD)
    grad = graph.call(aten.cos.default, [x], name="grad", seq_nr=7, **BACKWARD)
    assert joint_of(graph, grad).findings.links == {
        "grad": Link("rsqrt", "seq_nr_of_decomposed_op")
    }


def test_the_number_of_a_gradient_sum_and_of_an_epilogue_copy_means_nothing() -> None:
    graph = Graph()
    x = graph.given("x", 4)
    graph.call(aten.sin.default, [x], name="sin", seq_nr=7, **FORWARD)
    total = graph.call(aten.add.Tensor, [x, x], name="sum", seq_nr=7, is_gradient_acc=True,
                       **BACKWARD)  # fmt: skip
    copy = graph.call(aten.copy_.default, [x, x], name="copy", seq_nr=7, **BACKWARD)
    assert joint_of(graph, total, copy).findings.links == {}


def test_nothing_is_linked_to_an_epilogue_copy_of_the_forwards() -> None:
    graph = Graph()
    x = graph.given("x", 4)
    graph.call(
        aten.copy_.default, [x, x], name="copy", seq_nr=7, partitioner_tag="must_be_in_forward"
    )
    grad = graph.call(aten.cos.default, [x], name="cos", seq_nr=7, **BACKWARD)
    assert joint_of(graph, grad).findings.links == {}


def test_a_backward_node_without_a_number_is_not_linked_to_forward_nodes_without_one() -> None:
    graph = Graph()
    x = graph.given("x", 4)
    graph.call(aten.sin.default, [x], name="sin", **FORWARD)
    grad = graph.call(aten.cos.default, [x], name="cos", **BACKWARD)
    assert joint_of(graph, grad).findings.links == {}


def test_a_joint_graph_is_known_by_its_nodes() -> None:
    def joint(target: Any) -> JointGraph:
        graph = Graph()
        return joint_of(graph, graph.call(target, [graph.given("x", 4)], name="n", **FORWARD))

    assert joint(aten.sin.default).id == joint(aten.sin.default).id
    assert joint(aten.sin.default).id != joint(aten.cos.default).id
    assert joint(aten.sin.default).names == {"n"}


def line(name: str) -> str:
    return frame_text("/src/model.py", 1, name, f"{name}()")


def reported(name: str, **meta: Any) -> NodeSnapshot:
    return snapshot(name, meta)


def test_a_product_merged_with_a_sum_of_gradients_has_the_products_line() -> None:
    product = reported("mm", stack_trace=line("product"))
    summed = reported("add", stack_trace=line("sum"), is_gradient_acc=True)
    new = reported("addmm")
    assert new.filled_by([product, summed]).lineage.stack == product.lineage.stack
    filled = new.filled_by([summed]).lineage
    assert (filled.stack, filled.is_gradient_acc) == (summed.lineage.stack, True)


def test_what_a_pattern_lost_comes_from_the_last_node_it_replaced() -> None:
    first = reported("mm", stack_trace=line("first"), seq_nr=1)
    last = reported("add", stack_trace=line("last"), seq_nr=2, source_fn_stack=[("add", None)])
    new = reported("addmm", seq_nr=None, partitioner_tag="is_backward")
    assert new.filled_by([first, last, reported("view")]) == NodeSnapshot(
        "addmm",
        replace(last.lineage, partitioner_tag="is_backward", mechanism=None),
        last.stack_text,
    )


def test_a_node_that_lost_nothing_is_left_as_it_is() -> None:
    whole = reported("mm", stack_trace=line("own"), seq_nr=9)
    old = reported("old", stack_trace=line("old"), seq_nr=1, nn_module_stack=module_stack("a"))
    assert whole.filled_by([old]) == whole


@pytest.mark.parametrize("gone", ["partitioner_tag", "original_aten", "val"])
def test_a_joint_graph_none_of_whose_nodes_says_what_torch_says_is_refused(gone: str) -> None:
    graph = Graph()
    given = graph.given("tangents_1", 4)
    reported = {**BACKWARD, "original_aten": aten.cos.default}
    first = graph.call(aten.cos.default, [given], name="cos", **reported)
    graph.call(aten.sin.default, [given], name="sin", **reported)
    assert joint_of(graph, first).names == {"cos", "sin"}
    del first.meta[gone]
    joint_of_again = describe_joint(torch.fx.GraphModule(torch.nn.Module(), graph.graph), {})
    assert joint_of_again.names == {"cos", "sin"}
    for node in graph.graph.nodes:
        node.meta.pop(gone, None)
    with pytest.raises(PrivateNameError, match=f"none of 2 traced nodes has '{gone}'"):
        describe_joint(torch.fx.GraphModule(torch.nn.Module(), graph.graph), {})


def test_a_joint_graph_that_only_calls_other_graphs_has_no_ops_of_its_own() -> None:
    graph = Graph()
    given = graph.given("tangents_1", 4)
    call = graph.call(torch.ops.higher_order.invoke_subgraph, [given], name="region", **BACKWARD)
    assert joint_of(graph, call).names == {"region"}
