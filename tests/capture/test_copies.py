"""How the names of compiled autograd's nodes are read, and a cached graph's calls are told."""

from types import SimpleNamespace

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.torch_compat import compiled_autograd, fx, points
from profiler_ext.torch_compat.compiled_autograd import COPIED_FROM, CopiedNode
from profiler_ext.torch_compat.patches import installed
from tests.capture.fx_graphs import Graph, aten


@pytest.mark.parametrize(
    ("name", "copy"),
    [
        ("aot0_mul", CopiedNode(0, "mul", "aot0")),
        ("aot12_1_mul_3", CopiedNode(12, "mul_3", "aot12_1")),
        ("aot0__to_copy", CopiedNode(0, "_to_copy", "aot0")),
        ("accumulate_grad_2", None),
        ("aot_mul", None),
    ],
)
def test_a_copys_name_tells_the_compile_and_the_node(name: str, copy: CopiedNode | None) -> None:
    assert compiled_autograd.copied_node(name) == copy


def test_calls_without_an_input_are_gone_when_a_graphs_code_is_traced_again() -> None:
    made = Graph()
    x = made.given("x", 4, 8)
    zeros = made.call(aten.full.default, ([4, 8], 0.0), name="zeros")
    twos = made.call(aten.add.Tensor, (zeros, 2), name="twos")
    product = made.call(aten.mul.Tensor, (x, twos), name="product")
    made.call(aten.neg.default, (x,), name="unused")
    gm = made.module(product)
    calls = fx.dependent_calls(gm.graph)
    assert calls == (("product", "aten.mul.Tensor"), ("unused", "aten.neg.default"))
    again = fx.dependent_calls(torch.fx.symbolic_trace(gm).graph)
    assert [target for _, target in again] == [target for _, target in calls]


def named_run(gm: torch.fx.GraphModule, x: torch.Tensor) -> torch.Tensor:
    """Run a graph as torch does, while what is traced gets its names."""
    naming = compiled_autograd.Naming(SimpleNamespace(gm=gm))

    def node_made(call: Observed) -> Observation:
        yield
        naming.name(call.result)

    with installed([(points.NODE_MADE, node_made)], Guard(strict=True)):
        return gm(x)


def test_each_traced_node_names_the_node_that_it_stems_from_and_nothing_else_changes() -> None:
    made = Graph()
    x = made.given("x", 4, 8)
    norm = made.call(torch.nn.functional.layer_norm, (x, (8,)), name="aot0_norm")
    gm = made.module(made.call(torch.sin, (norm,), name="aot0_sin"))
    with_names = make_fx(lambda x: named_run(gm, x))(torch.ones(4, 8))
    plain = make_fx(lambda x: gm(x))(torch.ones(4, 8))
    assert with_names.code == plain.code
    named = {
        node.name: node.meta[COPIED_FROM]
        for node in with_names.graph.nodes
        if node.op == "call_function"
    }
    assert set(named.values()) == {"aot0_norm", "aot0_sin"}
    assert named["sin"] == "aot0_sin"
