"""A region that is traced once stands, at each call, where that call is and on its modules."""

import linecache
from collections.abc import Callable

import pytest
import torch

import profiler_ext
from profiler_ext.records import FxNode
from tests.compiling import capture

# Matrix products are library calls, which need no C++ compiler.


class Inner(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class Squared(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ x


class Other(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = x @ self.weight
        return z


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    @torch.compiler.nested_compile_region
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        return y @ y


@torch.compiler.nested_compile_region
def on_two(first: Inner, second: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = first(x)
    return second(y)


class Net(torch.nn.Module):
    def __init__(self, called: Callable[["Net", torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))
        self.other = Other()
        self.squares = torch.nn.ModuleList(Squared() for _ in range(2))
        self.called = called

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.called(self, x)


def all_blocks(net: Net, x: torch.Tensor) -> torch.Tensor:
    for block in net.blocks:
        x = block(x)
    return x


def crossed(net: Net, x: torch.Tensor) -> torch.Tensor:
    x = on_two(net.blocks[0].inner, net.blocks[1].inner, x)
    x = on_two(net.blocks[2].inner, net.blocks[1].inner, x)
    return on_two(net.blocks[1].inner, net.blocks[0].inner, x)


def without_parameters(net: Net, x: torch.Tensor) -> torch.Tensor:
    x = on_two(net.blocks[0].inner, net.squares[0], x)
    return on_two(net.blocks[1].inner, net.squares[1], x)


def of_another_class(net: Net, x: torch.Tensor) -> torch.Tensor:
    x = on_two(net.blocks[0].inner, net.squares[0], x)
    return on_two(net.other, net.squares[0], x)


INNER = "return x @ self.weight"


def places(called: Callable[[Net, torch.Tensor], torch.Tensor]) -> list[tuple[str, ...]]:
    """Return the innermost line of each product, and its modules, of the forward and in order."""
    forward, _ = trained(called)
    return [(line(node, -1), *(m.path for m in node.lineage.modules)) for node in forward]


def trained(called: Callable[[Net, torch.Tensor], torch.Tensor]) -> list[list[FxNode]]:
    profiler_ext.enable(strict=True)
    x = torch.ones(8, 8, requires_grad=True)
    torch.compile(Net(called), fullgraph=True)(x).sum().backward()
    return [[n for n in g.nodes if n.target == "aten.mm.default"] for g in capture().graphs]


def line(node: FxNode, at: int) -> str:
    frame = node.lineage.stack[at]
    return linecache.getline(frame.file, frame.line).strip()


@pytest.mark.usefixtures("fresh_torch")
def test_a_region_that_is_a_forward_runs_on_the_module_of_each_call() -> None:
    told = [
        place
        for block in ("blocks.0", "blocks.1", "blocks.2")
        for place in ((INNER, block, f"{block}.inner"), ("return y @ y", block))
    ]
    assert places(all_blocks) == told


@pytest.mark.usefixtures("fresh_torch")
def test_a_region_of_two_modules_runs_on_those_that_each_call_passes() -> None:
    told = [(INNER, f"blocks.{number}.inner") for number in (0, 1, 2, 1, 1, 0)]
    assert places(crossed) == told


@pytest.mark.usefixtures("fresh_torch")
def test_of_a_module_without_parameters_another_call_has_those_around_it() -> None:
    square = "return x @ x"
    first = [(INNER, "blocks.0.inner"), (square, "squares.0")]
    assert places(without_parameters) == [*first, (INNER, "blocks.1.inner"), (square, "")]


@pytest.mark.usefixtures("fresh_torch")
def test_of_a_module_of_another_class_torch_traced_no_line_and_the_call_stands() -> None:
    square, call = "return x @ x", "return on_two(net.other, net.squares[0], x)"
    first = [(INNER, "blocks.0.inner"), (square, "squares.0")]
    assert places(of_another_class) == [*first, (call, ""), (square, "")]


@pytest.mark.usefixtures("fresh_torch")
def test_a_region_stands_at_the_line_of_each_call_forward_and_backward() -> None:
    forward, backward = trained(crossed)
    lines = [
        "x = on_two(net.blocks[0].inner, net.blocks[1].inner, x)",
        "x = on_two(net.blocks[2].inner, net.blocks[1].inner, x)",
        "return on_two(net.blocks[1].inner, net.blocks[0].inner, x)",
    ]
    assert [line(node, -3) for node in forward] == [each for each in lines for _ in range(2)]
    by_name = {node.lineage.joint_name: node.lineage.stack for node in forward}
    linked = [by_name[node.lineage.forward_node or ""] for node in backward]
    assert linked == [node.lineage.stack for node in backward]
    assert len(linked) == 2 * len(forward)


@pytest.mark.usefixtures("fresh_torch")
def test_a_graph_that_only_calls_regions_is_captured() -> None:
    profiler_ext.enable(strict=True)
    torch.compile(Net(all_blocks), fullgraph=True)(torch.ones(8, 8, requires_grad=True))
    assert [graph.gaps for graph in capture().graphs] == [()]
