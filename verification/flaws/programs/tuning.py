"""Flaws of language models that are trained, tuned or made to prefer, and of taggers."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from . import gpt
from .gpt import Block
from .program import Sizes, Step, autocast, fused_adamw, seeded, training

__all__ = [
    "adapters_by_parametrization",
    "crf_score_loop",
    "debug_strings",
    "pow_in_autocast",
    "reference_scored_each_step",
    "window_as_dense_mask",
]

logger = logging.getLogger(__name__)


class LowRankUpdate(nn.Module):
    """A weight with an adapter of low rank added to it, for `parametrize`."""

    def __init__(self, outputs: int, inputs: int, rank: int) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(rank, inputs) * inputs**-0.5)
        self.b = nn.Parameter(torch.randn(outputs, rank) * 0.02)

    def forward(self, weight: Tensor) -> Tensor:
        return weight + 2.0 * (self.b @ self.a)  # flaw: adapters_by_parametrization


class LowRankLinear(nn.Linear):
    """A layer with an adapter beside it."""

    update: LowRankUpdate

    def forward(self, x: Tensor) -> Tensor:
        low = F.linear(F.linear(x, self.update.a), self.update.b)
        return F.linear(x, self.weight, self.bias) + 2.0 * low


def adapt(model: nn.Module, rank: int, is_parametrized: bool) -> list[nn.Parameter]:
    """Freeze a model but for adapters of its linear layers; return those."""
    model.requires_grad_(False)
    adapters: list[nn.Parameter] = []
    layers = [each for each in model.modules() if isinstance(each, nn.Linear)]
    for layer in layers:
        with layer.weight.device:
            update = LowRankUpdate(*layer.weight.shape, rank)
        adapters += update.parameters()
        if is_parametrized:
            parametrize.register_parametrization(layer, "weight", update)
        else:
            layer.__class__, layer.update = LowRankLinear, update
    return adapters


class Writer(nn.Module):
    """A decoder whose blocks have gated layers, as Llama's have, and no positions."""

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm_1": nn.RMSNorm(width),
                    "qkv": nn.Linear(width, 3 * width, bias=False),
                    "out": nn.Linear(width, width, bias=False),
                    "norm_2": nn.RMSNorm(width),
                    "gate": nn.Linear(width, 3 * width, bias=False),
                    "up": nn.Linear(width, 3 * width, bias=False),
                    "down": nn.Linear(3 * width, width, bias=False),
                }
            )
            for _ in range(layers)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """The last hidden states."""
        x = self.tokens(tokens)
        for layer in self.layers:
            # flaw in the next line: adapters_by_parametrization, reference_scored_each_step
            qkv = layer["qkv"](layer["norm_1"](x)).unflatten(-1, (3, self.heads, -1))
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            # flaw in the next line: reference_scored_each_step
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            # flaw in the next line: adapters_by_parametrization, reference_scored_each_step
            x = x + layer["out"](y.transpose(1, 2).flatten(2))
            h = layer["norm_2"](x)
            # flaw in the next line: adapters_by_parametrization, reference_scored_each_step
            x = x + layer["down"](F.silu(layer["gate"](h)) * layer["up"](h))
        return x


def adapters_by_parametrization(flawed: bool, sizes: Sizes) -> Step:
    width, layers, heads, words = sizes.of((1280, 8, 20, 8192), (32, 2, 2, 64))
    batch, length = sizes.of((16, 512), (2, 12))
    model = seeded(lambda: Writer(words, width, layers, heads), sizes)
    adapters = adapt(model, sizes.of(16, 2), is_parametrized=flawed)
    tokens = seeded(lambda: torch.randint(0, words, (batch, length)), sizes)
    optimizer = torch.optim.AdamW(adapters, lr=1e-4, fused=True)

    def loss() -> Tensor:
        scores = F.linear(model(tokens[:, :-1]), model.tokens.weight)
        return F.cross_entropy(scores.flatten(0, 1) * width**-0.5, tokens[:, 1:].flatten())

    return Step(training(loss, optimizer, sizes))


