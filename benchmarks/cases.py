"""What the trial of findings is made of: a step with a flaw and one without, and their GPT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from benchmarks.models import Block
from benchmarks.steps import Step


@dataclass(frozen=True)
class Sizes:
    """How large the cases are, and where they run."""

    device: str
    layers: int
    width: int
    tokens: int
    is_tiny: bool


LARGE = Sizes("cuda", 12, 768, 512, is_tiny=False)
TINY = Sizes("cpu", 4, 32, 8, is_tiny=True)


@dataclass(frozen=True)
class Pair:
    """A step with the flaw, and one without it."""

    flawed: Step
    remedied: Step


@dataclass(frozen=True)
class Case:
    """A case: the rule that should find its flaw, what it is, and what makes its steps."""

    rule: str
    words: str
    make: Callable[[Sizes], Pair]


def fp32_and_tf32(step: Step) -> Pair:
    """Return a step in float32 as it is, and the same with TF32."""

    def at(precision: str) -> Step:
        def run() -> None:
            torch.set_float32_matmul_precision(precision)
            step()

        return run

    return Pair(at("highest"), at("high"))


def heads(sizes: Sizes) -> int:
    """Return how many heads a block has."""
    return max(sizes.width // 64, 1)


class GPT(nn.Module):
    """A GPT without its head: what matters here are its layers."""

    def __init__(self, sizes: Sizes, *, checkpointed: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(sizes.width, heads(sizes)) for _ in range(sizes.layers))
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return x.float().square().mean()


def inputs(sizes: Sizes, batch: int, dtype: torch.dtype) -> torch.Tensor:
    """Return what the first block gets."""
    return torch.randn(batch, sizes.tokens, sizes.width, device=sizes.device, dtype=dtype)


def training(
    model: nn.Module, *given: Any, forward: Callable[..., torch.Tensor] | None = None
) -> Step:
    """Return a step that runs forward, backward and a fused AdamW."""
    fused = next(model.parameters()).is_cuda
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=fused, capturable=fused)
    run = model if forward is None else forward

    def step() -> None:
        run(*given).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def gpt(sizes: Sizes, batch: int, dtype: torch.dtype, **words: Any) -> tuple[GPT, torch.Tensor]:
    """Return a GPT on the device, and what it gets."""
    model = GPT(sizes, **words).to(sizes.device, dtype)
    return model, inputs(sizes, batch, dtype)
