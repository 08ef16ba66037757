"""The shares model: the bytes that a node's own loads and stores move, then its arithmetic."""

import pytest
import torch

from profiler_ext.capture.graphs import kernel_cost
from tests.capture.fx_graphs import Graph, aten

BYTES = 4 * 8 * 4  # one float32 tensor of 4 x 8
NUMBERS = 4 * 8


def test_a_fused_chain_loads_at_its_first_node_and_stores_at_its_last() -> None:
    graph = Graph()
    x = graph.given("x", 4, 8)
    relu = graph.call(aten.relu.default, [x])
    neg = graph.call(aten.neg.default, [relu])
    sign = graph.call(aten.sign.default, [neg])
    graph.module(sign)
    load_or_store = kernel_cost.OPERATIONS_PER_BYTE * BYTES + NUMBERS
    assert kernel_cost.weights((relu, neg, sign)) == (load_or_store, NUMBERS, load_or_store)
    assert kernel_cost.moved_bytes((relu, neg, sign)) == 2 * BYTES


def test_a_function_costs_the_instructions_of_its_elements_and_counts_as_one_operation() -> None:
    graph = Graph()
    relu = graph.call(aten.relu.default, [graph.given("x", 4, 8)])
    erf = graph.call(aten.erf.default, [relu])
    neg = graph.call(aten.neg.default, [erf])
    graph.module(neg)
    nodes = (relu, erf, neg)
    assert kernel_cost.weights(nodes)[1] == kernel_cost.INSTRUCTIONS["erf"] * NUMBERS
    assert kernel_cost.all_operations(nodes) == 3 * NUMBERS


@pytest.mark.parametrize(
    ("op", "by", "instructions"),
    [
        (aten.pow.Tensor_Scalar, 3, 1),
        (aten.pow.Tensor_Scalar, 1.0, 1),
        (aten.pow.Tensor_Scalar, 1.7, kernel_cost.INSTRUCTIONS["pow"]),
        (aten.div.Tensor, 4.0, 1),
    ],
)
def test_a_power_or_a_quotient_that_is_a_product_costs_one(
    op: torch._ops.OpOverload, by: float, instructions: int
) -> None:
    graph = Graph()
    relu = graph.call(aten.relu.default, [graph.given("x", 4, 8)])
    node = graph.call(op, [relu, by])
    neg = graph.call(aten.neg.default, [node])
    graph.module(neg)
    assert kernel_cost.weights((relu, node, neg))[1] == instructions * NUMBERS


def test_a_value_that_is_not_stored_is_computed_for_each_element_that_reads_it() -> None:
    graph = Graph()
    angle, x = graph.given("angle", 8), graph.given("x", 4, 8)
    cos = graph.call(aten.cos.default, [angle], size=(8,))
    neg = graph.call(aten.neg.default, [cos], size=(8,))
    view = graph.call(aten.unsqueeze.default, [neg, 0], size=(1, 8))
    product = graph.call(aten.mul.Tensor, [x, view])
    graph.module(product)
    nodes = (cos, neg, view, product)
    once = kernel_cost.OPERATIONS_PER_BYTE * 8 * 4
    instructions = kernel_cost.INSTRUCTIONS["cos"] * NUMBERS
    again = NUMBERS - 8  # loads, from the cache
    assert kernel_cost.weights(nodes)[:3] == (once + instructions + again, NUMBERS, 0)
    stored = kernel_cost.weights(nodes, stored={neg, product})
    assert stored[:2] == (once + kernel_cost.INSTRUCTIONS["cos"] * 8, once + 8)
    assert kernel_cost.all_operations(nodes) == 8 + 8 + NUMBERS


def test_a_value_of_each_row_is_computed_once_where_rows_are_reduced() -> None:
    graph = Graph()
    scale = graph.call(aten.rsqrt.default, [graph.given("square", 4, 1)], size=(4, 1))
    product = graph.call(aten.mul.Tensor, [graph.given("x", 4, 8), scale])
    total = graph.call(aten.sum.dim_IntList, [product, [1], True], size=(4, 1))
    graph.module(total)
    pointwise = kernel_cost.weights((scale, product), stored={product})[0]
    loaded = kernel_cost.OPERATIONS_PER_BYTE * 4 * 4
    assert pointwise == loaded + NUMBERS + (NUMBERS - 4)
    assert kernel_cost.weights((scale, product, total))[0] == loaded + 4


