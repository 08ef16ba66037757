"""An op that writes to its inputs leads to the line that calls it, and its backward to it."""

import linecache
from typing import Any

import pytest
import torch

import profiler_ext
from profiler_ext.records.provenance import FxNode, GraphInstance
from tests.compiling import capture


@torch.library.custom_op("profiler_ext_tests::multiply_into", mutates_args={"out"})
def multiply_into(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(x @ x)


class Multiplied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        multiply_into(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(gradients[0])
        multiply_into(gradients[0], out)
        return out


def twice(x: torch.Tensor) -> torch.Tensor:
    first = Multiplied.apply(x @ x)
    return Multiplied.apply(first @ x)


def calls(graph: GraphInstance) -> list[FxNode]:
    return [node for node in graph.nodes if "multiply_into" in node.target]


def code(node: FxNode) -> str:
    return linecache.getline(node.lineage.stack[-1].file, node.lineage.stack[-1].line).strip()


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.usefixtures("fresh_torch")
def test_a_call_that_writes_replaced_its_functional_form_and_has_its_number_and_link() -> None:
    profiler_ext.enable(strict=True)
    torch.compile(twice)(torch.ones(8, 8, requires_grad=True)).sum().backward()
    forward, backward = capture().graphs
    first, second = calls(forward)
    assert (code(first), code(second)) == ("multiply_into(x, out)",) * 2
    assert None not in (first.lineage.seq_nr, second.lineage.seq_nr)
    assert first.lineage.seq_nr < second.lineage.seq_nr
    assert [code(node) for node in calls(backward)] == ["multiply_into(gradients[0], out)"] * 2
    linked = [(node.lineage.forward_node,) for node in calls(backward)]
    assert linked == [second.replaced, first.replaced]
