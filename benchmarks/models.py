"""The GPT that benchmarks train, and how they lay models out."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn
from torch.nn import functional

Model = TypeVar("Model", bound=nn.Module)


class Block(nn.Module):
    """A block of a GPT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the next block gets."""
        batch, time_, width = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, time_, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, time_, width))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class GPT(nn.Module):
    """A GPT as they are commonly written."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(50304, width)
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.head = nn.Linear(width, 50304, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def channels_last(model: Model) -> Model:
    """Lay the channels of a model's images last, and return it."""
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
