"""What a node's value is made of."""

import operator

from profiler_ext.capture.graphs.call_sites import value_inputs
from tests.capture.fx_graphs import Graph, aten


def test_a_node_is_made_of_its_inputs() -> None:
    graph = Graph()
    x, y = graph.given("x", 4), graph.given("y", 4)
    assert value_inputs(graph.call(aten.add.Tensor, [x, y])) == (x, y)


def test_an_output_of_a_foreach_op_is_made_of_its_own_place_in_each_list() -> None:
    graph = Graph()
    a, b, c, d, scale = (graph.given(name, 4) for name in "abcde")
    lists = graph.call(aten._foreach_addcmul.Tensor, [[a, b], [c, d], scale])
    second = graph.call(operator.getitem, [lists, 1])
    assert value_inputs(second) == (lists, b, d, scale)
    assert value_inputs(lists) == ()


def test_an_output_of_another_op_is_made_of_all_of_it() -> None:
    graph = Graph()
    both = graph.call(aten.max.dim, [graph.given("x", 4), 0])
    assert value_inputs(graph.call(operator.getitem, [both, 1])) == (both,)


def test_an_input_that_is_called_getitem_is_made_of_nothing() -> None:
    assert value_inputs(Graph().given("getitem", 4)) == ()
