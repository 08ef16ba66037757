"""What a hook on a gradient does is told apart from sums of gradients, and claims no line."""

from __future__ import annotations

from dataclasses import replace

from profiler_ext.capture.lineage.gradient_hooks import find_gradient_hooks
from profiler_ext.capture.traces.creations import Creation
from profiler_ext.records import Mechanism
from profiler_ext.torch_compat.autograd import AutogradNode
from tests.capture.fx_graphs import frame_text

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
