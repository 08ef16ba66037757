"""A compiled graph that knows no line or no module of a node has those of its call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import profiler_ext
from tests.compiling import fresh_torch
from tests.watched import needs_lines
from verification.eager_lines.seeing import Seen, seen

__all__ = ["fresh_torch"]

pytestmark = [
    needs_lines,
    pytest.mark.usefixtures("fresh_torch"),
    pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),  # torch's own
]


def products(model: Any) -> set[tuple[str, str, str | None, str]]:
    """Record a step of a compiled model; return phase, line, module and evidence of products."""
    profiler_ext.enable()
    compiled: Any = torch.compile(model)
    given = torch.ones(4, 8)

    def step() -> None:
        out = compiled(given)  # line: call
        out.backward(torch.ones_like(out))  # line: backward

    found: list[Seen] = seen(step, "aten.mm.default")
    return {(each.phase, each.line, each.module, each.evidence) for each in found}


def test_stock_layers_stand_at_the_line_that_calls_them_forward_and_backward() -> None:
    layers = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    assert products(layers) == {
        (phase, "call", layer, "call_of_graph")
        for phase in ("forward", "backward")
        for layer in ("0", "1")
    }


class Weight(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.linear:
            given, weight = args[0], args[1].as_subclass(torch.Tensor)
            return given @ weight.T  # line: within
        return super().__torch_function__(func, types, args, kwargs or {})


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 8))

    def forward(self, x: Any) -> Any:
        torch._dynamo.graph_break()
        return functional.linear(x, self.weight.as_subclass(Weight)).as_subclass(torch.Tensor)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Layer(), Layer()

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x))


def test_a_graph_within_torch_function_has_the_module_whose_call_is_under_way() -> None:
    assert {(phase, line, module) for phase, line, module, _ in products(Layers())} == {
        (phase, "within", module)
        for phase in ("forward", "backward")
        for module in ("first", "second")
    }
