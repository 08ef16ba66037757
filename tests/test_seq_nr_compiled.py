"""Where ``seq_nr`` lies in compiled graphs: what a pass replaced, and the old backward tag."""

from __future__ import annotations

from typing import Any

import pytest

import profiler_ext
from profiler_ext.attribution.enclosing import CallContext
from profiler_ext.attribution.phases import node_phase
from profiler_ext.profiling import switch
from profiler_ext.records.provenance import FxNode
from profiler_ext.records.vocabulary import Phase
from tests.compiling import fresh_torch, torch

__all__ = ["fresh_torch"]


def biased(a: Any, b: Any, bias: Any) -> Any:
    return a @ b + bias


def compiled_nodes() -> dict[str, FxNode]:
    capture = switch.current()
    assert capture is not None
    return {node.name: node for graph in capture.graphs for node in graph.nodes}


@pytest.mark.usefixtures("fresh_torch")
def test_what_addmm_replaced_gives_its_number_and_its_backward_the_link() -> None:
    profiler_ext.enable(strict=True)
    a, b, bias = torch.rand(8, 8, requires_grad=True), torch.rand(8, 8), torch.rand(8)
    torch.compile(biased)(a, b, bias).sum().backward()
    nodes = compiled_nodes()
    (addmm,) = [node for node in nodes.values() if node.target == "aten.addmm.default"]
    assert set(addmm.replaced) == {"mm", "add"}
    assert addmm.lineage.seq_nr is not None
    (product,) = [node for node in nodes.values() if node.target == "aten.mm.default"]
    assert (product.lineage.forward_node, product.lineage.forward_evidence) == ("mm", "seq_nr")


class Product(torch.autograd.Function):
    """A matrix product with a backward of its own: library calls, which need no C++ compiler."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        ctx.save_for_backward(b)
        return a @ b

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (b,) = ctx.saved_tensors
        return grads[0] @ b.t(), None


def products(a: Any, b: Any) -> Any:
    first = Product.apply(a, b)
    return Product.apply(first, b)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.usefixtures("fresh_torch")
def test_compiled_the_backward_of_an_autograd_function_is_backward_and_linked() -> None:
    profiler_ext.enable(strict=True)
    torch.compile(products)(torch.rand(8, 8, requires_grad=True), torch.rand(8, 8)).sum().backward()
    assert compiled_products() == [
        ("mm", Phase.FORWARD, None),
        ("mm_1", Phase.FORWARD, None),
        ("mm_2", Phase.BACKWARD, "mm_1"),
        ("mm_3", Phase.BACKWARD, "mm"),
    ]


def product_tagged_the_old_way(a: Any, b: Any) -> Any:
    with torch.fx.traceback.annotate({"autograd_backward": True}):
        return a @ b


@pytest.mark.usefixtures("fresh_torch")
def test_compiled_a_forward_op_with_the_old_backward_tag_is_forward() -> None:
    profiler_ext.enable(strict=True)
    compiled = torch.compile(product_tagged_the_old_way)
    compiled(torch.rand(8, 8, requires_grad=True), torch.rand(8, 8)).sum().backward()
    assert compiled_products() == [("mm", Phase.FORWARD, None), ("mm_1", Phase.BACKWARD, "mm")]
    assert compiled_nodes()["mm"].lineage.autograd_backward is True


def compiled_products() -> list[tuple[str, Phase, str | None]]:
    """Return each matrix product that was compiled: its name, phase and forward node."""
    capture = switch.current()
    assert capture is not None
    return [
        (
            node.name,
            node_phase(node, graph, CallContext(), in_torch_optim=False),
            node.lineage.forward_node,
        )
        for graph in capture.graphs
        for node in graph.nodes
        if node.target == "aten.mm.default"
    ]
