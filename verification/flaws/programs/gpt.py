"""A GPT of GPT-2's small size, whose blocks the flaws change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = ["GPT", "Block", "Config", "batch_of", "loss_of", "made", "trained"]


@dataclass(frozen=True)
class Config:
    """Sizes of a GPT and of its batch."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    mlp_width: int = 3072
    vocabulary: int = 50304
    context: int = 1024
    batch: int = 16


TINY = Config(layers=2, width=48, heads=4, mlp_width=96, vocabulary=128, context=32, batch=2)


class Block(nn.Module):
    """Attention and MLP, each behind a norm and added to the residual stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm_1 = nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.norm_2 = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, config.mlp_width, bias=False)
        self.down = nn.Linear(config.mlp_width, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x))  # flaw: checkpoint_everything
        return x + self.mlp(self.norm_2(x))  # flaw: checkpoint_everything

    def attention(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)  # flaw: casts_each_microstep, checkpoint_everything
        q, k, v = (self.split(each) for each in (q, k, v))
        y = self.attend(q, k, v).transpose(1, 2).flatten(2)
        return self.out(y)  # flaw: casts_each_microstep, checkpoint_everything

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        # flaw in the next line: head_dim_alignment, wide_heads, checkpoint_everything
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def mlp(self, x: Tensor) -> Tensor:
        # flaw in the next line: odd_mlp_width, casts_each_microstep, checkpoint_everything
        return self.down(F.gelu(self.up(x)))


class GPT(nn.Module):
    """A decoder with learned positions."""

    def __init__(self, config: Config, block: Callable[[Config], nn.Module] = Block) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Parameter(torch.randn(config.context, config.width) * 0.02)
        self.blocks = nn.ModuleList(block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # flaw: vocabulary_size, casts_each_microstep


def made(
    sizes: Sizes, block: Callable[[Config], nn.Module] = Block, /, **changes: Any
) -> tuple[GPT, Tensor, Tensor]:
    """A GPT with blocks of this kind, its tokens and its targets; tiny ones keep odd ends."""
    config = replace(TINY if sizes.is_tiny else Config(), **changes)
    model = seeded(lambda: GPT(config, block), sizes)
    return model, *batch_of(config, sizes)


def batch_of(config: Config, sizes: Sizes) -> tuple[Tensor, Tensor]:
    """Tokens and targets."""
    text = seeded(
        lambda: torch.randint(0, min(config.vocabulary, 50257), (config.batch, config.context + 1)),
        sizes,
    )
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def loss_of(model: Callable[[Tensor], Tensor], tokens: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of the next token."""
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def trained(
    sizes: Sizes,
    block: Callable[[Config], nn.Module] = Block,
    /,
    *,
    is_mixed: bool = True,
    **changes: Any,
) -> Step:
    """The usual training step of a GPT with blocks of this kind."""
    model, tokens, targets = made(sizes, block, **changes)
    optimizer = fused_adamw(model)
    return Step(
        training(lambda: loss_of(model, tokens, targets), optimizer, sizes, is_mixed=is_mixed)
    )
