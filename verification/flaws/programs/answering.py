"""Flaws of language models: how they place, cache, and attend to their tokens."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

from . import gpt
from .gpt import GPT, Block, Config
from .program import Sizes, Step, compiled, copied, fused_adamw, seeded, training

__all__ = [
    "flex_attention_eager",
    "logger_breaks_graph",
    "rotary_in_float32",
    "rotary_length_by_item",
    "weights_dequantized_each_call",
    "window_lengths_per_layer",
]

log = logging.getLogger(__name__)


class Windows(nn.Module):
    """Attention of a vision model within the images of one packed row of patches."""

    def __init__(self, width: int, heads: int, knows: bool) -> None:
        super().__init__()
        self.heads, self.knows = heads, knows
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, ends: Tensor, lengths: list[int]) -> Tensor:
        q, k, v = self.qkv(self.norm_1(x)).unflatten(1, (3, self.heads, -1)).permute(1, 2, 0, 3)
        if not self.knows:
            lengths = ends.diff().tolist()  # flaw: window_lengths_per_layer
        parts = zip(*(each.split(lengths, 1) for each in (q, k, v)), strict=True)
        seen = [F.scaled_dot_product_attention(*(each[None] for each in part)) for part in parts]
        x = x + self.out(torch.cat(seen, 2).squeeze(0).transpose(0, 1).flatten(1))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def window_lengths_per_layer(flawed: bool, sizes: Sizes) -> Step:
    width, heads, depth = sizes.of((1280, 16, 32), (8, 2, 2))
    lengths = sizes.of([1024, 768, 1280, 1024], [3, 5])
    model = seeded(
        lambda: nn.ModuleList(Windows(width, heads, not flawed) for _ in range(depth)), sizes
    )
    model = model.eval().bfloat16()
    patches = seeded(lambda: torch.randn(sum(lengths), width), sizes).bfloat16()
    ends = torch.tensor([0, *lengths], device=sizes.device).cumsum(0)

    @torch.inference_mode()
    def step() -> Tensor:
        x = patches
        for layer in model:
            x = layer(x, ends, lengths)
        return x.float().square().mean()

    return Step(step)


class Rotary(nn.Module):
    """Turns of queries and keys, with a table whose length is a buffer of the device."""

    def __init__(self, channels: int, length: int, asks: bool) -> None:
        super().__init__()
        self.asks, self.length = asks, length
        angles = torch.outer(
            torch.arange(length), 10000 ** (-torch.arange(0, channels, 2) / channels)
        )
        self.register_buffer("known", torch.tensor(length))
        self.register_buffer("cos", angles.repeat_interleave(2, 1).cos())
        self.register_buffer("sin", angles.repeat_interleave(2, 1).sin())

    def forward(self, x: Tensor) -> Tensor:
        count = x.shape[-2]
        known = self.known.item() if self.asks else self.length  # flaw: rotary_length_by_item
        if count > known:
            raise ValueError(f"{count} tokens, and the table ends at {known}")
        pairs = x.unflatten(-1, (-1, 2))
        turned = torch.stack((-pairs[..., 1], pairs[..., 0]), -1).flatten(-2)
        return x * self.cos[:count] + turned * self.sin[:count]


class RotaryBlock(Block):
    """A block of an encoder with rotary positions."""

    asks = False

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.rotary = Rotary(config.width // config.heads, config.context, self.asks)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(self.rotary(q), self.rotary(k), v)


class AskingBlock(RotaryBlock):
    """The same, which asks its table for its length."""

    asks = True


def rotary_length_by_item(flawed: bool, sizes: Sizes) -> Step:
    large = Config(24, 768, 12, 3072, vocabulary=30528, context=512, batch=8)
    config = gpt.TINY if sizes.is_tiny else large
    kind = AskingBlock if flawed else RotaryBlock
    blocks = seeded(lambda: nn.Sequential(*(kind(config) for _ in range(config.layers))), sizes)
    blocks = blocks.eval().bfloat16()
    texts = seeded(lambda: torch.randn(config.batch, config.context, config.width), sizes)
    texts = texts.bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        return blocks(texts).float().square().mean()

    return Step(step)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries or keys (batch, heads, tokens, channels), turned in float32 by pairs of channels."""
    pairs = x.float().unflatten(-1, (-1, 2))  # flaw: rotary_in_float32
    # flaw in the next line: rotary_in_float32
    first = pairs[..., 0] * cos - pairs[..., 1] * sin
    second = pairs[..., 1] * cos + pairs[..., 0] * sin  # flaw: rotary_in_float32
    return torch.stack((first, second), -1).flatten(-2).type_as(x)  # flaw: rotary_in_float32


