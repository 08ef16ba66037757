"""Compiled autograd's graphs are known as backward, and name no module that is not the user's."""

import pytest
import torch
import torch._dynamo.compiled_autograd

import profiler_ext
from profiler_ext import switch
from profiler_ext.attribution.phases import is_compiled_autograd
from tests.compiling import expected_gradient, train_once


@pytest.mark.usefixtures("fresh_torch")
def test_its_graph_has_no_lines_and_no_module_of_its_own() -> None:
    profiler_ext.enable()
    with torch._dynamo.compiled_autograd._enable(torch.compile):
        gradient = train_once(anew=False)
    assert torch.allclose(gradient, expected_gradient())
    capture = switch.current()
    assert capture is not None
    graphs = [graph for graph in capture.graphs if is_compiled_autograd(graph)]
    assert {node.target for graph in graphs for node in graph.nodes} >= {"aten.mm.default"}
    assert {(node.modules, node.stack) for g in graphs for node in g.nodes} == {((), ())}
