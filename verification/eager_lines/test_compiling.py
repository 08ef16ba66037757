"""Lines are watched while torch compiles: graphs, guards, numbers and memory are as without."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import profiler_ext
from tests.compiling import fresh_torch
from tests.watched import needs_lines

__all__ = ["fresh_torch"]

pytestmark = [
    needs_lines,
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),  # torch's own
    pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0:RuntimeWarning"),
]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        hidden = self.up(x).relu()
        if x.shape[0] > 3:
            hidden = hidden * 2
        torch._dynamo.graph_break()
        return self.down(hidden) + x


class Graphs:
    """A backend that keeps what it is given, and runs it as it is."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def __call__(self, graph: Any, _: Any) -> Any:
        self.kept.append(graph.print_readable(print_output=False))
        return graph


def trained(lines: bool, is_warm: bool) -> tuple[list[str], list[float], dict[str, int], float]:
    """Return the graphs of some recorded steps, their losses, Dynamo's counts, the parameters."""
    profiler_ext.enable()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    backend = Graphs()
    model = nn.Sequential(Block(), Block())
    compiled: Any = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses: list[float] = []

    def step(batch: int) -> None:
        loss = compiled(torch.ones(batch, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())

    if is_warm:
        step(4)
    with profiler_ext.profile(lines=lines) as profile:
        for batch in (4, 4, 8, 2, 4):
            step(batch)
            profile.step()
    step(4)
    assert (profile.session.recording.python is not None) is lines
    counts = dict(torch._dynamo.utils.counters["stats"])
    return backend.kept, losses, counts, sum(float(p.detach().sum()) for p in model.parameters())


@pytest.mark.usefixtures("fresh_torch")
@pytest.mark.parametrize("is_warm", [False, True])
def test_a_compile_amid_recorded_steps_is_the_same_and_none_is_added(is_warm: bool) -> None:
    without, watched = trained(False, is_warm), trained(True, is_warm)
    assert len(without[0]) > 4
    assert watched == without


def test_what_a_recorded_step_made_is_gone_when_the_step_is() -> None:
    model = Block()
    kept: list[weakref.ref[Any]] = []

    def step() -> None:
        x = torch.ones(2, 8)
        kept.append(weakref.ref(x))
        model(x).sum().backward()
        assert kept[0]() is x

    gc.collect()
    gc.disable()
    try:
        with profiler_ext.profile() as profile:
            step()
            assert kept[0]() is None
            profile.step()
    finally:
        gc.enable()
