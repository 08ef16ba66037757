"""What the program runs within a backward: functions of its own, hooks."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.compiling import torch
from tests.watched import needs_lines
from verification.eager_lines.seeing import briefly, seen

pytestmark = needs_lines


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.mul(2)  # line: forward of the function

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0].mul(2)  # line: backward of the function


def weight() -> Any:
    return torch.rand(4, 4, requires_grad=True)


def test_the_backward_of_an_own_function_has_lines_of_its_own_and_the_call_of_its_forward() -> None:
    w, given = weight(), torch.rand(4, 4)

    def step() -> None:
        y = Double.apply(w)  # line: call
        y.backward(given)

    forward, backward = seen(step, "mul")
    assert forward.line == "forward of the function"
    assert backward.brief == ("mul", "backward", "backward of the function")
    assert (backward.evidence, backward.caller) == ("line_that_ran", "call")


def test_a_hook_of_a_tensor_has_the_line_that_runs_and_its_node_that_of_its_forward() -> None:
    w, given = weight(), torch.rand(4, 4)

    def halved(gradient: Any) -> Any:
        return gradient.div(2)  # line: hook

    def step() -> None:
        y = w.sin()  # line: sin
        y.register_hook(halved)
        y.backward(given)

    found = {each.brief: each.link for each in seen(step, "div", "cos", "mul")}
    assert found == {
        ("div", "backward", "hook"): "hook",
        ("cos", "backward", "sin"): "autograd_sequence_number",
        ("mul", "backward", "sin"): "autograd_sequence_number",
    }


def test_hooks_of_a_module_have_the_lines_that_run() -> None:
    layer, given = nn.Linear(4, 4), torch.rand(4, 4, requires_grad=True)

    def before(module: Any, args: Any) -> Any:
        return (args[0].mul(1.5),)  # line: before

    def after(module: Any, args: Any, out: Any) -> Any:
        return out.div(2)  # line: after

    def backward(module: Any, inputs: Any, outputs: Any) -> Any:
        return (inputs[0].neg(),)  # line: backward

    layer.register_forward_pre_hook(before)
    layer.register_forward_hook(after)
    layer.register_full_backward_hook(backward)

    def step() -> None:
        y = layer(given)  # line: call
        y.backward(torch.ones(4, 4))

    lines = {each.brief for each in seen(step, "mul", "div", "neg", "linear")}
    assert lines == {
        ("mul", "forward", "before"),
        ("linear", "forward", "call"),
        ("div", "forward", "after"),
        ("div", "backward", "after"),
        ("neg", "backward", "backward"),
        ("mul", "backward", "before"),
    }


def test_an_optimizer_that_steps_as_gradients_come_has_the_line_of_its_hook() -> None:
    w, given = weight(), torch.rand(4, 4)
    optimizer = torch.optim.SGD([w], lr=0.1)

    def update(_: Any) -> None:
        optimizer.step()  # line: update
        optimizer.zero_grad()

    w.register_post_accumulate_grad_hook(update)

    def step() -> None:
        y = w * given  # line: product
        y.backward(given)

    found = [each for each in seen(step) if each.phase == "optimizer"]
    assert {(each.line, each.evidence) for each in found} == {("update", "line_that_ran")}


def test_gradients_that_come_after_another_one_s_hook_have_the_line_of_their_op() -> None:
    a, b = weight(), weight()

    def halve(leaf: Any) -> None:
        leaf.grad.div_(2)  # line: hook

    for each in (a, b):
        each.register_post_accumulate_grad_hook(halve)

    def step() -> None:
        for _ in range(2):
            y = a * b  # line: product
            y.backward(torch.ones(4, 4))

    found = briefly(step, "add_", "div_")
    assert sorted(found) == [
        *[("add_", "gradient_accumulation", "product")] * 4,
        *[("div_", "gradient_accumulation", "hook")] * 4,
    ]


def test_a_leaf_s_own_backward_after_another_one_is_not_of_that_one_s_last_op() -> None:
    w, given = weight(), torch.ones(4, 4)

    def step() -> None:
        y = w * given  # line: product
        y.backward(given)
        w.backward(given)  # line: leaf

    assert briefly(step, "add_")[-1][2] != "product"
