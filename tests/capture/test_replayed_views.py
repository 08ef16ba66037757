"""A view that functionalization makes anew stands where it was made, not at what reads it next."""

from __future__ import annotations

from pathlib import Path

import torch

import profiler_ext
from profiler_ext.capture.lineage.functionalization import find_replayed_views
from profiler_ext.capture.traces.creations import Creation, with_overwritten
from profiler_ext.records.lineage import Lineage
from tests.capture.fx_graphs import frame_text
from tests.compiling import capture
from verification.oracle.stubs import stubbed
from verification.truth.running import differentiable, differentiate

MUTATED = Creation("aten.add.Tensor", ("base",), {}, None, False, 1, 0, 0)


def view(op: str, of: str, module: str, replays: str | None = None) -> Creation:
    meta = {
        "stack_trace": frame_text("/src/model.py", 1, "forward", f"line of {module}"),
        "nn_module_stack": {"1": (module, "Module")},
    }
    return Creation(f"aten.{op}.default", (of,), meta, None, False, 1, 0, 0, replays=replays)


def _modules(places: dict[str, Lineage]) -> dict[str, str]:
    return {name: place.modules[0].path for name, place in places.items()}


def test_each_view_of_a_chain_that_is_made_again_stands_where_its_own_first_one_does() -> None:
    creations = {
        "alias": view("alias", "base", "first"),
        "view": view("view", "alias", "second"),
        "mutated": MUTATED,
        "alias_1": view("alias", "mutated", "reads", "view"),
        "view_1": view("view", "alias_1", "reads", "view"),
        "scattered": view("slice_scatter", "view_1", "reads", "view"),  # no view: it mutates
        "view_2": view("view", "scattered", "reads again", "view_1"),
        "view_3": view("view", "scattered", "reads again", "gone"),
    }
    assert _modules(dict(find_replayed_views(creations))) == {
        "alias_1": "first",
        "view_1": "second",
        "view_2": "second",
    }


def test_what_a_pass_wrote_on_the_first_view_is_not_taken_for_its_place() -> None:
    creations = {
        "view": view("view", "base", "of a no-op"),
        "view_1": view("view", "mutated", "reads", "view"),
    }
    was = {"view": view("view", "base", "its own").lineage}
    made = with_overwritten(creations, was)
    assert _modules(dict(find_replayed_views(made))) == {"view_1": "its own"}


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.reads = torch.nn.Tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        rows = y.view(-1, len(y))
        y.mul_(2)
        return self.reads(rows)


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(Layer(), Layer())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def test_such_a_view_is_of_the_module_that_made_it(fresh_torch: Path) -> None:
    with stubbed("cpu"):
        profiler_ext.enable(cpu_events=False)
        differentiate(differentiable(torch.compile(Layers())(torch.rand(4, 6, requires_grad=True))))
        [forward] = [graph for graph in capture().graphs if not graph.is_backward]
    views = [node.lineage for node in forward.nodes if node.target == "aten.reshape.default"]
    assert [(each.stack[-1].code, each.modules[-1].path) for each in views] == [
        ("rows = y.view(-1, len(y))", f"layers.{at}") for at in (0, 1)
    ]


class TurnedWaves(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        waves = torch.fft.rfft(x).exp()
        rows = waves.view(2, 2, 4, -1)
        turned = rows.transpose(1, 2)
        return torch.fft.irfft(turned)


def test_each_view_of_a_gradient_that_is_made_again_differentiates_the_view_that_it_turns_back(
    fresh_torch: Path,
) -> None:
    with stubbed("cpu"):
        profiler_ext.enable(cpu_events=False)
        x = torch.rand(2, 8, 6, requires_grad=True)
        differentiate(differentiable(torch.compile(TurnedWaves())(x)))
        graphs = capture().graphs
    lineages = [node.lineage for graph in graphs for node in graph.nodes]
    lines = {each.joint_name: each.stack[-1].code for each in lineages}
    linked = [
        (each.stack[-1].code, lines[each.forward_node])
        for each in lineages
        if each.original_aten == "aten.transpose.int" and each.forward_node is not None
    ]
    turned = "turned = rows.transpose(1, 2)"
    assert set(linked) == {(turned, turned)}
