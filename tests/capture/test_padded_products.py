"""What pads a product, and what cuts it off, stand where the product does and lead to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import profiler_ext
from profiler_ext.records.provenance import GraphInstance
from tests.compiling import capture
from verification.oracle.stubs import stubbed
from verification.truth.settings import padded


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(37, 53)
        self.head = nn.Linear(53, 11, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.up(x))
        y = self.head(h)
        return torch.bmm(y[None], y.t()[None])


@pytest.fixture
def padding(fresh_torch: Path) -> Iterator[None]:
    with stubbed("cpu"), padded():
        yield


def trained() -> tuple[GraphInstance, ...]:
    """Return the forward and the backward graph of a step of the model."""
    profiler_ext.enable(cpu_events=False)
    torch.compile(Model())(torch.randn(19, 37, requires_grad=True)).square().sum().backward()
    return tuple(sorted(capture().graphs, key=lambda graph: graph.is_backward))


def test_what_a_padded_product_s_backward_is_made_of_leads_to_the_product(padding: None) -> None:
    forward, backward = trained()
    made = {n.name: n.target for n in forward.nodes}
    lines = {n.name: n.lineage.stack[-1].code for n in forward.nodes if n.lineage.stack}
    attributed = {
        n.lineage.stack[-1].code: made[n.lineage.forward_node or ""]
        for n in backward.nodes
        if n.target in ("aten.mm.default", "aten.bmm.default")
    }
    assert attributed == {
        "h = torch.relu(self.up(x))": "aten.addmm.default",
        "y = self.head(h)": "aten.mm.default",
        "return torch.bmm(y[None], y.t()[None])": "aten.bmm.default",
    }
    ways = [n for n in backward.nodes if n.target.startswith(("aten.constant_pad", "aten.slice"))]
    differentiating = [n for n in ways if n.lineage.forward_node]  # the others are recomputed
    assert {n.target for n in differentiating} == {n.target for n in ways}
    for node in differentiating:
        assert lines[node.lineage.forward_node or ""] == node.lineage.stack[-1].code


def test_a_sum_of_gradients_leads_to_the_product_that_was_padded(padding: None) -> None:
    forward, backward = trained()
    (added,) = (n for n in backward.nodes if n.lineage.is_gradient_acc)
    (product,) = (n for n in forward.nodes if n.target == "aten.mm.default")
    assert added.lineage.forward_node == product.name
