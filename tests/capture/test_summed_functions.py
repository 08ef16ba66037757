"""What an ``autograd.Function`` yields has the sums of its gradients where it is made, if known."""

from __future__ import annotations

import linecache

import pytest
import torch

import profiler_ext
from profiler_ext.records.evidence import Mechanism
from tests.compiling import capture


class OnOneLine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sin(), x.cos()  # both

    @staticmethod
    def backward(ctx, first, second):
        return first + second


class OnTwoLines(OnOneLine):
    @staticmethod
    def forward(ctx, x):
        first = x.sin()
        second = x.cos()
        return first, second


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own
@pytest.mark.parametrize(
    ("function", "lines"), [(OnOneLine, {"return x.sin(), x.cos()  # both"}), (OnTwoLines, set())]
)
def test_which_of_two_values_is_summed_is_reported_where_their_line_is_one(
    function: type[torch.autograd.Function], lines: set[str]
) -> None:
    def step(x):
        first, second = function.apply(x * 2)
        return first.exp() + first.tanh() + second.exp() + second.tanh()

    profiler_ext.enable(strict=True)
    torch.compile(step)(torch.ones(4, requires_grad=True)).sum().backward()
    nodes = [node for graph in capture().graphs if graph.is_backward for node in graph.nodes]
    sums = [node.lineage for node in nodes if node.lineage.is_gradient_acc]
    assert len(sums) == 2
    stacks = [each.stack[-1] for each in sums if each.mechanism is Mechanism.GRADIENT_SUM]
    assert {linecache.getline(frame.file, frame.line).strip() for frame in stacks} == lines
