"""A FlexAttention ``score_mod``'s nodes have its own lines, which only Dynamo still knows.

Nothing runs: the tensors are on the meta device, and the traced graphs are only read.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.fx
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.output_graph import OutputGraph
from torch.nn.attention import flex_attention as module
from torch.nn.attention.flex_attention import flex_attention

from profiler_ext.capture.graphs.fx_nodes import describe_nested, nested_nodes
from profiler_ext.capture.lineage.stage import Compilation
from profiler_ext.capture.traces.dynamo_graphs import describe_dynamo_graph
from profiler_ext.capture.traces.nested_regions import DroppedTraces


def several_lines(score, k, bias):
    near = score * 1.25
    return near + bias[k] * 1.75


def with_operators(score, q, k):
    distance = (q - k) / 16
    return torch.tanh(score / 20) * distance


def attend(x, bias):
    x = flex_attention(x, x, x, score_mod=lambda s, b, h, q, k: with_operators(s, q, k))
    a = flex_attention(x, x, x, score_mod=lambda s, b, h, q, k: several_lines(s, k, bias))
    return a + flex_attention(x, x, x, score_mod=lambda s, b, h, q, k: s * 1.5 + bias[k])


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """The source text of each node of a ``score_mod``, forward and backward."""
    found: dict[str, str | None] = {}
    dynamo: list[Any] = []
    original = OutputGraph.call_user_compiler

    def note(self: Any, gm: Any, *rest: Any, **named: Any) -> Any:
        dynamo.append(describe_dynamo_graph(self, gm, DroppedTraces()))
        return original(self, gm, *rest, **named)

    def read(gm: torch.fx.GraphModule, _: Any) -> Any:
        around = Compilation(lambda _: None, dynamo[-1], frozenset(), {})
        for node in describe_nested(nested_nodes(gm), around):
            found[node.name] = node.lineage.stack[-1].code if node.lineage.stack else None
        return make_boxed_func(gm.forward)

    monkeypatch.setattr(OutputGraph, "call_user_compiler", note)
    monkeypatch.setattr(module, "_validate_device", lambda *_: None)
    backend = aot_autograd(fw_compiler=read, bw_compiler=read)
    x = torch.rand(1, 2, 128, 32, device="meta", requires_grad=True)
    compiled = torch.compile(attend, backend=backend, fullgraph=True)
    compiled(x, torch.rand(128, device="meta")).sum().backward()
    return found


def test_each_node_has_the_line_of_the_score_mod_that_it_stands_on(lines):
    near, after = "near = score * 1.25", "return near + bias[k] * 1.75"
    own = {"mul": near, "index": after, "mul_1": after, "add": after}
    for graph in ("flex_attention_1/sdpa_score1", "flex_attention_backward_1/fw_graph1"):
        assert {name: lines[f"{graph}/{name}"] for name in own} == own
    ours = ("joint_graph0/", "joint_graph1/")
    derived = {n: line for n, line in lines.items() if any(graph in n for graph in ours)}
    assert [line and "s * 1.5 + bias[k]" in line for line in derived.values()] == [True, None]


def test_an_operator_of_pythons_is_known_by_the_op_that_it_is_traced_to(lines):
    distance, after = "distance = (q - k) / 16", "return torch.tanh(score / 20) * distance"
    own = {"sub": distance, "div": distance, "div_1": after, "tanh": after, "mul": after}
    for graph in ("flex_attention/sdpa_score0", "flex_attention_backward_2/fw_graph2"):
        assert {name: lines[f"{graph}/{name}"] for name in own} == own
