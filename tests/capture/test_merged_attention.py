"""Attention that is written out stands at its last product, in forward and in backward."""

from pathlib import Path

import torch
from torch import nn

import profiler_ext
from profiler_ext.profiling.switch import current

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


def test_the_backward_of_a_merged_attention_stands_at_its_forward_s_last_product(
    fresh_torch: Path,
) -> None:
    profiler_ext.enable(cpu_events=False)
    model = nn.Sequential(Attention(), Attention())
    torch.compile(model)(torch.randn(2, 8, 32)).square().mean().backward()
    capture = current()
    assert capture is not None
    merged = [
        (node.target, node.lineage.stack[-1].code.split(".")[0], node.lineage.modules[-1].path)
        for graph in capture.graphs
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
