"""Flaws of inference, and of sequences that are padded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import Block, Config
from .program import Sizes, Step, autocast, fused_adamw, seeded, training
from .vision import ViT, images_of

__all__ = [
    "Decoder",
    "decoder",
    "eager_decode",
    "gradients_in_inference",
    "growing_cache",
    "no_kv_cache",
    "padding_to_maximum",
    "replayed",
    "transposed_weights",
]


def padding_to_maximum(flawed: bool, sizes: Sizes) -> Step:
    longest = sizes.of(384, 12)
    model, tokens, targets = gpt.made(sizes)
    tokens, targets = tokens[:, :longest], targets[:, :longest]
    optimizer = fused_adamw(model)

    def loss() -> Tensor:
        texts, wanted = tokens, targets
        if flawed:
            rest = model.config.context - longest
            texts = F.pad(texts, (0, rest))  # flaw: padding_to_maximum
            wanted = F.pad(wanted, (0, rest), value=-100)  # flaw: padding_to_maximum
        return gpt.loss_of(model, texts, wanted)

    return Step(training(loss, optimizer, sizes))


class CachingBlock(Block):
    """A block with a cache of keys and values, which the caller gives it."""

    past: tuple[Tensor, Tensor]
    at: Tensor

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = self.past
        keys.index_copy_(2, self.at, k)
        values.index_copy_(2, self.at, v)
        if q.shape[2] > 1:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        seen = torch.arange(keys.shape[2], device=q.device) <= self.at
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen[None, None, None])


class GrowingBlock(Block):
    """A block whose cache grows by concatenation."""

    past: tuple[Tensor, Tensor]

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = self.past
        keys = torch.cat((keys, k), 2)  # flaw: growing_cache
        values = torch.cat((values, v), 2)  # flaw: growing_cache
        self.past = keys, values
        return F.scaled_dot_product_attention(q, keys, values)


class SlicingBlock(Block):
    """A block that writes into a buffer and reads what is filled of it."""

    past: tuple[Tensor, Tensor]
    filled: int

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = (each[:, :, : self.filled + 1] for each in self.past)
        keys[:, :, -1:], values[:, :, -1:] = k, v
        return F.scaled_dot_product_attention(q, keys, values)


class Decoder(nn.Module):
    """A GPT that decodes token by token with a cache of fixed size."""

    def __init__(self, model: gpt.GPT, batch: int) -> None:
        super().__init__()
        self.model = model
        config = model.config
        shape = (batch, config.heads, config.context, config.width // config.heads)
        weight = model.head.weight
        self.at = torch.zeros(1, dtype=torch.long, device=weight.device)
        torch._dynamo.mark_static_address(self.at)  # as if it were a buffer of gpt-fast
        for block in model.blocks:
            block.past = weight.new_zeros(shape), weight.new_zeros(shape)
            block.at = self.at
            for each in block.past:
                torch._dynamo.mark_static_address(each)

    def prompt(self, tokens: Tensor) -> Tensor:
        """Fill the cache with a prompt; return the next token."""
        for block in self.model.blocks:
            block.at = torch.arange(tokens.shape[1], device=tokens.device)
        logits = self.model(tokens)
        for block in self.model.blocks:
            block.at = self.at
        self.at.fill_(tokens.shape[1])
        return logits[:, -1:].argmax(-1)

    def forward(self, token: Tensor) -> Tensor:
        """Return the token after this one."""
        model = self.model
        x = model.tokens(token) + model.positions.index_select(0, self.at)
        for block in model.blocks:
            x = block(x)
        self.at.add_(1)
        return model.head(model.norm(x)).argmax(-1)


def _plain(sizes: Sizes, kind: Callable[[Config], nn.Module], batch: int) -> tuple[gpt.GPT, Tensor]:
    """A GPT in bfloat16 for inference, and texts."""
    model, tokens, _ = gpt.made(sizes, kind, batch=sizes.of(batch, 2))
    return model.bfloat16().eval().requires_grad_(False), tokens


def decoder(sizes: Sizes, batch: int) -> tuple[Decoder, Tensor]:
    """A decoder, and texts."""
    model, tokens = _plain(sizes, CachingBlock, batch)
    return Decoder(model, len(tokens)), tokens


def no_kv_cache(flawed: bool, sizes: Sizes) -> Step:
    count, prompt = sizes.of((4, 768), (3, 16))
    if flawed:
        model, tokens = _plain(sizes, Block, 32)
    else:
        decode, tokens = decoder(sizes, 32)
    text = tokens[:, :prompt]

    @torch.no_grad()
    def generate_all() -> Tensor:
        known = text
        for _ in range(count):
            logits = model(known)  # flaw: no_kv_cache
            known = torch.cat((known, logits[:, -1:].argmax(-1)), 1)
        return known[:, prompt:].float().mean()

    @torch.no_grad()
    def generate_next() -> Tensor:
        known = [decode.prompt(text)]
        for _ in range(count - 1):
            known.append(decode(known[-1]))
        return torch.cat(known, 1).float().mean()

    return Step(generate_all if flawed else generate_next)


def growing_cache(flawed: bool, sizes: Sizes) -> Step:
    count, prompt = sizes.of((4, 896), (3, 16))
    model, tokens = _plain(sizes, GrowingBlock if flawed else SlicingBlock, 128)
    config = model.config
    full = (len(tokens), config.heads, config.context, config.width // config.heads)
    past = seeded(lambda: torch.randn(full).bfloat16(), sizes)
    buffers = [(past.clone(), past.clone()) for _ in model.blocks]

    @torch.no_grad()
    def step() -> Tensor:
        for block, (keys, values) in zip(model.blocks, buffers, strict=True):
            block.past = (keys[:, :, :prompt], values[:, :, :prompt]) if flawed else (keys, values)
        token = tokens[:, prompt : prompt + 1]
        for at in range(prompt, prompt + count):
            for block in model.blocks:
                block.filled = at
            x = model.tokens(token) + model.positions[at]
            for block in model.blocks:
                x = block(x)
            token = model.head(model.norm(x)).argmax(-1)
        return token.float().mean()

    return Step(step)


def replayed(decode: Decoder, token: Tensor) -> Callable[[Tensor], Tensor]:
    """The decoder as a CUDA graph."""
    held = token.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            decode(held)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = decode(held)

    def replay(token: Tensor) -> Tensor:
        held.copy_(token)
        graph.replay()
        return result

    return replay


def eager_decode(flawed: bool, sizes: Sizes) -> Step:
    count, prompt = sizes.of((4, 256), (3, 16))
    decode, tokens = decoder(sizes, 1)
    with torch.no_grad():
        first = decode.prompt(tokens[:, :prompt])
        is_eager = flawed or sizes.is_tiny
        run = decode if is_eager else replayed(decode, first)

    @torch.no_grad()
    def step() -> Tensor:
        decode.at.fill_(prompt)
        token = first
        for _ in range(count):
            token = run(token)  # flaw: eager_decode
        return token.float().mean()

    return Step(step)


def gradients_in_inference(flawed: bool, sizes: Sizes) -> Step:
    layers, width, heads = sizes.of((12, 768, 12), (2, 48, 4))
    model = seeded(lambda: ViT(layers, width, heads), sizes)
    images = images_of(sizes, 64)

    def step() -> Tensor:
        with nullcontext() if flawed else torch.inference_mode(), autocast(sizes):
            return model(images).float().mean().detach()  # flaw: gradients_in_inference

    return Step(step)


class Transposed(nn.Module):
    """A product with a weight that is transposed in each call."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = linear.weight

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.t().contiguous()  # flaw: transposed_weights


class TransposedBlock(Block):
    """A block of such products."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.qkv, self.out = Transposed(self.qkv), Transposed(self.out)
        self.up, self.down = Transposed(self.up), Transposed(self.down)


def transposed_weights(flawed: bool, sizes: Sizes) -> Step:
    model, tokens = _plain(sizes, TransposedBlock if flawed else Block, 4)
    text = tokens[:, : sizes.of(512, 16)]

    @torch.no_grad()
    def step() -> Tensor:
        return model(text).float().mean()

    return Step(step)
