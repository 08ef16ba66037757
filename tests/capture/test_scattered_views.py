"""What scatters a view's gradient into memory leads to the line that took the view."""

import linecache

import pytest
import torch
import torch.nn.functional as F

import profiler_ext
from profiler_ext.records.provenance import FxNode, GraphInstance
from tests.compiling import capture


def windows(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    h = F.linear(x, weight)
    pooled = h.as_strided((8, 4, 32), (512, 128, 1))
    return F.linear(pooled, weight).tanh().sum()


def corners(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    h = F.linear(x, weight)
    first = h[:, :8, :8].diagonal(0, 1, 2)
    other = h[:, 8:, 8:16].diagonal(0, 1, 2)
    return (first * other).tanh().sum()


def code(node: FxNode) -> str:
    stack = node.lineage.stack
    return linecache.getline(stack[-1].file, stack[-1].line).strip() if stack else ""


def computed(graph: GraphInstance) -> list[FxNode]:
    assert graph.provenance is not None
    names = {name for site in graph.provenance.call_sites for name in site.nodes}
    return [node for node in graph.nodes if node.name in names]


def backward(function) -> list[FxNode]:
    profiler_ext.enable(strict=True)
    x, weight = torch.randn(8, 16, 32), torch.randn(32, 32, requires_grad=True)
    torch.compile(function)(x, weight).backward()
    return computed(next(graph for graph in capture().graphs if graph.is_backward))


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.whole
def test_a_copy_into_a_strided_view_is_of_the_view_that_it_differentiates():
    nodes = backward(windows)
    copies = [node for node in nodes if node.target.startswith("aten.copy_")]
    assert [(code(node), node.lineage.forward_node) for node in copies] == [
        ("pooled = h.as_strided((8, 4, 32), (512, 128, 1))", "as_strided")
    ]
    assert [node.name for node in nodes if not node.lineage.stack] == []


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.filterwarnings("ignore:.*check.* is deprecated:FutureWarning")
def test_copies_into_several_views_of_zeros_are_distinguished_by_what_they_write():
    nodes = backward(corners)
    copies = [node for node in nodes if node.target.startswith("aten.copy_")]
    assert {(code(node)[:5], node.lineage.forward_node) for node in copies} == {
        ("first", "diagonal"),
        ("other", "diagonal_1"),
    }
    assert [node.name for node in nodes if not node.lineage.stack] == []
