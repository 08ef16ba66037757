"""Two functions with equal graphs, which share cache entries, and compiling without C++."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import profiler_ext
from profiler_ext.profiling import switch
from profiler_ext.records.provenance import GraphInstance
from tests.compiling import torch


class First(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sin()  # first: forward

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient * x.cos()  # first: backward


class Second(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sin()  # second: forward

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient * x.cos()  # second: backward


def first(x: torch.Tensor) -> torch.Tensor:
    y = First.apply(x @ x)  # first: call
    y = First.apply(y)  # first: call again
    z = y.exp()  # first: z
    return (z * z + z + y).sum()  # first: sum


def second(x: torch.Tensor) -> torch.Tensor:
    y = Second.apply(x @ x)  # second: call
    y = Second.apply(y)  # second: call again
    z = y.exp()  # second: z
    return (z * z + z + y).sum()  # second: sum


@pytest.fixture
def no_kernels(fresh_torch: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A fresh torch whose C++ kernels do nothing, so that no C++ is compiled."""
    from torch._inductor import async_compile, config

    monkeypatch.setattr(
        async_compile.AsyncCompile, "cpp_pybinding", lambda *_: lambda *arguments: None
    )
    with config.patch({"cpp.vec_isa_ok": True, "compile_threads": 1}):
        yield


def train(function: Any, **options: Any) -> tuple[GraphInstance, ...]:
    """Compile a function anew, run it forward and backward, and return its graph instances."""
    torch._dynamo.reset()
    profiler_ext.disable()
    profiler_ext.enable(strict=True, cpu_events=False)
    x = torch.ones(8, 8, requires_grad=True)
    torch.compile(function, **options)(x).backward()
    return graphs()


def graphs() -> tuple[GraphInstance, ...]:
    """Return the graph instances of the capture in force."""
    capture = switch.current()
    assert capture is not None
    return capture.graphs


def lines(instances: tuple[GraphInstance, ...]) -> list[list[tuple[str, str]]]:
    """Return each node's name and the remark on its innermost line, for each graph."""
    return [
        [
            (n.name, (n.lineage.stack[-1].code or "").partition("# ")[2])
            for n in graph.nodes
            if n.lineage.stack
        ]
        for graph in instances
    ]
