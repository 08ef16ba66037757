from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import profiler_ext
from profiler_ext.profiling import switch


@pytest.mark.usefixtures("fresh_torch")
def test_a_random_call_that_is_replayed_in_backward_keeps_its_line_in_both_halves():
    profiler_ext.enable(strict=True)
    x = torch.rand(4, 16, requires_grad=True)

    def block(x):
        return x * torch.multinomial(x.detach(), 1)

    torch.compile(lambda x: checkpoint(block, x, use_reentrant=False).sum())(x).backward()
    nodes = [
        (graph.is_backward, node.lineage.partitioner_tag, node.lineage.stack[-1].code)
        for graph in switch.current().graphs
        for node in graph.nodes
        if "rng_state" in node.target
    ]
    line = "return x * torch.multinomial(x.detach(), 1)"
    assert nodes == [(False, "is_forward", line), (True, "is_forward", line)]
