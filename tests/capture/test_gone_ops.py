"""What differentiates an op whose own nodes are gone is not led to the op that stands beside it."""

from __future__ import annotations

from pathlib import Path

import torch

import profiler_ext
from tests.compiling import capture
from verification.oracle.stubs import stubbed
from verification.truth.running import differentiable, differentiate


class Rotated(torch.nn.Module):
    """As rotary embeddings do it; nothing is left over, and ``cat`` drops what is empty."""

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        first, rest = y[..., :4], y[..., 4:]
        return torch.cat((first * angles.cos(), rest), -1)


def test_the_number_of_a_slice_that_is_gone_links_nothing_to_the_cosine_next_to_it(
    fresh_torch: Path,
) -> None:
    with stubbed("cpu"):
        profiler_ext.enable(cpu_events=False)
        x = torch.rand(3, 4, requires_grad=True)
        differentiate(differentiable(torch.compile(Rotated())(x, torch.rand(3, 4))))
        graphs = capture().graphs
    lineages = [node.lineage for graph in graphs if graph.is_backward for node in graph.nodes]
    links = {(each.stack[-1].code, each.forward_node) for each in lineages}
    assert ("first, rest = y[..., :4], y[..., 4:]", None) in links
    assert {code for code, forward in links if forward == "cos"} == set()
