"""A module's path is the one that its model holds it under, however the program reached it."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import profiler_ext
from profiler_ext.capture.traces.module_paths import held_paths
from tests.compiling import capture

Values = Callable[[torch.Tensor], torch.Tensor]
outside = nn.Linear(8, 8)
teacher = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8)))


class Block(nn.Module):
    """As minGPT's: its feed-forward is a function that has its layers from a closure."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.ModuleDict({"up": nn.Linear(8, 8), "down": nn.Linear(8, 8)})
        up, down = self.mlp.values()
        self.feed: Values = lambda x: down(up(x))
        self.hidden = [nn.Linear(8, 8)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.hidden[0](self.feed(x)) + outside(x)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.shared = self.blocks[1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shared(self.blocks[0](teacher(x)))


def _paths(model: object, *inputs: object) -> set[tuple[str, ...]]:
    """Return the modules of each product of a training step, its backward's too."""
    profiler_ext.enable(cpu_events=False)
    torch.compile(model)(*inputs).sum().backward()
    graphs = capture().graphs
    assert [graph.is_backward for graph in graphs] == [False, True]
    nodes = (node for graph in graphs for node in graph.nodes if "mm" in node.target)
    return {tuple(each.path for each in node.lineage.modules) for node in nodes}


def test_a_module_has_the_path_that_the_model_holds_it_under_and_one_that_it_does_not_its_callers(
    fresh_torch: Path,
) -> None:
    assert _paths(Model(), torch.rand(4, 8, requires_grad=True)) == {
        ("",),  # what `teacher` holds is of the model, which called it
        ("blocks.0",),  # `outside`
        ("blocks.0", "blocks.0.mlp.up"),
        ("blocks.0", "blocks.0.mlp.down"),
        ("blocks.0", "blocks.0.hidden.0"),  # in a plain list: it has a name there
        ("shared",),
        ("shared", "blocks.1.mlp.up"),
        ("shared", "blocks.1.mlp.down"),
        ("shared", "shared.hidden.0"),
    }


def test_a_function_may_call_several_models_each_with_paths_of_its_own(fresh_torch: Path) -> None:
    student = nn.Sequential(nn.Linear(8, 8))

    def loss(x: torch.Tensor) -> torch.Tensor:
        return student(x) - teacher(x)

    x = torch.rand(4, 8, requires_grad=True)
    teacher_, student_ = "G['teacher']", "L['student']"
    assert _paths(loss, x) == {
        (student_, f"{student_}.0"),
        (teacher_, f"{teacher_}.0"),
        (teacher_, f"{teacher_}.1", f"{teacher_}.1.0"),
    }


def test_what_torch_does_not_number_keeps_its_path() -> None:
    model = nn.Sequential(nn.Linear(1, 1))
    inner, given = model[0], ((None, "L['self']"), (None, "L['fn'].__self__"))
    assert held_paths([given], {"L['self']": model}) == {}
    given = ((id(model), "L['self']"), (id(inner), "L['fn'].__self__"))
    assert held_paths([given], {"L['self']": model}) == {"L['fn'].__self__": "L['self'].0"}
    assert held_paths([given], {}) == {}