class TurnedBlock(Block):
    """A block whose queries and keys are turned by a function that is set from without."""

    rotate: Callable[[Tensor, Tensor, Tensor], Tensor]

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        channels = config.width // config.heads
        speeds = 10000 ** (-torch.arange(0, channels, 2) / channels)
        angles = torch.outer(torch.arange(config.context), speeds)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q = self.rotate(q, self.cos, self.sin)  # flaw: rotary_in_float32
        k = self.rotate(k, self.cos, self.sin)  # flaw: rotary_in_float32
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def rotary_in_float32(flawed: bool, sizes: Sizes) -> Step:
    large = Config(8, 1024, 16, 4096, vocabulary=8192, context=2048, batch=8)
    config = gpt.TINY if sizes.is_tiny else large
    model = seeded(lambda: GPT(config, TurnedBlock), sizes)
    rotate = rotated if flawed else compiled(copied(rotated), sizes)
    for block in model.blocks:
        block.rotate = rotate
    tokens, targets = gpt.batch_of(config, sizes)
    return Step(training(lambda: gpt.loss_of(model, tokens, targets), fused_adamw(model), sizes))


def slopes_of(heads: int) -> Callable[..., Tensor]:
    """What lowers scores by the distance of tokens (ALiBi), and hides those to come."""

    def score(value: Tensor, _: Tensor, head: Tensor, at: Tensor, of: Tensor) -> Tensor:
        lowered = value - (at - of) * torch.exp2(-8 * (head + 1) / heads)
        return torch.where(at >= of, lowered, -float("inf"))

    return score


class SlopedBlock(Block):
    """A block with flex_attention."""

    flex: Callable[..., Tensor]
    score: Callable[..., Tensor]

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.flex(q, k, v, score_mod=self.score)  # flaw: flex_attention_eager


def flex_attention_eager(flawed: bool, sizes: Sizes) -> Step:
    large = Config(12, 768, 12, 3072, vocabulary=8192, context=2048, batch=2)
    config = gpt.TINY if sizes.is_tiny else large
    model = seeded(lambda: GPT(config, SlopedBlock), sizes).eval().bfloat16()
    flex = flex_attention if flawed else compiled(flex_attention, sizes)
    score = slopes_of(config.heads)
    for block in model.blocks:
        block.flex, block.score = flex, score
    tokens, targets = gpt.batch_of(config, sizes)

    @torch.no_grad()
    def step() -> Tensor:
        return gpt.loss_of(model, tokens, targets).float()

    return Step(step)


class QuantizedLinear(nn.Module):
    """A linear layer whose weights are numbers of 8 bits with a scale for each output."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("numbers", torch.randint(-127, 128, (outputs, inputs)).to(torch.int8))
        self.register_buffer("scales", torch.full((outputs, 1), inputs**-0.5 / 64))

    def weight(self) -> Tensor:
        scales = self.scales.bfloat16()
        return self.numbers.bfloat16() * scales  # flaw: weights_dequantized_each_call

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight())  # flaw: weights_dequantized_each_call


class RestoredLinear(QuantizedLinear):
    """The same with weights that were restored once."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.restored)


class ReplyBlock(nn.Module):
    """A block that decodes one token, with keys and values of those before."""

    def __init__(self, width: int, heads: int, length: int, kind: type[QuantizedLinear]) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = kind(width, 3 * width), kind(width, width)
        self.up, self.down = kind(width, 4 * width), kind(4 * width, width)
        self.register_buffer("before", torch.randn(2, 1, heads, length, width // heads))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in self.qkv(self.norm_1(x)).chunk(3, -1)
        )
        keys, values = self.before.expand(-1, len(x), -1, -1, -1)
        k, v = torch.cat((keys, k), 2), torch.cat((values, v), 2)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def weights_dequantized_each_call(flawed: bool, sizes: Sizes) -> Step:
    width, heads, depth, batch, length, count = sizes.of(
        (2048, 16, 16, 8, 256, 4), (8, 2, 2, 2, 3, 2)
    )
    kind = QuantizedLinear if flawed else RestoredLinear
    model = seeded(
        lambda: nn.Sequential(*(ReplyBlock(width, heads, length, kind) for _ in range(depth))),
        sizes,
    )
    for layer in model.modules():
        if isinstance(layer, RestoredLinear):
            layer.register_buffer("restored", layer.weight())
    for name, buffer in list(model.named_buffers()):
        if name.endswith("before"):
            buffer.data = buffer.data.bfloat16()
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16()
    tokens = seeded(lambda: torch.randn(batch, 1, width), sizes).bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        x = tokens
        for _ in range(count):
            x = F.normalize(model(x), dim=-1) * width**0.5
        return x.float().abs().mean()

    return Step(step)


class LoggedBlock(Block):
    """A block that tells a logger which attention it takes."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        log.debug("attention with is_causal")  # flaw: logger_breaks_graph
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def logger_breaks_graph(flawed: bool, sizes: Sizes) -> Step:
    large = Config(12, 512, 8, 2048, vocabulary=8192, context=256, batch=8)
    config = gpt.TINY if sizes.is_tiny else large
    model = seeded(lambda: GPT(config, LoggedBlock if flawed else Block), sizes)
    model.blocks = nn.ModuleList(compiled(block, sizes) for block in model.blocks)
    tokens, targets = gpt.batch_of(config, sizes)

    def loss() -> Tensor:
        return gpt.loss_of(model, tokens, targets)  # flaw: logger_breaks_graph

    return Step(training(loss, fused_adamw(model), sizes), warm_up=6)
