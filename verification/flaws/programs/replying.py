"""Flaws of language models that write token by token, or serve many adapters."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, seeded

__all__ = ["adapters_mixed_in_loop", "decoder_bias_each_token", "penalties_by_mask"]


class CachedBlock(nn.Module):
    """A block of a decoder with room for the keys and values of a text."""

    def __init__(self, width: int, heads: int, batch: int, room: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        shape = (batch, heads, room, width // heads)
        self.register_buffer("keys", torch.randn(shape) * 0.1)
        self.register_buffer("values", torch.randn(shape) * 0.1)

    def forward(self, x: Tensor, at: int, bias: Tensor | None = None) -> Tensor:
        """One token of each text (batch, width) at a place, with a bias (heads, places)."""
        q, k, v = self.qkv(self.norm_1(x)).unflatten(1, (3, self.heads, -1)).unbind(1)
        self.keys[:, :, at], self.values[:, :, at] = k, v
        keys, values = self.keys[:, :, : at + 1], self.values[:, :, : at + 1]
        scores = (keys @ q[..., None])[..., 0] * q.shape[-1] ** -0.5
        if bias is not None:
            scores = scores + bias
        y = scores.softmax(-1)[:, :, None] @ values
        x = x + self.out(y.flatten(1))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Decoder(nn.Module):
    """A stack of such blocks between an embedding and a head."""

    def __init__(
        self, vocabulary: int, width: int, heads: int, layers: int, batch: int, room: int
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(CachedBlock(width, heads, batch, room) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor, at: int) -> Tensor:
        x = self.table(tokens)
        for block in self.blocks:
            x = block(x, at)
        return self.head(self.norm(x))


def penalized_by_mask(scores: Tensor, written: Tensor, penalty: Tensor) -> Tensor:
    """The scores of words that a text has are made smaller, the positive and the others apart."""
    factors = torch.where(written, penalty[:, None], 1.0)
    positive = scores > 0  # flaw: penalties_by_mask
    scores[positive] /= factors[positive]  # flaw: penalties_by_mask
    other = ~positive  # flaw: penalties_by_mask
    scores[other] *= factors[other]  # flaw: penalties_by_mask
    return scores


def penalized_by_where(scores: Tensor, written: Tensor, penalty: Tensor) -> Tensor:
    """The same by factors for all."""
    factors = torch.where(written, penalty[:, None], 1.0)
    return scores * torch.where(scores > 0, 1 / factors, factors)


def penalties_by_mask(flawed: bool, sizes: Sizes) -> Step:
    vocabulary, width, heads, layers = sizes.of((128_256, 1024, 16, 12), (30, 8, 2, 2))
    batch, room, start, count = sizes.of((32, 512, 480, 6), (3, 8, 4, 2))
    model = seeded(lambda: Decoder(vocabulary, width, heads, layers, batch, room), sizes)
    model = model.eval().bfloat16()
    first, has = seeded(
        lambda: (torch.randint(0, vocabulary, (batch,)), torch.rand(batch, vocabulary) < 0.01),
        sizes,
    )
    penalty = torch.linspace(1.05, 1.3, batch, device=sizes.device)
    penalized = penalized_by_mask if flawed else penalized_by_where

    @torch.inference_mode()
    def step() -> Tensor:
        tokens, written = first, has.clone()
        total = torch.zeros((), device=sizes.device)
        for at in range(start, start + count):
            scores = model(tokens, at).float()
            scores = penalized(scores, written, penalty)  # flaw: penalties_by_mask
            best, tokens = scores.max(1)
            written.scatter_(1, tokens[:, None], True)
            total = total + best.mean()
        return total

    return Step(step)


class RelativeBias(nn.Module):
    """A number of each head for each bucket of distances, as T5 has it."""

    def __init__(self, buckets: int, farthest: int, heads: int) -> None:
        super().__init__()
        self.buckets, self.farthest = buckets, farthest
        self.table = nn.Embedding(buckets, heads)

    def bucket(self, distance: Tensor) -> Tensor:
        exact = self.buckets // 2
        near = distance < exact  # flaw: decoder_bias_each_token
        # flaw in the next line: decoder_bias_each_token
        far = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.farthest / exact)
        # flaw in the next line: decoder_bias_each_token
        far = exact + (far * (self.buckets - exact)).long()
        # flaw in the next line: decoder_bias_each_token
        return torch.where(near, distance, far.clamp(max=self.buckets - 1))

    def forward(self, length: int) -> Tensor:
        """The bias of all queries and keys (heads, length, length)."""
        # flaw in the next line: decoder_bias_each_token
        at = torch.arange(length, device=self.table.weight.device)
        distance = (at[:, None] - at).clamp(min=0)  # flaw: decoder_bias_each_token
        found = self.table(self.bucket(distance))  # flaw: decoder_bias_each_token
        return found.permute(2, 0, 1)


def decoder_bias_each_token(flawed: bool, sizes: Sizes) -> Step:
    vocabulary, width, heads, layers = sizes.of((32_128, 512, 8, 8), (30, 8, 2, 2))
    batch, room, start, count = sizes.of((16, 512, 400, 16), (3, 8, 4, 2))
    model = seeded(lambda: Decoder(vocabulary, width, heads, layers, batch, room), sizes)
    biases = seeded(
        lambda: nn.ModuleList(RelativeBias(32, 128, heads) for _ in range(layers)), sizes
    )
    model, biases = model.eval().bfloat16(), biases.bfloat16()
    first = seeded(lambda: torch.randint(0, vocabulary, (batch,)), sizes)
    with torch.no_grad():
        kept = [bias(room).contiguous() for bias in biases]

    def row(layer: int, at: int) -> Tensor:
        if flawed:
            return biases[layer](at + 1)[:, -1]  # flaw: decoder_bias_each_token
        return kept[layer][:, at, : at + 1]

    @torch.inference_mode()
    def step() -> Tensor:
        tokens, total = first, torch.zeros((), device=sizes.device)
        for at in range(start, start + count):
            x = model.table(tokens)
            for layer, block in enumerate(model.blocks):
                x = block(x, at, row(layer, at))  # flaw: decoder_bias_each_token
            best, tokens = model.head(model.norm(x)).float().max(1)
            total = total + best.mean()
        return total

    return Step(step)


class MixedLoRA(nn.Module):
    """A linear layer with adapters of which each text of a batch has its own."""

    def __init__(self, width: int, out: int, adapters: int, rank: int, by_loop: bool) -> None:
        super().__init__()
        self.by_loop = by_loop
        self.base = nn.Linear(width, out, bias=False)
        self.down = nn.Parameter(torch.randn(adapters, rank, width) * width**-0.5)
        self.up = nn.Parameter(torch.randn(adapters, out, rank) * 0.05)

    def forward(self, x: Tensor, owners: list[int], of_adapters: Tensor) -> Tensor:
        """Texts (batch, tokens, width), and the adapter of each, also as a tensor."""
        result = self.base(x)
        if not self.by_loop:
            low = torch.bmm(x, self.down.index_select(0, of_adapters).mT)
            return result.baddbmm(low, self.up.index_select(0, of_adapters).mT)
        for adapter in sorted(set(owners)):
            rows = [at for at, owner in enumerate(owners) if owner == adapter]
            mine = x[rows]  # flaw: adapters_mixed_in_loop
            # flaw in the next line: adapters_mixed_in_loop
            added = F.linear(F.linear(mine, self.down[adapter]), self.up[adapter])
            result[rows] += added  # flaw: adapters_mixed_in_loop
        return result


class AdaptedBlock(nn.Module):
    """A block whose layers have such adapters."""

    def __init__(self, width: int, heads: int, adapters: int, rank: int, by_loop: bool) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = MixedLoRA(width, 3 * width, adapters, rank, by_loop)
        self.out = MixedLoRA(width, width, adapters, rank, by_loop)
        self.up = MixedLoRA(width, 4 * width, adapters, rank, by_loop)
        self.down = MixedLoRA(4 * width, width, adapters, rank, by_loop)

    def forward(self, x: Tensor, owners: list[int], at: Tensor) -> Tensor:
        y = self.qkv(self.norm_1(x), owners, at)  # flaw: adapters_mixed_in_loop
        q, k, v = y.unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(y, owners, at)  # flaw: adapters_mixed_in_loop
        y = F.gelu(self.up(self.norm_2(x), owners, at))  # flaw: adapters_mixed_in_loop
        return x + self.down(y, owners, at)  # flaw: adapters_mixed_in_loop


def adapters_mixed_in_loop(flawed: bool, sizes: Sizes) -> Step:
    width, heads, layers, adapters, rank = sizes.of((1024, 16, 12, 8, 16), (8, 2, 2, 3, 2))
    batch, tokens, vocabulary = sizes.of((16, 128, 32_000), (4, 5, 20))
    blocks = seeded(
        lambda: nn.ModuleList(
            AdaptedBlock(width, heads, adapters, rank, flawed) for _ in range(layers)
        ),
        sizes,
    )
    table = seeded(lambda: nn.Embedding(vocabulary, width), sizes)
    text = seeded(lambda: torch.randint(0, vocabulary, (batch, tokens)), sizes)
    blocks, table = blocks.eval().bfloat16(), table.bfloat16()
    owners = [at * 5 % adapters for at in range(batch)]
    of_adapters = torch.tensor(owners, device=sizes.device)

    @torch.inference_mode()
    def step() -> Tensor:
        x = table(text)
        for block in blocks:
            x = block(x, owners, of_adapters)  # flaw: adapters_mixed_in_loop
        return x.float().square().mean()

    return Step(step)
