"""``torch.func``, and a model that runs eagerly and compiled."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

import profiler_ext
from tests.compiling import fresh_torch, torch
from tests.watched import needs_lines
from verification.eager_lines.seeing import briefly, launches

__all__ = ["fresh_torch"]
pytestmark = needs_lines
GIVEN = torch.rand(4, 4)


def test_a_gradient_of_torch_func_has_the_lines_of_the_function() -> None:
    def loss(x: Any) -> Any:
        return x.sin().sum()  # line: loss

    def step() -> None:
        torch.func.grad(loss)(GIVEN)  # line: grad

    assert briefly(step, "sin", "cos", "sum") == [
        ("sin", "forward", "loss"),
        ("sum", "forward", "loss"),
        ("cos", "backward", "loss"),
    ]


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_what_vmap_and_jvp_run_has_the_lines_of_the_function() -> None:
    def function(x: Any) -> Any:
        return x.sin()  # line: function

    def step() -> None:
        torch.func.vmap(function)(GIVEN)
        torch.func.jvp(function, (GIVEN,), (GIVEN,))

    assert briefly(step, "sin") == [("sin", "other", "function")] * 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)

    def forward(self, x: Any) -> Any:
        y = self.up(x).sin()  # line: up
        return self.down(y) * x  # line: down


def rows(model: Any, call: Any) -> set[tuple[str, str | None, str]]:
    """Lines, modules and phases of a step."""
    given = torch.rand(8, 8)

    def step() -> None:
        call(given).backward(torch.ones(8, 8))

    for _ in range(2):
        step()
    for parameter in model.parameters():
        parameter.grad = None
    with profiler_ext.profile(strict=True) as profile:
        step()
        profile.step()
    found = launches(profile.session.analysis)
    return {
        (each.line, each.module, each.phase)
        for each in found
        if each.line in ("up", "down") and each.phase in ("forward", "backward")
    }


@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0:RuntimeWarning")
@pytest.mark.usefixtures("fresh_torch")
def test_eager_and_compiled_lead_to_the_same_lines_modules_and_phases() -> None:
    profiler_ext.enable(strict=True, cpu_events=True)  # also where a GPU is
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block())
    eager = rows(model, model)
    compiled = rows(model, torch.compile(model))
    assert eager == compiled
    assert ("up", "1.up", "backward") in eager
