"""Flaws of language models in inference."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import Block, Config
from .inference import CachingBlock, Decoder
from .program import Sizes, Step, seeded

__all__ = ["full_sort_sampling", "lora_unmerged", "repeat_kv"]


def top_k_by_sort(logits: Tensor, k: int) -> Tensor:
    """Forbid all but the k most likely tokens."""
    values, order = logits.sort(dim=-1, descending=False)  # flaw: full_sort_sampling
    too_rare = values < values[:, -k, None]  # flaw: full_sort_sampling
    values = values.masked_fill(too_rare, -math.inf)  # flaw: full_sort_sampling
    return torch.empty_like(logits).scatter_(-1, order, values)  # flaw: full_sort_sampling


def top_k_by_threshold(logits: Tensor, k: int) -> Tensor:
    """The same without an order of all tokens."""
    least = logits.topk(k, -1).values[:, -1:]
    return logits.masked_fill(logits < least, -math.inf)


class Sampler(Decoder):
    """A decoder that samples among the most likely tokens."""

    def forward(self, token: Tensor) -> Tensor:
        """Return the logits of the token after this one."""
        model = self.model
        x = model.tokens(token) + model.positions.index_select(0, self.at)
        for block in model.blocks:
            x = block(x)
        self.at.add_(1)
        return model.head(model.norm(x))[:, -1].float()


def full_sort_sampling(flawed: bool, sizes: Sizes) -> Step:
    count, prompt, k = sizes.of((4, 128, 50), (3, 16, 5))
    changes = {"batch": 48, "vocabulary": 128_256, "context": 512}
    model, tokens, _ = gpt.made(sizes, CachingBlock, **sizes.of(changes, {}))
    model = model.bfloat16().eval().requires_grad_(False)
    decode = Sampler(model, len(tokens))
    top_k = top_k_by_sort if flawed else top_k_by_threshold
    generator = torch.Generator(sizes.device).manual_seed(3)
    with torch.no_grad():
        first = decode.prompt(tokens[:, :prompt])

    @torch.no_grad()
    def step() -> Tensor:
        decode.at.fill_(prompt)
        token, total = first, torch.zeros((), device=tokens.device)
        for _ in range(count):
            probs = top_k(decode(token) / 0.8, k).softmax(-1)
            q = torch.empty_like(probs).exponential_(generator=generator)
            token = probs.div_(q).argmax(-1, keepdim=True)
            total += probs.gather(1, token).log().mean()
        return total

    return Step(step)


class GroupedBlock(nn.Module):
    """A block whose heads of keys and values serve several heads of queries."""

    def __init__(self, config: Config, groups: int, repeats: bool) -> None:
        super().__init__()
        self.heads, self.groups, self.repeats = config.heads, groups, repeats
        self.channels = config.width // config.heads
        self.norm_1, self.norm_2 = nn.RMSNorm(config.width), nn.RMSNorm(config.width)
        self.q = nn.Linear(config.width, config.width, bias=False)
        self.kv = nn.Linear(config.width, 2 * groups * self.channels, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.gate = nn.Linear(config.width, config.mlp_width, bias=False)
        self.up = nn.Linear(config.width, config.mlp_width, bias=False)
        self.down = nn.Linear(config.mlp_width, config.width, bias=False)

    def repeat_kv(self, x: Tensor) -> Tensor:
        """Repeat keys or values for each head of queries."""
        batch, groups, length, channels = x.shape
        n_rep = self.heads // groups
        x = x[:, :, None, :, :].expand(batch, groups, n_rep, length, channels)
        return x.reshape(batch, groups * n_rep, length, channels)  # flaw: repeat_kv

    def forward(self, x: Tensor, past: Tensor, at: Tensor) -> Tensor:
        h = self.norm_1(x)
        q = self.q(h).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        new = self.kv(h).unflatten(-1, (2 * self.groups, -1)).transpose(1, 2)
        past.index_copy_(2, at, new)
        k, v = past.chunk(2, 1)
        if self.repeats:
            k = self.repeat_kv(k)  # flaw: repeat_kv
            v = self.repeat_kv(v)  # flaw: repeat_kv
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        h = self.norm_2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def repeat_kv(flawed: bool, sizes: Sizes) -> Step:
    large = Config(layers=16, width=2048, heads=16, mlp_width=5632, context=1024, batch=16)
    config = gpt.TINY if sizes.is_tiny else large
    groups, count = sizes.of((4, 4), (2, 2))
    blocks = seeded(
        lambda: nn.ModuleList(
            GroupedBlock(config, groups, repeats=flawed) for _ in range(config.layers)
        ),
        sizes,
    )
    blocks = blocks.bfloat16().eval()
    channels = config.width // config.heads
    past, start = seeded(
        lambda: (
            torch.randn(config.layers, config.batch, 2 * groups, config.context, channels),
            torch.randn(config.batch, 1, config.width),
        ),
        sizes,
    )
    past, start = past.bfloat16(), start.bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        at = torch.full((1,), config.context - count, device=start.device)
        x = start
        for _ in range(count):
            for block, cache in zip(blocks, past, strict=True):
                x = block(x, cache, at)
            at = at + 1
        return x.float().abs().mean()

    return Step(step)


class LoraLinear(nn.Module):
    """A layer beside an adapter of low rank, as PEFT has it."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.base_layer, self.scaling = base, alpha / rank
        self.lora_a = nn.Linear(base.in_features, rank, bias=False)
        self.lora_b = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        result = self.base_layer(x)
        update = self.lora_b(self.lora_a(x))  # flaw: lora_unmerged
        return result + update * self.scaling  # flaw: lora_unmerged

    def merge(self) -> nn.Linear:
        """The layer with its adapter added to its weight."""
        self.base_layer.weight += self.scaling * self.lora_b.weight @ self.lora_a.weight
        return self.base_layer


class AdaptedBlock(Block):
    """A block all of whose layers have adapters."""

    names = ("qkv", "out", "up", "down")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        for name in self.names:
            setattr(self, name, LoraLinear(getattr(self, name), 16, 32.0))

    def merge(self) -> None:
        for name in self.names:
            setattr(self, name, getattr(self, name).merge())


def lora_unmerged(flawed: bool, sizes: Sizes) -> Step:
    model, tokens, _ = gpt.made(sizes, AdaptedBlock, batch=sizes.of(8, 2))
    model = model.eval()
    if not flawed:
        with torch.no_grad():
            for block in model.blocks:
                block.merge()
    model = model.bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        return model(tokens)[:, -1].float().abs().mean()

    return Step(step)
