"""Attention that is written out stands at its last product, in forward and in backward."""

from pathlib import Path

import torch
from torch import nn

import profiler_ext
from profiler_ext.records.provenance import FxNode
from tests.compiling import capture
from verification.oracle.stubs import stubbed

_FUSED = "_scaled_dot_product_flash_attention_for_cpu"


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).split(32, dim=2)
        q = q.view(2, 8, 2, 16).transpose(1, 2)
        k = k.view(2, 8, 2, 16).transpose(1, 2)
        v = v.view(2, 8, 2, 16).transpose(1, 2)
        scores = torch.softmax((q @ k.transpose(-2, -1)) / 4.0, dim=-1)
        return (scores @ v).transpose(1, 2).reshape(2, 8, 32)


class Turned(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        v = v.permute(0, 2, 1, 3)
        k = k.permute(0, 2, 1, 3)
        q = q.permute(0, 2, 1, 3)
        scores = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / 4.0, dim=-1)
        return torch.matmul(scores, v)


def test_each_look_that_a_pattern_made_again_stands_at_the_one_at_the_same_value(
    fresh_torch: Path,
) -> None:
    with stubbed("cpu"):
        profiler_ext.enable(cpu_events=False)
        given = (torch.randn(2, 8, 2, 16, requires_grad=True) for _ in "qkv")
        torch.compile(Turned())(*given).sum().backward()
        forward, backward = sorted(capture().graphs, key=lambda graph: graph.is_backward)
    turned = {n.name: _code(n) for n in forward.nodes if "permute_default" in n.name}
    back = [n for n in backward.nodes if "permute_default" in n.name]
    lines = [f"{name} = {name}.permute(0, 2, 1, 3)" for name in "kqv"]
    assert sorted(turned.values()) == lines
    assert sorted(map(_code, back)) == lines
    assert [turned[n.lineage.forward_node or ""] for n in back] == list(map(_code, back))


def _code(node: FxNode) -> str | None:
    return node.lineage.stack[-1].code


def test_the_backward_of_a_merged_attention_stands_at_its_forward_s_last_product(
    fresh_torch: Path,
) -> None:
    model = nn.Sequential(Attention(), Attention())
    with stubbed("cpu"):
        profiler_ext.enable(cpu_events=False)
        torch.compile(model)(torch.randn(2, 8, 32)).square().mean().backward()
    merged = [
        (node.target, node.lineage.stack[-1].code.split(".")[0], node.lineage.modules[-1].path)
        for graph in capture().graphs
        for node in graph.nodes
        if _FUSED in node.target
    ]
    forward, backward = f"aten.{_FUSED}.default", f"aten.{_FUSED}_backward.default"
    assert sorted(merged) == [
        (forward, "return (scores @ v)", "0"),
        (forward, "return (scores @ v)", "1"),
        (backward, "return (scores @ v)", "0"),
        (backward, "return (scores @ v)", "1"),
    ]
