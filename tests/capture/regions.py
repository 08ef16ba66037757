"""Models that call repeated regions."""

import functools
from collections.abc import Callable

import torch
from torch.utils.checkpoint import checkpoint

Function = Callable[[torch.Tensor], torch.Tensor]

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
        functions = (product, same_product, same_product, product)
        self.acting = torch.nn.ModuleList(map(Acting, functions))
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


def product(x: torch.Tensor) -> torch.Tensor:
    return x @ x


def same_product(x: torch.Tensor) -> torch.Tensor:
    z = x @ x
    return z


def first_of(pair: tuple[Function, int], x: torch.Tensor) -> torch.Tensor:
    return pair[0](x)


@torch.compiler.nested_compile_region
def twice(function: Function, x: torch.Tensor) -> torch.Tensor:
    y = function(x)
    return function(y)


@torch.compiler.nested_compile_region
def within(function: Function, x: torch.Tensor) -> torch.Tensor:
    y = twice(function, x)
    return y @ y


@torch.compiler.nested_compile_region
def also_within(x: torch.Tensor) -> torch.Tensor:
    x = twice(product, x) + 1
    return twice(product, x)


class Acting(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.eye(8))

    @torch.compiler.nested_compile_region
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.function(x + self.weight)
        return y @ self.weight


def of_functions(net: Net, x: torch.Tensor) -> torch.Tensor:
    x = twice(product, x)
    x = twice(same_product, x)
    return twice(product, x)


def of_swapped_functions(net: Net, x: torch.Tensor) -> torch.Tensor:
    x = twice(same_product, x)
    x = twice(product, x)
    return twice(same_product, x)


def of_partial_functions(net: Net, x: torch.Tensor) -> torch.Tensor:
    x = twice(functools.partial(first_of, (product, 0)), x)
    x = twice(functools.partial(first_of, (same_product, 0)), x)
    return twice(lambda x: x @ x, x)


def held_functions(net: Net, x: torch.Tensor) -> torch.Tensor:
    for each in net.acting:
        x = each(x)
    return x


def regions_in_regions(net: Net, x: torch.Tensor) -> torch.Tensor:
    x = within(product, x)
    x = within(same_product, x)
    return also_within(x)


def checkpointed(net: Net, x: torch.Tensor) -> torch.Tensor:
    for block in net.blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return x


def never_used(net: Net, x: torch.Tensor) -> torch.Tensor:
    twice(product, x)
    return twice(same_product, x)
