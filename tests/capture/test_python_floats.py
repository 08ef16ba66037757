"""An op with a Python float, which torch rewrites under ``dynamic=True``, keeps its line."""

import linecache
from types import SimpleNamespace

import pytest
import torch

import profiler_ext
from profiler_ext.records.provenance import FxNode, GraphInstance
from tests.compiling import capture

scaling = SimpleNamespace(value=0.375, decay=0.625)


def rotate(x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    cos = x.cos() * scaling.value
    sin = x.sin() + scaling.value
    with torch.no_grad():
        kept.mul_(scaling.decay)
    return (cos * sin).sum()


def code(node: FxNode) -> str:
    stack = node.lineage.stack
    return linecache.getline(stack[-1].file, stack[-1].line).strip() if stack else ""


def lines(graph: GraphInstance) -> dict[str, str]:
    assert graph.provenance is not None
    names = {name for site in graph.provenance.call_sites for name in site.nodes}
    return {node.name: code(node) for node in graph.nodes if node.name in names}


def compiled() -> tuple[GraphInstance, ...]:
    profiler_ext.enable(strict=True)
    x, kept = torch.randn(8, 16, requires_grad=True), torch.ones(8, 16)
    torch.compile(rotate, dynamic=True)(x, kept).backward()
    return capture().graphs


@pytest.mark.usefixtures("fresh_torch")
def test_what_torch_makes_of_a_float_has_the_line_of_the_op_that_takes_it():
    forward, backward = compiled()
    found = lines(forward)
    assert found["mul_tensor"] == "cos = x.cos() * scaling.value"
    assert found["add_tensor"] == "sin = x.sin() + scaling.value"
    copies = [line for name, line in found.items() if name.startswith("copy_")]
    assert copies == ["kept.mul_(scaling.decay)"]
    assert "" not in {**found, **lines(backward)}.values()


@pytest.mark.usefixtures("fresh_torch")
def test_the_gradient_of_such_an_op_is_linked_to_it():
    _, backward = compiled()
    scaled = [node for node in backward.nodes if node.name.startswith("mul_tensor")]
    links = {
        node.lineage.partitioner_tag: (node.lineage.forward_node, code(node)) for node in scaled
    }
    assert links["is_backward"] == ("mul_tensor", "cos = x.cos() * scaling.value")


def counted(x: torch.Tensor, most: float) -> torch.Tensor:
    return torch.histc(x @ x, 4, max=most * 2)


@pytest.mark.usefixtures("fresh_torch")
def test_a_float_in_whose_place_torch_puts_its_number_compiles_and_its_op_has_its_line():
    profiler_ext.enable(strict=True)
    compiled = torch.compile(counted, dynamic=True)
    assert compiled(torch.eye(4), 0.75).tolist() == [12.0, 0.0, 4.0, 0.0]
    assert compiled(torch.eye(4), 1.0).tolist() == [12.0, 0.0, 4.0, 0.0]
    graph, again = capture().graphs
    assert lines(graph) == lines(again)
    assert set(lines(graph).values()) == {"return torch.histc(x @ x, 4, max=most * 2)"}
