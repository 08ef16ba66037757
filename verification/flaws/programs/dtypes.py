"""Flaws of dtypes, and of operations that are not fused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import Block, Config
from .program import Sizes, Step, autocast, compiled, fused_adamw, training

__all__ = [
    "casts_each_microstep",
    "fp64_rotary",
    "gelu_by_hand",
    "logits_in_fp32",
    "no_autocast",
    "no_tf32",
    "norm_by_hand",
    "one_hot_targets",
]


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Float32 products of this precision."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def no_tf32(flawed: bool, sizes: Sizes) -> Step:
    step = gpt.trained(sizes, is_mixed=False, batch=sizes.of(4, 2))
    return Step(step.run, lambda: precision("highest" if flawed else "high"))


def no_autocast(flawed: bool, sizes: Sizes) -> Step:
    step = gpt.trained(sizes, is_mixed=not flawed)
    return Step(step.run, lambda: precision("high"))


class HandMadeNorm(nn.Module):
    """Llama's RMSNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        h = x.float()  # flaw: norm_by_hand
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)  # flaw: norm_by_hand
        return h.type_as(x) * self.weight  # flaw: norm_by_hand


class RMSBlock(Block):
    """A block with another norm."""

    norm: Callable[[int], nn.Module] = staticmethod(lambda width: nn.RMSNorm(width, eps=1e-5))

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.norm_1, self.norm_2 = self.norm(config.width), self.norm(config.width)


class HandMadeRMSBlock(RMSBlock):
    """A block with a norm of five operations."""

    norm = HandMadeNorm


def norm_by_hand(flawed: bool, sizes: Sizes) -> Step:
    model, tokens, targets = gpt.made(sizes, HandMadeRMSBlock if flawed else RMSBlock)
    model = model.bfloat16()
    optimizer = fused_adamw(model)
    return Step(
        training(lambda: gpt.loss_of(model, tokens, targets), optimizer, sizes, is_mixed=False)
    )


class TanhBlock(Block):
    """A block with GELU's approximation, as one operation."""

    def mlp(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class HandMadeTanhBlock(Block):
    """A block with GELU's approximation, as nanoGPT had it."""

    def mlp(self, x: Tensor) -> Tensor:
        h = self.up(x)
        inner = math.sqrt(2 / math.pi) * (h + 0.044715 * torch.pow(h, 3))  # flaw: gelu_by_hand
        h = 0.5 * h * (1 + torch.tanh(inner))  # flaw: gelu_by_hand
        return self.down(h)


def gelu_by_hand(flawed: bool, sizes: Sizes) -> Step:
    return gpt.trained(sizes, HandMadeTanhBlock if flawed else TanhBlock)


class Rotary(Block):
    """A block that rotates queries and keys by tables that numpy made."""

    dtype = torch.bfloat16

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        channels = config.width // config.heads
        rates = 1 / 10000 ** (np.arange(0, channels, 2) / channels)
        angles = np.outer(np.arange(config.context), rates)
        device = self.out.weight.device
        self.register_buffer("cos", torch.from_numpy(np.cos(angles)).to(device, self.dtype))
        self.register_buffer("sin", torch.from_numpy(np.sin(angles)).to(device, self.dtype))

    def rotate(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        first = a * self.cos - b * self.sin  # flaw: fp64_rotary
        second = a * self.sin + b * self.cos  # flaw: fp64_rotary
        return torch.cat((first, second), -1).to(x.dtype)  # flaw: fp64_rotary

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().attend(self.rotate(q), self.rotate(k), v)


class Float64Rotary(Rotary):
    """The tables stay as numpy made them."""

    dtype = torch.float64


def fp64_rotary(flawed: bool, sizes: Sizes) -> Step:
    return gpt.trained(sizes, Float64Rotary if flawed else Rotary)


MICRO_STEPS = 4


def casts_each_microstep(flawed: bool, sizes: Sizes) -> Step:
    config = {"layers": sizes.of(6, 2), "batch": MICRO_STEPS}
    model, tokens, targets = gpt.made(sizes, **config)
    micro = list(zip(tokens.split(1), targets.split(1), strict=True))
    return Step(_casting(model, micro, sizes) if flawed else _cast_once(model, micro))


def _casting(model: gpt.GPT, micro: list[tuple[Tensor, Tensor]], sizes: Sizes) -> Callable:
    optimizer = fused_adamw(model)

    def step() -> Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), device=micro[0][0].device)
        for tokens, targets in micro:
            with autocast(sizes):
                loss = gpt.loss_of(model, tokens, targets) / MICRO_STEPS
            loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    return step


def _cast_once(model: gpt.GPT, micro: list[tuple[Tensor, Tensor]]) -> Callable:
    masters = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(masters, lr=1e-4, fused=True)
    weights = list(model.bfloat16().parameters())
    for master in masters:
        master.grad = torch.zeros_like(master)

    def step() -> Tensor:
        total = torch.zeros((), device=micro[0][0].device)
        for tokens, targets in micro:
            loss = gpt.loss_of(model, tokens, targets) / MICRO_STEPS
            loss.backward()
            total += loss.detach()
        with torch.no_grad():
            torch._foreach_copy_([each.grad for each in masters], [each.grad for each in weights])
            optimizer.step()
            torch._foreach_copy_(weights, masters)
        for weight in weights:
            weight.grad = None
        return total

    return step


def shifted_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """The loss of a causal language model, as libraries have it."""
    logits = logits.float()  # flaw: logits_in_fp32
    shifted = logits[:, :-1].contiguous()  # flaw: logits_in_fp32
    targets = tokens[:, 1:].reshape(-1)
    return F.cross_entropy(shifted.flatten(0, 1), targets)  # flaw: logits_in_fp32


def logits_in_fp32(flawed: bool, sizes: Sizes) -> Step:
    model, tokens, _ = gpt.made(sizes)
    loss_of = shifted_loss if flawed else compiled(shifted_loss, sizes)
    optimizer = fused_adamw(model)
    return Step(training(lambda: loss_of(model(tokens), tokens), optimizer, sizes))


def one_hot_targets(flawed: bool, sizes: Sizes) -> Step:
    model, tokens, targets = gpt.made(sizes, batch=sizes.of(8, 2))

    def loss() -> Tensor:
        logits = model(tokens).flatten(0, 1)
        if flawed:
            wanted = F.one_hot(targets.flatten(), logits.shape[1]).float()  # flaw: one_hot_targets
            return F.cross_entropy(logits, wanted)  # flaw: one_hot_targets
        return F.cross_entropy(logits, targets.flatten())

    return Step(training(loss, fused_adamw(model), sizes))
