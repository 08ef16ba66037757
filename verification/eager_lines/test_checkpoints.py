"""What a checkpoint runs again: at the lines of the forward, also where torch itself runs it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.compiling import torch
from tests.watched import needs_lines
from verification.eager_lines.seeing import Seen, briefly, seen

pytestmark = needs_lines


def weight() -> Any:
    return torch.rand(4, 4, requires_grad=True)


@pytest.mark.parametrize("is_reentrant", [False, True])
def test_what_a_checkpoint_runs_again_has_the_forward_s_line(is_reentrant: bool) -> None:
    w, given = weight(), torch.rand(4, 4, requires_grad=True)

    def block(x: Any) -> Any:
        y = (x * w).sin()  # line: block
        return y.exp()  # line: end of the block

    def step() -> None:
        y = checkpoint(block, given, use_reentrant=is_reentrant)  # line: checkpoint
        y.backward(torch.ones(4, 4))

    found = briefly(step, "sin", "cos")
    assert found == [
        ("sin", "forward", "block"),
        ("sin", "recompute", "block"),
        ("cos", "backward", "block"),
    ]
    again = [each for each in seen(step, "sin") if each.phase == "recompute"]
    assert [each.link for each in again] == ["recomputed_forward"]


@pytest.mark.parametrize("is_reentrant", [False, True])
def test_a_bare_layer_in_a_checkpoint_runs_again_at_the_line_that_checkpoints_it(
    is_reentrant: bool,
) -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    layer, given = model[0], torch.rand(4, 4, requires_grad=True)

    def step() -> None:
        y = checkpoint(layer, given, use_reentrant=is_reentrant)  # line: checkpoint
        y = y.sin()  # line: sin
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y.backward(torch.ones(4, 4))  # line: backward call

    again = [each for each in seen(step, "linear", "addmm") if each.phase == "recompute"]
    assert [(each.line, each.link) for each in again] == [("checkpoint", "recomputed_forward")]


def again(step: Any, *ops: str) -> list[Seen]:
    return [each for each in seen(step, *ops) if each.phase == "recompute"]


class Layered(nn.Module):
    """Layers that torch calls itself, in a checkpoint; a hook has a line of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Tanh(), nn.Sigmoid()))
        self.layers[0].register_forward_hook(lambda *given: given[2].exp())  # line: hook
        self.layers.register_full_backward_hook(lambda *_: None)

    def forward(self, x: Any) -> Any:
        return checkpoint(self.layers, x, use_reentrant=False)  # line: layers


def test_layers_next_to_a_hook_run_again_at_the_line_that_checkpoints_them() -> None:
    model, given = Layered(), torch.rand(4, 4, requires_grad=True)

    def step() -> None:
        y = model(given)  # line: model
        y.backward(torch.ones(4, 4))

    found = again(step, "linear", "exp", "tanh", "view_as")
    assert [(each.op, each.line, each.module) for each in found] == [
        ("view_as", "layers", "layers"),
        ("linear", "layers", "layers.0"),
        ("exp", "hook", "layers.0"),
        ("tanh", "layers", "layers.1.0"),
    ]
    assert {each.link for each in found} == {"recomputed_forward"}


def test_a_checkpoint_in_a_checkpoint_leads_to_its_own_call() -> None:
    inner, given = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.rand(4, 4, requires_grad=True)

    def block(x: Any) -> Any:
        y = x.sin()  # line: block
        return checkpoint(inner, y, use_reentrant=False).exp()  # line: inner

    def step() -> None:
        y = checkpoint(block, given, use_reentrant=False)  # line: outer
        y.backward(torch.ones(4, 4))

    found = {(each.op, each.line) for each in again(step, "sin", "linear", "tanh")}
    assert found == {("sin", "block"), ("linear", "inner"), ("tanh", "inner")}


def test_a_module_that_is_called_twice_in_a_call_of_its_own_is_attributed_to_neither() -> None:
    class Twice(nn.Module):
        def forward(self, x: Any, depth: int = 1) -> Any:
            if depth:
                return self(x, depth - 1).sin()  # line: outside
            return checkpoint(torch.nn.Sequential.forward, layers, x, use_reentrant=False)

    layers, given = nn.Sequential(nn.Tanh(), nn.Sigmoid()), torch.rand(4, 4, requires_grad=True)
    model = Twice()

    def step() -> None:
        y = checkpoint(model, given, use_reentrant=False)  # line: checkpoint
        y.backward(torch.ones(4, 4))

    lines = {each.line for each in again(step, "tanh", "sigmoid")}
    assert "outside" not in lines


def test_a_function_of_torch_s_that_is_run_again_is_no_line_s() -> None:
    given = torch.rand(4, 4, requires_grad=True)

    def step() -> None:
        y = checkpoint(torch.sin, given, use_reentrant=False)  # line: checkpoint
        y.backward(torch.ones(4, 4))

    assert briefly(step, "sin") == [
        ("sin", "forward", "checkpoint"),
        ("sin", "recompute", "gap no_line_ran"),
    ]