def answer_scores(model: Writer, texts: Tensor) -> Tensor:
    """Log-probabilities of texts."""
    states = model(texts[:, :-1])
    # flaw in the next line: reference_scored_each_step
    scores = F.linear(states, model.tokens.weight) * states.shape[-1] ** -0.5
    wanted = texts[:, 1:].flatten()
    # flaw in the next line: reference_scored_each_step
    losses = F.cross_entropy(scores.flatten(0, 1), wanted, reduction="none")
    return -losses.unflatten(0, (len(texts), -1)).sum(-1)


def reference_scored_each_step(flawed: bool, sizes: Sizes) -> Step:
    width, layers, heads, words = sizes.of((768, 12, 12, 16384), (32, 2, 2, 64))
    pairs, length = sizes.of((8, 512), (2, 12))
    policy = seeded(lambda: Writer(words, width, layers, heads), sizes)
    reference = seeded(lambda: Writer(words, width, layers, heads), sizes)
    reference = reference.eval().requires_grad_(False)
    texts = seeded(lambda: torch.randint(0, words, (2 * pairs, length)), sizes)
    with torch.no_grad(), autocast(sizes):
        cached = answer_scores(reference, texts)

    def loss() -> Tensor:
        expected = cached
        if flawed:
            with torch.no_grad():
                expected = answer_scores(reference, texts)  # flaw: reference_scored_each_step
        gains = answer_scores(policy, texts) - expected
        chosen, rejected = gains.chunk(2)
        return -F.logsigmoid(0.1 * (chosen - rejected)).mean()

    return Step(training(loss, fused_adamw(policy), sizes))


class SquaredBlock(Block):
    """A block with the squared ReLU of Primer."""

    def mlp(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x)).pow(2))  # flaw: pow_in_autocast


class ProductBlock(Block):
    """The same by a product, which stays in bfloat16."""

    def mlp(self, x: Tensor) -> Tensor:
        h = F.relu(self.up(x))
        return self.down(h * h)


def pow_in_autocast(flawed: bool, sizes: Sizes) -> Step:
    changes = sizes.of({"layers": 8, "batch": 16}, {})
    return gpt.trained(sizes, SquaredBlock if flawed else ProductBlock, **changes)


