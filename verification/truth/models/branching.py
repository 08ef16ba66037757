"""Models of higher-order ops: branches, loops, regions, checkpoints in checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch._higher_order_ops
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from verification.truth.models.making import Made, leaf

Function = Callable[[torch.Tensor], torch.Tensor]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 10), nn.Linear(10, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.up(self.norm(x))
        h = F.gelu(h) * h.sigmoid()
        return x + self.down(h)


class Region(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Block()

    @torch.compiler.nested_compile_region
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).tanh()


class Blocks(nn.Module):
    def __init__(self, kind: type[nn.Module] = Block) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(kind() for _ in range(3))


class Branches(Blocks):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = self._either(block, x)
        return x

    def _either(self, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        def wave(y: torch.Tensor) -> torch.Tensor:
            return y.sin() * y

        return torch.cond(x.mean() > 0, lambda y: block(y), wave, (x,))


class Regions(Blocks):
    def __init__(self, kind: type[nn.Module] = Region) -> None:
        super().__init__(kind)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def waved(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return y.exp()


def also_waved(x: torch.Tensor) -> torch.Tensor:
    return x.sin().exp()


@torch.compiler.nested_compile_region
def around(function: Function, x: torch.Tensor) -> torch.Tensor:
    return function(x.tanh())


class RegionsOfFunctions(Blocks):
    """Regions that are passed functions, and regions in checkpoints."""

    def __init__(self) -> None:
        super().__init__(Region)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for function in (waved, also_waved, waved):
            x = around(function, x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


class Inner(nn.Module):
    """A region with a value that is used several times."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(6, 6))

    @torch.compiler.nested_compile_region
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        z = y.exp()
        return (y @ self.scale) * z + y


class Outer(nn.Module):
    """A region with two calls of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Inner(), Inner()

    @torch.compiler.nested_compile_region
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.tanh()
        u = self.first(h)
        v = self.second(u)
        return h * v + u.cos()


class Within(Blocks):
    """Checkpoints in a checkpoint."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = checkpoint(self._two, x, use_reentrant=False)
        return checkpoint(self.blocks[2], x, use_reentrant=False).sin()

    def _two(self, x: torch.Tensor) -> torch.Tensor:
        y = checkpoint(self.blocks[0], x, use_reentrant=False)
        z = y.tanh()
        return checkpoint(self.blocks[1], z * y, use_reentrant=False)


class Loop(Blocks):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def goes_on(count: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
            return count < 3

        def body(count: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            wave = self.blocks[0](y)
            return count + 1, wave.tanh() * y

        loop: Any = torch._higher_order_ops.while_loop
        with torch.no_grad():
            _, y = loop(goes_on, body, (torch.tensor(0), x.detach()))
        return self.blocks[1](x) * y


def branches() -> Made:
    return Branches(), (leaf(4, 6),)


def regions() -> Made:
    return Regions(), (leaf(4, 6),)


def regions_of_functions() -> Made:
    return RegionsOfFunctions(), (leaf(4, 6),)


def regions_within() -> Made:
    return Regions(Outer), (leaf(4, 6),)


def checkpoints_within() -> Made:
    return Within(), (leaf(4, 6),)


def loop() -> Made:
    return Loop(), (leaf(4, 6),)


MODELS = (branches, regions, regions_of_functions, regions_within, checkpoints_within, loop)
