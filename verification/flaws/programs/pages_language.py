"""Language models that guides and speed runs make fast."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "llama_decoding_without_cache",
    "sentence_encoder_tiny_batches",
    "speedrun_gpt_float32_stream",
    "translator_positions_made_on_cpu",
]


def position_table(length: int, width: int, device: torch.device) -> Tensor:
    """Sines and cosines of positions."""
    places = torch.arange(length, device=device)[:, None]  # flaw: translator_positions_made_on_cpu
    steps = torch.arange(0, width, 2, device=device)  # flaw: translator_positions_made_on_cpu
    rates = torch.exp(
        steps * (-math.log(10000.0) / width)
    )  # flaw: translator_positions_made_on_cpu
    table = torch.zeros(length, width, device=device)  # flaw: translator_positions_made_on_cpu
    table[:, 0::2] = torch.sin(places * rates)  # flaw: translator_positions_made_on_cpu
    table[:, 1::2] = torch.cos(places * rates)  # flaw: translator_positions_made_on_cpu
    return table


class Attention(nn.Module):
    """Attention to a sequence, one's own or another."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor, is_causal: bool = False) -> Tensor:
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(memory).unflatten(-1, (2, self.heads, -1)).transpose(1, 3).unbind(2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
        return self.out(y.transpose(1, 2).flatten(2))


class TranslatorLayer(nn.Module):
    """A layer of an encoder, or of a decoder, which looks at what was encoded, too."""

    def __init__(self, width: int, heads: int, is_decoder: bool) -> None:
        super().__init__()
        self.is_decoder = is_decoder
        self.own = Attention(width, heads)
        self.other = Attention(width, heads) if is_decoder else None
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        y = self.norms[0](x)
        x = x + self.own(y, y, self.is_decoder)
        if self.other is not None and memory is not None:
            x = x + self.other(self.norms[1](x), memory)
        return x + self.mlp(self.norms[2](x))


class Translator(nn.Module):
    """An encoder and a decoder that share their vocabulary."""

    def __init__(
        self, width: int, heads: int, layers: int, vocabulary: int, makes_on_cpu: bool
    ) -> None:
        super().__init__()
        self.makes_on_cpu = makes_on_cpu
        self.tokens = nn.Embedding(vocabulary, width)
        self.encoder = nn.ModuleList(TranslatorLayer(width, heads, False) for _ in range(layers))
        self.decoder = nn.ModuleList(TranslatorLayer(width, heads, True) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def embedded(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        where = torch.device("cpu") if self.makes_on_cpu else x.device
        # flaw in the next line: translator_positions_made_on_cpu
        table = position_table(x.shape[1], x.shape[2], where)
        return x + table.to(x.device)  # flaw: translator_positions_made_on_cpu

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.embedded(source)  # flaw: translator_positions_made_on_cpu
        for layer in self.encoder:
            memory = layer(memory)
        memory = self.norms[0](memory)
        x = self.embedded(target)  # flaw: translator_positions_made_on_cpu
        for layer in self.decoder:
            x = layer(x, memory)
        return self.head(self.norms[1](x))


def translator_positions_made_on_cpu(flawed: bool, sizes: Sizes) -> Step:
    """A translator of documents, whose modules make their tables of positions as they run."""
    width, heads, layers, vocabulary = sizes.of((512, 8, 6, 32000), (16, 2, 1, 64))
    batch, length = sizes.of((4, 1024), (2, 8))
    model, source, target = seeded(
        lambda: (
            Translator(width, heads, layers, vocabulary, flawed),
            torch.randint(0, vocabulary, (batch, length)),
            torch.randint(0, vocabulary, (batch, length + 1)),
        ),
        sizes,
    )
    given, wanted = target[:, :-1].contiguous(), target[:, 1:].flatten()
    step = training(
        lambda: F.cross_entropy(model(source, given).flatten(0, 1), wanted),
        fused_adamw(model),
        sizes,
    )
    return Step(step)


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Heads turned by their positions."""
    first, second = x.chunk(2, -1)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], -1)


def rotations(length: int, width: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines by position of a head."""
    rates = 10000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(length)[:, None] * rates
    return angles.cos(), angles.sin()


class Cache:
    """Keys and values of the tokens that were seen, in memory that is there from the start."""

    def __init__(self, like: Tensor, batch: int, heads: int, length: int, width: int) -> None:
        self.keys = like.new_empty(batch, heads, length, width)
        self.values = like.new_empty(batch, heads, length, width)

    def extended(self, start: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        end = start + keys.shape[2]
        self.keys[:, :, start:end] = keys
        self.values[:, :, start:end] = values
        return self.keys[:, :, :end], self.values[:, :, :end]


class LlamaLayer(nn.Module):
    """Attention with rotated heads and a gated MLP."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(
        self, x: Tensor, turns: tuple[Tensor, Tensor], start: int, cache: Cache | None
    ) -> Tensor:
        # flaw in the next line: llama_decoding_without_cache
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q = rotated(q.transpose(1, 2), *turns)
        k = rotated(k.transpose(1, 2), *turns)  # flaw: llama_decoding_without_cache
        v = v.transpose(1, 2)
        if cache is not None:
            k, v = cache.extended(start, k, v)
        # flaw in the next line: llama_decoding_without_cache
        y = F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)
        # flaw in the next line: llama_decoding_without_cache
        x = x + self.out(y.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.norm_2(x)).chunk(2, -1)  # flaw: llama_decoding_without_cache
        return x + self.down(F.silu(gate) * up)  # flaw: llama_decoding_without_cache


class Llama(nn.Module):
    """A decoder that gives the logits of the token that follows."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, width: int, heads: int, layers: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(
            LlamaLayer(width, heads, 11 * width // 4) for _ in range(layers)
        )
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        cosine, sine = rotations(length, width // heads)
        self.register_buffer("cosine", cosine)
        self.register_buffer("sine", sine)

    def forward(self, tokens: Tensor, start: int, caches: list[Cache] | None) -> Tensor:
        end = start + tokens.shape[1]
        turns = (self.cosine[start:end], self.sine[start:end])
        x = self.tokens(tokens)
        for place, layer in enumerate(self.layers):
            # flaw in the next line: llama_decoding_without_cache
            x = layer(x, turns, start, caches[place] if caches else None)
        return self.head(self.norm(x[:, -1]))

    def caches(self, batch: int) -> list[Cache]:
        length, width = self.cosine.shape[0], 2 * self.cosine.shape[1]
        heads = self.tokens.embedding_dim // width
        return [Cache(self.head.weight, batch, heads, length, width) for _ in self.layers]


def generated(model: Llama, prompt: Tensor, count: int, caches: list[Cache] | None) -> Tensor:
    """The mean of the logits of the tokens that are chosen."""
    tokens, best, start = prompt, [], 0
    for _ in range(count):
        logits = model(tokens, start, caches)  # flaw: llama_decoding_without_cache
        value, chosen = logits.max(-1, keepdim=True)
        best.append(value)
        if caches is None:
            tokens = torch.cat([tokens, chosen], 1)  # flaw: llama_decoding_without_cache
        else:
            start += tokens.shape[1]
            tokens = chosen
    return torch.cat(best).float().mean()


def llama_decoding_without_cache(flawed: bool, sizes: Sizes) -> Step:
    """A batch of prompts is continued greedily by some tokens."""
    width, heads, layers, vocabulary = sizes.of((1024, 16, 12, 32000), (16, 2, 2, 64))
    batch, length, count = sizes.of((8, 512, 16), (2, 8, 4))
    model, prompt = seeded(
        lambda: (
            Llama(width, heads, layers, vocabulary, length + count).eval(),
            torch.randint(0, vocabulary, (batch, length)),
        ),
        sizes,
    )
    model = model.bfloat16()
    caches = None if flawed else model.caches(batch)

    @torch.inference_mode()
    def step() -> Tensor:
        return generated(model, prompt, count, caches)  # flaw: llama_decoding_without_cache

    return Step(step)


class SpeedrunBlock(nn.Module):
    """Attention with normed and rotated heads, and an MLP whose activation is squared."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)
        cosine, sine = rotations(length, width // heads)
        self.register_buffer("cosine", cosine.bfloat16())
        self.register_buffer("sine", sine.bfloat16())

    def forward(self, x: Tensor) -> Tensor:
        y = F.rms_norm(x, (self.width,))  # flaw: speedrun_gpt_float32_stream
        x = x + self.attention(y)  # flaw: speedrun_gpt_float32_stream
        y = F.rms_norm(x, (self.width,))  # flaw: speedrun_gpt_float32_stream
        # flaw in the next line: speedrun_gpt_float32_stream
        return x + self.down(F.relu(self.up(y)).square())

    def attention(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).transpose(1, 3).unbind(2)
        q, k = (F.rms_norm(each, each.shape[-1:]).bfloat16() for each in (q, k))
        q, k = (rotated(each, self.cosine, self.sine) for each in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class SpeedrunHead(nn.Module):
    """The loss of capped logits."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.width = width
        self.linear = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        y = F.rms_norm(x, (self.width,))  # flaw: speedrun_gpt_float32_stream
        logits = self.linear(y).float()
        return F.cross_entropy(15 * torch.tanh(logits / 15), targets)


class SpeedrunGPT(nn.Module):
    """A GPT of a speed run; its blocks are compiled."""

    def __init__(self, width: int, heads: int, layers: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.width = width
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(SpeedrunBlock(width, heads, length) for _ in range(layers))
        self.head = SpeedrunHead(width, vocabulary)
        self.stream = torch.float32

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        # flaw in the next line: speedrun_gpt_float32_stream
        x = F.rms_norm(self.tokens(tokens), (self.width,)).to(self.stream)
        for block in self.blocks:
            x = block(x)  # flaw: speedrun_gpt_float32_stream
        return self.head(x.flatten(0, 1), targets)


def speedrun_gpt_float32_stream(flawed: bool, sizes: Sizes) -> Step:
    """A GPT that trains as a speed run did before its tenth record."""
    width, heads, layers, vocabulary = sizes.of((768, 6, 12, 50304), (32, 2, 2, 64))
    batch, length = sizes.of((16, 1024), (2, 16))
    model, text = seeded(
        lambda: (
            SpeedrunGPT(width, heads, layers, vocabulary, length),
            torch.randint(0, vocabulary, (batch, length + 1)),
        ),
        sizes,
    )
    optimizer = fused_adamw(model)
    if not flawed:
        model.stream = torch.bfloat16
    for block in model.blocks:
        block.compile(**({"backend": "eager"} if sizes.is_tiny else {}))
    model.head.compile(**({"backend": "eager"} if sizes.is_tiny else {}))
    tokens, targets = text[:, :-1].contiguous(), text[:, 1:].flatten()
    return Step(training(lambda: model(tokens, targets), optimizer, sizes))


class SentenceEncoder(nn.Module):
    """A small encoder that sorts sentences."""

    def __init__(self, width: int, heads: int, layers: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(0.02 * torch.randn(length, width))
        self.layers = nn.ModuleList(TranslatorLayer(width, heads, False) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


def sentence_encoder_tiny_batches(flawed: bool, sizes: Sizes) -> Step:
    """An encoder is tuned to sort sentences; a step takes the same sentences in both variants."""
    width, heads, layers, vocabulary = sizes.of((384, 6, 6, 30528), (16, 2, 1, 64))
    count, length = sizes.of((128, 128), (8, 8))
    model, tokens, labels = seeded(
        lambda: (
            SentenceEncoder(width, heads, layers, vocabulary, length),
            torch.randint(0, vocabulary, (count, length)),
            torch.randint(0, 4, (count,)),
        ),
        sizes,
    )
    size = sizes.of(8, 2) if flawed else count  # flaw: sentence_encoder_tiny_batches
    # flaw in the next line: sentence_encoder_tiny_batches
    pairs = list(zip(tokens.split(size), labels.split(size), strict=True))
    batches = itertools.cycle(pairs)

    def loss_of() -> Tensor:
        sentences, wanted = next(batches)
        return F.cross_entropy(model(sentences), wanted)  # flaw: sentence_encoder_tiny_batches

    train = training(loss_of, fused_adamw(model), sizes)

    def step() -> Tensor:
        losses = [train() for _ in pairs]  # flaw: sentence_encoder_tiny_batches
        return torch.stack(losses).mean()

    return Step(step)