def test_a_value_that_leaves_the_kernel_is_stored_even_if_it_is_read_inside() -> None:
    graph = Graph()
    relu = graph.call(aten.relu.default, [graph.given("x", 4, 8)])
    sign = graph.call(aten.sign.default, [relu])
    graph.module(relu, sign)
    assert kernel_cost.moved_bytes((relu, sign)) == 3 * BYTES


def test_a_view_costs_nothing_and_its_reader_pays_for_the_load() -> None:
    graph = Graph()
    view = graph.call(aten.view.default, [graph.given("x", 4, 8), [32]], size=(32,))
    relu = graph.call(aten.relu.default, [view], size=(32,))
    graph.module(relu)
    assert kernel_cost.weights((view, relu)) == (
        0,
        kernel_cost.OPERATIONS_PER_BYTE * 2 * BYTES + NUMBERS,
    )


def test_a_constant_costs_nothing_in_a_kernel_that_only_reads_it() -> None:
    graph = Graph()
    zeros = graph.call(aten.full.default, [[4, 8], 0])
    own = graph.call(aten.add.Tensor, [graph.given("x", 4, 8), zeros])
    of_another_layer = graph.call(aten.add.Tensor, [graph.given("y", 4, 8), zeros])
    graph.module(own, of_another_layer)
    store = kernel_cost.OPERATIONS_PER_BYTE * BYTES + NUMBERS
    load_and_store = store + kernel_cost.OPERATIONS_PER_BYTE * BYTES
    assert kernel_cost.weights((zeros, own), stored={own}) == (0, load_and_store)
    assert kernel_cost.weights((zeros, own), stored={zeros, own}) == (store, load_and_store)
    assert kernel_cost.weights((zeros,), stored=set()) == (1,)


def test_a_value_that_each_of_two_kernels_makes_again_is_stored_by_neither() -> None:
    graph = Graph()
    relu = graph.call(aten.relu.default, [graph.given("x", 4, 8)])
    here = graph.call(aten.neg.default, [relu])
    elsewhere = graph.call(aten.sign.default, [relu])
    graph.module(here, elsewhere)
    load_or_store = kernel_cost.OPERATIONS_PER_BYTE * BYTES + NUMBERS
    assert kernel_cost.weights((relu, here), stored={here}) == (load_or_store, load_or_store)
    both = (load_or_store + kernel_cost.OPERATIONS_PER_BYTE * BYTES, load_or_store)
    assert kernel_cost.weights((relu, here), stored={relu, here}) == both
    assert kernel_cost.weights((relu, here)) == both


def test_a_value_that_is_stored_through_a_view_is_stored() -> None:
    graph = Graph()
    relu = graph.call(aten.relu.default, [graph.given("x", 4, 8)])
    view = graph.call(aten.view.default, [relu, [32]], size=(32,))
    graph.module(view)
    load_and_store = kernel_cost.OPERATIONS_PER_BYTE * 2 * BYTES + NUMBERS
    assert kernel_cost.weights((relu, view), stored={view}) == (load_and_store, 0)


def test_what_a_copy_writes_over_is_not_loaded() -> None:
    graph = Graph()
    parameter, x = graph.given("parameter", 4, 8), graph.given("x", 4, 8)
    relu = graph.call(aten.relu.default, [x])
    copy = graph.call(aten.copy_.default, [parameter, relu])
    graph.module(copy)
    load_or_store = kernel_cost.OPERATIONS_PER_BYTE * BYTES + NUMBERS
    assert kernel_cost.weights((relu, copy), stored={copy}) == (load_or_store, load_or_store)


def test_a_reader_of_a_slice_loads_no_more_than_the_slice() -> None:
    graph = Graph()
    part = graph.call(aten.slice.Tensor, [graph.given("x", 400, 8), 0, 0, 4])
    relu = graph.call(aten.relu.default, [part])
    graph.module(relu)
    assert kernel_cost.moved_bytes((part, relu)) == 2 * BYTES


def test_an_embedding_reads_no_more_of_its_table_than_it_yields() -> None:
    graph = Graph()
    table, index = graph.given("table", 1000, 8), graph.given("index", 4)
    rows = graph.call(aten.embedding.default, [table, index])
    graph.module(rows)
    assert kernel_cost.moved_bytes((rows,)) == BYTES + 4 * 4 + BYTES