class DenselyMaskedBlock(Block):
    """A block in which each token sees a window of those before, by a mask of all pairs."""

    window = 256

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        places = torch.arange(q.shape[2], device=q.device)
        back = places[:, None] - places
        mask = (back >= 0) & (back <= self.window)  # flaw: window_as_dense_mask
        # flaw in the next line: window_as_dense_mask
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class ChunkedBlock(Block):
    """The same, chunk by chunk, each of which sees itself and the one before."""

    window = 256

    def with_previous(self, x: Tensor) -> Tensor:
        """Chunks (batch * chunks, heads, 2 * window, channels) behind the chunk before each."""
        chunks = x.unflatten(2, (-1, self.window)).transpose(1, 2)
        previous = F.pad(chunks, (0, 0, 0, 0, 0, 0, 1, 0))[:, :-1]
        return torch.cat((previous, chunks), 3).flatten(0, 1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        batch, _, length, _ = q.shape
        count = length // self.window
        places = torch.arange(self.window, device=q.device)
        back = self.window + places[:, None] - torch.arange(2 * self.window, device=q.device)
        mask = ((back >= 0) & (back <= self.window)).repeat(batch * count, 1, 1, 1)
        mask[::count, :, :, : self.window] = False
        queries = q.unflatten(2, (count, self.window)).transpose(1, 2).flatten(0, 1)
        y = F.scaled_dot_product_attention(
            queries, self.with_previous(k), self.with_previous(v), attn_mask=mask
        )
        return y.unflatten(0, (batch, count)).transpose(1, 2).flatten(2, 3)


def window_as_dense_mask(flawed: bool, sizes: Sizes) -> Step:
    kind = DenselyMaskedBlock if flawed else ChunkedBlock
    window = sizes.of(256, 8)
    large = {"layers": 6, "vocabulary": 8192, "context": 4096, "batch": 2}
    model, tokens, targets = gpt.made(sizes, kind, **sizes.of(large, {}))
    for block in model.blocks:
        block.window = window
    optimizer = fused_adamw(model)
    return Step(training(lambda: gpt.loss_of(model, tokens, targets), optimizer, sizes))


class NormedMomentum(torch.optim.Optimizer):
    """Momentum whose update has a scale for each row of a matrix; the scales can be logged."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float, formats_always: bool) -> None:
        super().__init__(params, {"lr": lr})
        self.formats_always = formats_always

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for at, p in enumerate(group["params"]):
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                momentum = state["momentum"]
                momentum.lerp_(p.grad, 0.1)
                scale = p.shape[1] ** 0.5 / (momentum.norm(dim=1) + 1e-8)
                if self.formats_always:
                    logger.debug(f"scale[{at}]: {scale}")  # flaw: debug_strings
                else:
                    logger.debug("scale[%d]: %s", at, scale)
                p.add_(momentum * scale[:, None], alpha=-group["lr"])


def debug_strings(flawed: bool, sizes: Sizes) -> Step:
    model, tokens, targets = gpt.made(sizes, **sizes.of({"layers": 6}, {}))
    matrices = [each for each in model.blocks.parameters() if each.ndim == 2]
    known = set(matrices)
    others = [each for each in model.parameters() if each not in known]
    optimizer = NormedMomentum(matrices, 1e-5, formats_always=flawed)
    adam = torch.optim.AdamW(others, lr=1e-4, fused=True)
    run = training(
        lambda: gpt.loss_of(model, tokens, targets), optimizer, sizes, after_step=(adam.step,)
    )

    def step() -> Tensor:
        adam.zero_grad()
        return run()

    return Step(step)


class CRF(nn.Module):
    """A conditional random field over tags, with sequences first."""

    def __init__(self, tags: int, loops_over_score: bool) -> None:
        super().__init__()
        self.loops_over_score = loops_over_score
        self.start = nn.Parameter(torch.randn(tags) * 0.1)
        self.transitions = nn.Parameter(torch.randn(tags, tags) * 0.1)

    def score_in_loop(self, emissions: Tensor, tags: Tensor) -> Tensor:
        batch = torch.arange(tags.shape[1], device=tags.device)
        score = self.start[tags[0]] + emissions[0, batch, tags[0]]
        for at in range(1, len(tags)):
            score = score + self.transitions[tags[at - 1], tags[at]]  # flaw: crf_score_loop
            score = score + emissions[at, batch, tags[at]]  # flaw: crf_score_loop
        return score

    def score(self, emissions: Tensor, tags: Tensor) -> Tensor:
        steps = self.transitions[tags[:-1], tags[1:]].sum(0)
        return self.start[tags[0]] + steps + emissions.gather(2, tags[..., None])[..., 0].sum(0)

    def normalizer(self, emissions: Tensor) -> Tensor:
        score = self.start + emissions[0]
        for emission in emissions[1:]:
            score = torch.logsumexp(score[:, :, None] + self.transitions, 1) + emission
        return torch.logsumexp(score, 1)

    def forward(self, emissions: Tensor, tags: Tensor) -> Tensor:
        score = self.score_in_loop if self.loops_over_score else self.score
        return (self.normalizer(emissions) - score(emissions, tags)).mean()


class Tagger(nn.Module):
    """A bidirectional LSTM with a CRF over its emissions."""

    def __init__(self, words: int, width: int, tags: int, loops_over_score: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, 2, bidirectional=True)
        self.out = nn.Linear(2 * width, tags)
        self.crf = CRF(tags, loops_over_score)

    def forward(self, tokens: Tensor, tags: Tensor) -> Tensor:
        return self.crf(self.out(self.lstm(self.words(tokens))[0]), tags)


def crf_score_loop(flawed: bool, sizes: Sizes) -> Step:
    words, width, kinds, length, batch = sizes.of((20000, 512, 24, 64, 128), (50, 8, 4, 6, 2))
    model = seeded(lambda: Tagger(words, width, kinds, flawed), sizes)
    tokens, tags = seeded(
        lambda: (
            torch.randint(0, words, (length, batch)),
            torch.randint(0, kinds, (length, batch)),
        ),
        sizes,
    )
    optimizer = fused_adamw(model)
    return Step(training(lambda: model(tokens, tags), optimizer, sizes, is_mixed=False))
