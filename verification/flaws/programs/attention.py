"""Flaws of attention."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import Block, Config
from .program import Sizes, Step, fused_adamw, seeded, training
from .vision import ViT, images_of, labels_of

__all__ = [
    "additive_mask",
    "boolean_mask",
    "contiguous_copies",
    "fp32_attention",
    "head_loop",
    "naive_attention",
    "need_weights",
    "position_bias_indexing",
    "wide_heads",
]


class Masked(Block):
    """A block with a causal mask in a buffer."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        mask = torch.ones(config.context, config.context, dtype=torch.bool).tril()
        self.register_buffer("mask", mask)


class BooleanMask(Masked):
    """The mask is given as it is."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)  # flaw: boolean_mask


def boolean_mask(flawed: bool, sizes: Sizes) -> Step:
    return gpt.trained(sizes, BooleanMask if flawed else Block)


class AdditiveMask(Masked):
    """The mask is added to the scores."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        bias = torch.zeros(1, 1, config.context, config.context).masked_fill(~self.mask, -math.inf)
        self.register_buffer("bias", bias)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        bias = self.bias.to(q.dtype).expand(*q.shape[:2], -1, -1)  # flaw: additive_mask
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)  # flaw: additive_mask


def additive_mask(flawed: bool, sizes: Sizes) -> Step:
    return gpt.trained(sizes, AdditiveMask if flawed else Block)


class Float32(Block):
    """Attention is kept out of autocast."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with torch.autocast(q.device.type, enabled=False):
            q, k, v = q.float(), k.float(), v.float()  # flaw: fp32_attention
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # flaw: fp32_attention
        return y


def fp32_attention(flawed: bool, sizes: Sizes) -> Step:
    return gpt.trained(sizes, Float32 if flawed else Block)


class Naive(Masked):
    """Attention as it is written in the paper."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # flaw: naive_attention
        scores = scores.masked_fill(~self.mask, -math.inf)  # flaw: naive_attention
        weights = scores.softmax(-1)  # flaw: naive_attention
        return weights @ v  # flaw: naive_attention


def naive_attention(flawed: bool, sizes: Sizes) -> Step:
    return gpt.trained(sizes, Naive if flawed else Block)


def wide_heads(flawed: bool, sizes: Sizes) -> Step:
    return gpt.trained(sizes, heads=2 if flawed else 6)


def need_weights(flawed: bool, sizes: Sizes) -> Step:
    layers, width, heads = sizes.of((12, 768, 12), (2, 48, 4))
    model = seeded(lambda: ViT(layers, width, heads, need_weights=flawed), sizes)
    images = images_of(sizes, 128)
    labels, optimizer = labels_of(images), fused_adamw(model)
    return Step(training(lambda: F.cross_entropy(model(images), labels), optimizer, sizes))


class Head(nn.Module):
    """One head with products of its own."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        channels = config.width // config.heads
        self.query = nn.Linear(config.width, channels, bias=False)
        self.key = nn.Linear(config.width, channels, bias=False)
        self.value = nn.Linear(config.width, channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.query(x), self.key(x), self.value(x)  # flaw: head_loop
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)  # flaw: head_loop


class Heads(Block):
    """Each head is a module of its own."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        del self.qkv
        self.each = nn.ModuleList(Head(config) for _ in range(config.heads))

    def attention(self, x: Tensor) -> Tensor:
        return self.out(torch.cat([head(x) for head in self.each], -1))  # flaw: head_loop


def head_loop(flawed: bool, sizes: Sizes) -> Step:
    changes = sizes.of({"layers": 4, "batch": 4}, {})
    return gpt.trained(sizes, Heads if flawed else Block, **changes)


class Copied(Block):
    """What is split into heads is copied."""

    def split(self, x: Tensor) -> Tensor:
        x = x.unflatten(-1, (self.heads, -1))
        return x.transpose(1, 2).contiguous()  # flaw: contiguous_copies


def contiguous_copies(flawed: bool, sizes: Sizes) -> Step:
    return gpt.trained(sizes, Copied if flawed else Block)


class WindowBlock(nn.Module):
    """Swin's attention within windows, with a bias for each relative position."""

    def __init__(self, side: int, width: int, heads: int, indexes: bool) -> None:
        super().__init__()
        self.heads, self.indexes = heads, indexes
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn((2 * side - 1) ** 2, heads) * 0.02)
        rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
        rows, columns = rows.flatten(), columns.flatten()
        distance = (rows[:, None] - rows + side - 1) * (2 * side - 1)
        self.register_buffer("index", distance + columns[:, None] - columns + side - 1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in self.qkv(self.norm(x)).chunk(3, -1)
        )
        if self.indexes:
            bias = self.table[self.index.flatten()]  # flaw: position_bias_indexing
        else:
            bias = self.table.index_select(0, self.index.flatten())
        bias = bias.view(*self.index.shape, -1).permute(2, 0, 1).to(q.dtype)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return x + self.out(y.transpose(1, 2).flatten(2))


def position_bias_indexing(flawed: bool, sizes: Sizes) -> Step:
    side, width, heads, windows = sizes.of((16, 256, 8, 64), (4, 32, 2, 2))
    model = seeded(
        lambda: nn.Sequential(*(WindowBlock(side, width, heads, flawed) for _ in range(12))), sizes
    )
    x = seeded(lambda: torch.randn(windows, side * side, width), sizes)
    return Step(training(lambda: model(x).square().mean(), fused_adamw(model), sizes))
