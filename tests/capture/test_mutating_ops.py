"""The backward of ops that mutate, and sums beside them, stand where the forward does."""

from collections.abc import Iterable
from pathlib import Path

import torch
import torch._dynamo

import profiler_ext
from profiler_ext.attribution.places import with_modules_of_gradient_sums
from profiler_ext.records.provenance import FxNode, GraphInstance
from tests.compiling import capture
from verification.oracle.stubs import stubbed
from verification.truth.running import differentiable, differentiate


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(6))
        self.swish = torch.nn.Hardswish(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x)
        y.mul_(self.scale)
        y[:, 1:3].cos_()
        return self.swish(y)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(), Layer()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def used_twice(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    y = torch.sin(x)
    a = y * scale
    b = y * scale + a
    y = torch.cos(b)
    y[:, 1:3].cos_()
    whole = y[..., :6]
    one = whole * 2
    return torch.tanh(whole) + one


def strided(x: torch.Tensor) -> torch.Tensor:
    y = torch.sin(x)
    y.fill_diagonal_(0.5)
    return torch.cos(y) + y.clamp(min=-1)


def graphs(model: object, *inputs: torch.Tensor) -> tuple[GraphInstance, GraphInstance]:
    """Return the forward and the backward graph of a training step; no C++ is compiled."""
    with stubbed("cpu"):
        profiler_ext.enable(cpu_events=False)
        differentiate(differentiable(torch.compile(model)(*inputs)))
        forward, backward = sorted(capture().graphs, key=lambda graph: graph.is_backward)
    assert (capture().gaps, forward.gaps, backward.gaps) == ((), (), ())
    return forward, backward


def modules(nodes: Iterable[FxNode]) -> set[tuple[str, str]]:
    return {(_code(node), node.lineage.modules[-1].path) for node in nodes}


def _code(node: FxNode) -> str:
    """Return the user's line of a node."""
    own = [frame for frame in node.lineage.stack if frame.file == __file__]
    return own[-1].code or ""


def test_the_backward_of_an_op_that_mutates_has_the_module_of_its_own_layer(
    fresh_torch: Path,
) -> None:
    _, backward = graphs(Model(), torch.rand(4, 6, requires_grad=True))
    each = {
        (line, f"layers.{at}{module}")
        for at in (0, 1)
        for line, module in (
            ("y = torch.sin(x)", ""),
            ("y.mul_(self.scale)", ""),
            ("y[:, 1:3].cos_()", ""),
            ("return self.swish(y)", ".swish"),
        )
    }
    assert modules(backward.nodes) == each


def test_the_backward_of_an_op_that_mutates_leads_to_the_op_in_its_own_layer(
    fresh_torch: Path,
) -> None:
    _, backward = graphs(Model(), torch.rand(4, 6, requires_grad=True))
    links = {
        (node.lineage.modules[-1].path, node.lineage.forward_node, node.lineage.forward_evidence)
        for node in backward.nodes
        if node.lineage.forward_node and not node.lineage.is_gradient_acc
    }
    mutating = {link for link in links if link[2] != "seq_nr"}
    assert mutating == {
        ("layers.0", "mul", "autograd_node"),
        ("layers.0", "slice_scatter", "autograd_node"),
        ("layers.0.swish", "div", "autograd_node"),
        ("layers.1", "mul_2", "autograd_node"),
        ("layers.1", "slice_scatter_1", "autograd_node"),
        ("layers.1.swish", "div_1", "autograd_node"),
    }


def test_sums_of_gradients_stand_where_the_value_was_made_though_others_are_summed_next_to_it(
    fresh_torch: Path,
) -> None:
    inputs = (torch.rand(4, 6, requires_grad=True), torch.rand(6, requires_grad=True))
    _, backward = graphs(used_twice, *inputs)
    sums = {
        (_code(node), node.lineage.mechanism)
        for node in with_modules_of_gradient_sums(backward.nodes)
        if node.lineage.is_gradient_acc
    }
    assert sums == {
        ("y = torch.sin(x)", "sum_of_gradients"),  # beside that of a parameter
        ("a = y * scale", "own_stack"),  # of the parameter, which no op made: its first use
        ("y[:, 1:3].cos_()", "sum_of_gradients"),  # past a look at all of it, which is no op
    }


def blended(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a = torch.sin(x)
    b = torch.cos(y)
    between = a + (b - a) * 0.3
    c = torch.exp(between)
    return c, between - c


def test_a_sum_of_gradients_stands_at_its_own_value_though_the_first_gradient_is_handed_on_as_it_is(
    fresh_torch: Path,
) -> None:
    forward, backward = graphs(blended, *(torch.rand(6, requires_grad=True) for _ in "xy"))
    made = {node.lineage.joint_name: _code(node) for node in forward.nodes}
    sums = [node for node in backward.nodes if node.lineage.is_gradient_acc]
    assert [made[node.lineage.forward_node or ""] for node in sums] == [
        "c = torch.exp(between)",  # an output, which is handed a gradient
        "between = a + (b - a) * 0.3",
        "a = torch.sin(x)",  # not `b`, though it is as large: the sum hands it on without an op
    ]


class Normed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.GroupNorm(1, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return torch.sin(y) - y


def test_a_sum_of_gradients_stands_at_an_op_whose_decomposition_ends_with_more_than_its_value(
    fresh_torch: Path,
) -> None:
    forward, backward = graphs(Normed(), torch.rand(2, 4, 6, requires_grad=True))
    [summed] = [node for node in backward.nodes if node.lineage.is_gradient_acc]
    assert (_code(summed), modules([summed])) == ("y = self.norm(x)", {(_code(summed), "norm")})
    [value] = [node for node in forward.nodes if node.name == summed.lineage.forward_node]
    assert value.outputs[0].size == (2, 4, 6)


def test_what_is_written_through_strides_into_memory_that_was_there_is_of_the_op_that_mutates(
    fresh_torch: Path,
) -> None:
    both = graphs(strided, torch.rand(4, 6, requires_grad=True))
    copies = [[n for n in graph.nodes if n.target.startswith("aten.copy_.")] for graph in both]
    assert [list(map(_code, each)) for each in copies] == [["y.fill_diagonal_(0.5)"]] * 2
    assert [node.name for graph in both for node in graph.nodes if not node.lineage.stack] == []
