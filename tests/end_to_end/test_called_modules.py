"""A layer whose frame is compiled by itself keeps its own path, in forward and in backward."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

import profiler_ext
from profiler_ext.torch_compat.process import calling_module


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class Broken(nn.Module):
    """Its own frame cannot be compiled, so each layer's frame is, and all share one graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            torch._dynamo.graph_break()
        return x.sum()


def test_layers_that_a_graph_break_leaves_alone_have_their_own_modules(fresh_torch: Path) -> None:
    profiler_ext.enable()
    model = Broken()
    compiled = torch.compile(model)
    x = torch.ones(4, 8, requires_grad=True)
    compiled(x).backward()
    with profiler_ext.profile() as prof:
        compiled(x).backward()
        prof.step()
    parts = prof.attribution()
    found = parts[parts.aten_op == "aten.mm.default"].groupby("phase").module.agg(list).to_dict()
    assert found == {
        "forward": ["layers.0", "layers.1", "layers.2"],
        "backward": [each for n in (2, 1, 0) for each in [f"layers.{n}"] * 2],
    }


def test_a_module_typed_into_a_shell_is_found_and_a_function_around_it_has_none() -> None:
    typed = """
class Typed(Module):
    def forward(self):
        return calling_module()
def around(self_made):
    return calling_module()
"""
    names: dict[str, Any] = {"Module": nn.Module, "calling_module": calling_module}
    exec(compile(typed, "<stdin>", "exec"), names)
    module = names["Typed"]()
    assert module() is module
    assert names["around"](module) is None