def test_matrix_products_count_two_operations_a_product() -> None:
    graph = Graph()
    a, b, bias = graph.given("a", 4, 16), graph.given("b", 16, 8), graph.given("bias", 8)
    mm = graph.call(aten.mm.default, [a, b])
    addmm = graph.call(aten.addmm.default, [bias, a, b])
    assert kernel_cost.operations(mm) == kernel_cost.operations(addmm) == 2 * 16 * NUMBERS


def test_a_reduction_counts_what_it_reads() -> None:
    graph = Graph()
    total = graph.call(aten.sum.default, [graph.given("x", 4, 8)], size=())
    assert kernel_cost.operations(total) == NUMBERS


def test_where_nothing_is_known_all_weigh_the_same() -> None:
    graph = Graph()
    nodes = [graph.call(aten.relu.default, []) for _ in range(3)]
    for node in nodes:
        del node.meta["val"]
    assert kernel_cost.weights(nodes) == (1, 1, 1)


def test_a_kernel_computes_no_more_of_a_node_than_it_runs():
    graph = Graph()
    relu = graph.call(aten.relu.default, [graph.given("x", 4, 8)])
    neg = graph.call(aten.neg.default, [relu])
    assert kernel_cost.all_operations((relu, neg)) == 2 * NUMBERS
    assert kernel_cost.all_operations((relu, neg), (5, 1000)) == 5 + NUMBERS


def test_torchs_own_flop_counter_counts_attention():
    graph = Graph()
    query, key, value = (graph.given(name, 1, 2, 16, 8) for name in "qkv")
    attention = graph.call(
        aten._scaled_dot_product_efficient_attention.default,
        [query, key, value, None, False],
        size=(1, 2, 16, 8),
    )
    assert kernel_cost.operations(attention) == 2 * 2 * (2 * 16 * 16 * 8)


@pytest.mark.parametrize(("groups", "transposed"), [(1, False), (4, False), (8, False), (4, True)])
def test_both_gradients_of_a_convolution_cost_twice_its_forward_in_groups_too(
    groups: int, transposed: bool
) -> None:
    graph, channels = Graph(), 8
    image, gradient = (graph.given(name, 2, channels, 9, 9) for name in "xg")
    weight = graph.given("w", channels, channels // groups, 3, 3)
    rest = ([1, 1], [1, 1], [1, 1], transposed, [0, 0], groups)
    forward = graph.call(
        aten.convolution.default, [image, weight, None, *rest], (2, channels, 9, 9)
    )
    backward = aten.convolution_backward.default
    both = graph.call(backward, [gradient, image, weight, None, *rest, [True, True, False]])
    both.meta["val"] = (image.meta["val"], weight.meta["val"], None)
    only = graph.call(backward, [gradient, image, weight, None, *rest, [True, False, False]])
    only.meta["val"] = (image.meta["val"], None, None)
    once = 2 * 9 * (2 * 9 * 9) * channels * (channels // groups)
    assert [kernel_cost.operations(node) for node in (forward, both, only)] == [
        once,
        2 * once,
        once,
    ]


@pytest.mark.parametrize("backend", ["flash", "efficient", "cudnn"])
def test_a_causal_attention_costs_what_its_rows_see(backend: str) -> None:
    graph = Graph()
    q, k, v = (graph.given(name, 2, 3, 16, 8) for name in "qkv")
    packet = getattr(aten, f"_scaled_dot_product_{backend}_attention")
    optional = [None, False] if backend != "flash" else []
    whole, causal = (
        graph.call(packet.default, [q, k, v, *optional, 0.0, each], (2, 3, 16, 8))
        for each in (False, True)
    )
    every = 2 * (2 * 3 * 16 * 16) * (8 + 8)
    assert kernel_cost.operations(whole) == every
    assert kernel_cost.operations(causal) == every * 17 // 32


@pytest.mark.parametrize(("backend", "at"), [("flash", 11), ("efficient", 11), ("cudnn", 14)])
def test_so_do_its_gradients(backend: str, at: int) -> None:
    graph = Graph()
    given = [graph.given(name, 2, 3, 16, 8) for name in "gqkv"]
    packet = getattr(aten, f"_scaled_dot_product_{backend}_attention_backward")
    arguments = [*given, *[None] * (at - 4)]
    whole, causal = (
        graph.call(packet.default, [*arguments, each], (2, 3, 16, 8)) for each in (False, True)
    )
    assert kernel_cost.operations(causal) == kernel_cost.operations(whole) * 17 // 32
