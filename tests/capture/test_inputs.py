"""Inputs that change with each call are recorded where they come from; fixed ones are not."""

from __future__ import annotations

import types

import pytest
import torch

import profiler_ext
from profiler_ext.errors import PrivateNameError
from profiler_ext.profiling import switch
from profiler_ext.records.evidence import LineEvidence
from profiler_ext.records.provenance import FxNode
from profiler_ext.records.vocabulary import CacheState
from profiler_ext.torch_compat import inputs

OUTER = torch.ones(8, 8)


def decorated(function):
    return function


class Model(torch.nn.Module):
    """Matrix products are library calls, which need no C++ compiler."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 8))

    @decorated
    def forward(self, x, options):
        h = x @ self.weight
        h = h @ options["matrix"] @ OUTER
        return h, h @ x


FIRST = Model.forward.__code__.co_firstlineno
DEFINED, FIRST_OUTPUT, SECOND_OUTPUT = FIRST + 1, FIRST + 3, FIRST + 4


def train() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    first, second = torch.compile(Model())(torch.randn(8, 8), {"matrix": torch.randn(8, 8)})
    (first.sum() + second.sum()).backward()


def given(graph) -> dict[str, tuple[int | None, str | None, str]]:
    """Return for each recorded input its line, the node it is the gradient of, its evidence."""
    return {
        node.name: (
            node.lineage.stack[-1].line if node.lineage.stack else None,
            node.lineage.forward_node,
            node.lineage.evidence,
        )
        for node in graph.nodes
        if node.target == "placeholder"
    }


@pytest.fixture
def wanted(fresh_torch, monkeypatch):
    """Graphs are compiled as if they were to be replayed; a CPU never replays."""
    monkeypatch.setattr(inputs, "wants_cuda_graphs", lambda artifact: True)
    profiler_ext.enable(strict=True)
    return fresh_torch


def test_arguments_have_the_functions_line_and_gradients_their_outputs(wanted):
    train()
    forward, backward = switch.current().graphs
    compiled, unknown = LineEvidence.COMPILED, LineEvidence.ABSENT
    assert sorted(given(forward).values(), key=str) == [
        (DEFINED, None, compiled),
        (DEFINED, None, compiled),
        (None, None, unknown),
    ]
    assert given(backward) == {
        "tangents_1": (FIRST_OUTPUT, "mm_2", compiled),
        "tangents_2": (SECOND_OUTPUT, "mm_3", compiled),
    }
    known = [n for n in forward.nodes if n.target == "placeholder" and n.lineage.stack]
    assert {(n.lineage.modules[-1].path, n.lineage.modules[-1].class_name) for n in known} == {
        ("", "Model")
    }


@pytest.mark.parametrize("hit", ["fx", "aot"])
def test_a_cached_graphs_inputs_have_the_lines_of_this_process(wanted, monkeypatch, hit):
    cold_lines = _after(train)
    monkeypatch.setattr(inputs, "wants_cuda_graphs", lambda artifact: False)
    with torch._functorch.config.patch(enable_autograd_cache=hit == "aot"):
        warm = _after(train)
    state, evidence = {
        "fx": (CacheState.FX_HIT, LineEvidence.FRESH_GRAPH),
        "aot": (CacheState.AOT_HIT, LineEvidence.FRESH_DYNAMO),
    }[hit]
    assert {graph.cache_state for graph in warm} == {state}
    for cold, again in zip(cold_lines, warm, strict=True):
        known = {name: at[:2] for name, at in given(cold).items() if at[0] is not None}
        assert {n: at[:2] for n, at in given(again).items() if n in known} == known
        assert {given(again)[name][2] for name in known} == {evidence}


def _after(train_once):
    before = len(switch.current().graphs)
    train_once()
    return switch.current().graphs[before:]


def test_a_lambda_and_what_resumes_stand_where_they_are_written():
    def inner():
        return None

    written = (lambda x: x), inner
    line = test_a_lambda_and_what_resumes_stand_where_they_are_written.__code__.co_firstlineno
    found = [inputs.definition(_compiling(function)) for function in written]
    assert [text.splitlines()[0].strip().rpartition("line ")[2] for text in found] == [
        f"{line + 4}, in <lambda>",
        f"{line + 1}, in inner",
    ]
    with pytest.raises(PrivateNameError, match="has no root_tx; lost is the module of a node"):
        inputs.definition(types.SimpleNamespace())


def _compiling(function):
    return types.SimpleNamespace(root_tx=types.SimpleNamespace(f_code=function.__code__))


def test_only_the_graphs_that_want_cuda_graphs_have_inputs(fresh_torch):
    profiler_ext.enable(strict=True)
    train()
    nodes = [node for graph in switch.current().graphs for node in graph.nodes]
    assert isinstance(nodes[0], FxNode)
    assert [node.name for node in nodes if node.target == "placeholder"] == []
