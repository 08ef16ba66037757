"""What a hook on a gradient does is no sum: it stands in the hook, or nowhere if none is known."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import profiler_ext
from profiler_ext.capture.lineage.gradients import find_gradient_hooks
from profiler_ext.capture.traces.creations import Creation
from profiler_ext.records.evidence import Mechanism
from profiler_ext.torch_compat.autograd import AutogradNode
from tests.capture.fx_graphs import frame_text
from tests.compiling import capture

MARKED = {"is_gradient_acc": True, "partitioner_tag": "is_backward"}
LINE = {"stack_trace": frame_text("/src/model.py", 1, "forward", "of the node before")}


def made(op: str, number: int, *inputs: str, **meta: object) -> Creation:
    node = AutogradNode("TanhBackward0", number)
    return Creation(f"aten.{op}", inputs, {**LINE, **meta}, node, False, 1, 9, 9)


def test_what_is_marked_as_a_sum_and_cannot_be_one_stands_nowhere() -> None:
    creations = {
        "own": made("mul.Tensor", 7, "tangents"),
        "sum": made("add.Tensor", 7, "own", "other", **MARKED),
        "shifted": made("add.Tensor", 6, "sum", **MARKED),  # before the node ran: a hook's
        "own_1": made("tanh_backward.default", 6, "shifted"),
        "sign": made("sign.default", 5, "own_1", **MARKED),  # the node makes none of its own
        "doubled": made("add.Tensor", 5, "sign", "own_1", **MARKED),  # reads what a hook made
        "sum_1": made("add.Tensor", 5, "sum", "own_1", **MARKED),
    }
    nowhere = made("mul.Tensor", 7, partitioner_tag="is_backward").lineage
    nowhere = replace(nowhere, stack=()).by(Mechanism.OWN)
    hooks = dict.fromkeys(("shifted", "sign", "doubled"), nowhere)
    assert find_gradient_hooks(creations) == hooks


def test_no_node_outside_a_backward_is_a_hooks() -> None:
    outside = Creation("aten.mul.Tensor", (), {**LINE, **MARKED}, None, False, 1, 9, 9)
    assert find_gradient_hooks({"outside": outside}) == {}


def test_what_is_traced_with_a_node_of_a_hooks_body_stands_there_and_all_else_is_a_sum() -> None:
    body = {"stack_trace": frame_text("/src/model.py", 9, "hook", "gradient * 2")}
    of_hook = made("mul.Tensor", 7, "tangents", **MARKED)
    creations = {
        "doubled": replace(of_hook, hook=body),
        "sum": made("add.Tensor", 7, "other", "doubled", **MARKED),  # reads what a hook made
    }
    (found,) = find_gradient_hooks(creations).items()
    name, lineage = found
    assert (name, lineage.is_gradient_acc, lineage.mechanism) == ("doubled", False, Mechanism.HOOK)
    assert [(frame.line, frame.function) for frame in lineage.stack] == [(9, "hook")]


class Hooked(torch.nn.Module):
    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        def hook(gradient: torch.Tensor) -> torch.Tensor:
            turned = gradient.t() @ gradient
            return gradient @ turned

        y = x @ weight
        y.register_hook(hook)
        return y @ weight


FIRST = Hooked.forward.__code__.co_firstlineno


# Before torch 2.13 Dynamo makes an ``autograd.Function`` of a hook, and warns of that itself.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_hook_that_is_compiled_with_the_backward_has_its_own_lines(fresh_torch: Path) -> None:
    profiler_ext.enable(strict=True, cpu_events=False)
    x, weight = (torch.randn(6, 6, requires_grad=True) for _ in "xw")
    torch.compile(Hooked())(x, weight).sum().backward()
    backward = next(graph for graph in capture().graphs if graph.is_backward)
    products = [n.lineage for n in backward.nodes if n.target.startswith(("aten.mm", "aten.addmm"))]
    lines = Counter(lineage.stack[-1].line - FIRST for lineage in products)
    assert lines == {2: 1, 3: 1, 5: 2, 7: 2}
