"""A layer whose frame is compiled by itself keeps its own path, in forward and in backward."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
import torch
from torch import nn

import profiler_ext
from profiler_ext.torch_compat.calling import (
    Caller,
    KnownCalls,
    caller,
    forget_known_calls,
    module_of,
)
from tests.compiling import capture


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


class Paused(nn.Module):
    """What follows its graph break is a function of torch's, with a value of the stack first."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = Layer(), Layer()

    def forward(me, x: torch.Tensor) -> torch.Tensor:
        return me.before(x) + me.twice(x) @ me.after.weight

    @torch._dynamo.disable
    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Uncompiled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Paused() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            torch._dynamo.graph_break()
        return x.sum()


# Dynamo's own, when it traces on from a value that is no leaf.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_what_resumes_after_a_graph_break_has_the_module_of_its_method(fresh_torch: Path) -> None:
    profiler_ext.enable()
    compiled = torch.compile(Uncompiled())
    x = torch.ones(4, 8, requires_grad=True)
    compiled(x).backward()
    with profiler_ext.profile() as prof:
        compiled(x).backward()
        prof.step()
    parts = prof.attribution().merge(prof.launches()[["launch", "kernel"]], on="launch")
    products = parts[parts.kernel.isin(["extern_kernels.mm", "extern_kernels.addmm"])]
    found = products.groupby("phase").module.agg(lambda rows: list(dict.fromkeys(rows))).to_dict()
    assert found == {
        "forward": ["layers.0.before", "layers.0", "layers.1.before", "layers.1"],
        "backward": ["layers.1", "layers.1.before", "layers.0", "layers.0.before"],
    }


def calling_module() -> nn.Module | None:
    return module_of(sys._getframe(1))


def test_a_module_typed_into_a_shell_is_found_and_a_function_around_it_has_none() -> None:
    typed = """
def hidden(method):
    return lambda *args: method(*args)
class Typed(Module):
    def forward(me):
        return calling_module()
    @hidden
    def decorated(self):
        return calling_module()
def around(self_made):
    return calling_module()
def patched(me):
    return calling_module()
"""
    names: dict[str, Any] = {"Module": nn.Module, "calling_module": calling_module}
    exec(compile(typed, "<stdin>", "exec"), names)
    module = names["Typed"]()
    assert module() is module
    assert module.decorated() is module
    assert names["around"](module) is None
    module.forward = MethodType(names["patched"], module)
    assert module() is module


ARTIFACT = nn.Module()
"""Stands for a compiled graph."""
ASKING = """
def within(known, keep):
    return ask(known, keep)
def ask(known, keep):
    return known.name(ARTIFACT) or keep(caller())
"""


def test_a_call_is_known_again_where_the_same_frame_calls_on_the_same_module() -> None:
    known, torchs = KnownCalls(), dict[str, Any](caller=caller, ARTIFACT=ARTIFACT)
    exec(compile(ASKING, "<eval_with_key>.0", "exec"), torchs)

    class Asking(nn.Module):
        asked = staticmethod(torchs["ask"])

        def forward(self, around: nn.Module | None = None) -> str | None:
            return self.asked(known, keep)  # type: ignore[no-any-return]

    def keep(call: Caller) -> None:
        assert call.frame is not None
        module = module_of(call.frame)
        assert module is not None
        known.keep(ARTIFACT, call, module, f"module {modules.index(module)}")

    modules = [Asking(), Asking()]
    first, second = modules
    assert [each() for each in (first, second, first, second)] == [
        None,
        None,
        "module 0",
        "module 1",
    ]
    second.asked = torchs["within"]  # one frame of torch's more
    assert [second(), second(), first(), first()] == [None, "module 1", None, "module 0"]
    modules[0] = Asking()  # where the first one was, perhaps
    del first
    assert [modules[0](), modules[0]()] == [None, "module 0"]


def test_a_frame_that_has_no_module_any_more_is_not_known_again() -> None:
    known, torchs = KnownCalls(), dict[str, Any](caller=caller, ARTIFACT=ARTIFACT)
    exec(compile(ASKING, "<eval_with_key>.0", "exec"), torchs)

    class Forgetting(nn.Module):
        def forward(self, forgets: bool) -> str | None:
            if forgets:
                del self
            return torchs["ask"](known, keep)  # type: ignore[no-any-return]

    def keep(call: Caller) -> None:
        assert call.frame is not None
        known.keep(ARTIFACT, call, module_of(call.frame), "kept")

    module = Forgetting()
    assert [module(forgets=each) for each in (False, False, True)] == [None, "kept", None]


def test_no_call_is_known_again_once_what_its_artifact_is_has_changed() -> None:
    known, torchs = KnownCalls(), dict[str, Any](caller=caller, ARTIFACT=ARTIFACT)
    exec(compile(ASKING, "<eval_with_key>.0", "exec"), torchs)

    class Asking(nn.Module):
        def forward(self) -> str | None:
            return torchs["ask"](known, keep)  # type: ignore[no-any-return]

    def keep(call: Caller) -> None:
        assert call.frame is not None
        known.keep(torchs["ARTIFACT"], call, module_of(call.frame), "kept")

    module = Asking()
    assert [module(), module()] == [None, "kept"]
    forget_known_calls()
    assert [module(), module()] == [None, "kept"]
    torchs["ARTIFACT"] = nn.Module()
    assert [module(), module()] == [None, "kept"]


def passing_all(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(function)
    def passed(*args: Any, **kwargs: Any) -> torch.Tensor:
        return function(*args, **kwargs)

    return passed


class Decorated(Layer):
    forward = passing_all(Layer.forward)  # type: ignore[assignment]


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_a_forward_whose_decorator_takes_all_arguments_is_its_modules(fresh_torch: Path) -> None:
    profiler_ext.enable()
    torch._dynamo.reset()
    model = nn.ModuleDict({"inner": nn.Sequential(Decorated(), Decorated()), "head": Decorated()})
    for layer in (*model["inner"], model["head"]):
        layer.compile()

    def step(x: torch.Tensor) -> None:
        model["head"](model["inner"](x)).sum().backward()

    x = torch.ones(8, 8)
    step(x)
    with profiler_ext.profile() as prof:
        for _ in range(2):
            step(x)
            prof.step()
    rows = prof.session.attribution()
    products = rows[rows.aten_op == "aten.mm.default"]
    assert set(products.module) == {"inner.0", "inner.1", "head"}
    assert set(products.phase) == {"forward", "backward"}


def test_a_model_whose_decorator_takes_all_arguments_is_the_root_of_its_modules(
    fresh_torch: Path,
) -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = nn.Sequential(Layer()), Layer()

        @passing_all
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.head(self.inner(x)))

    profiler_ext.enable()
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(Whole())(torch.ones(8, 8))
    [graph] = capture().graphs
    paths = [[each.path for each in node.lineage.modules] for node in graph.nodes]
    assert paths == [["inner", "inner.0"], ["head"], [""]]
