"""Flaws of language models that are tuned, and of what is put into them or read out of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import GPT, Block, Config
from .program import Sizes, Step, autocast, fused_adamw, seeded, training
from .vision import ViT, images_of, labels_of

__all__ = [
    "adapters_in_float32",
    "experts_gathered_by_element",
    "logits_of_prompts",
    "logprobs_of_sliced_logits",
    "micro_batches_unsorted",
    "optimizer_not_fused",
    "sparse_codes_decoded_densely",
]


def logprobs_of_slice(logits: Tensor, tokens: Tensor) -> Tensor:
    """Log-probabilities of the words that follow: the last word's logits are cut off before."""
    chances = F.log_softmax(logits[:, :-1], -1)  # flaw: logprobs_of_sliced_logits
    # flaw in the next line: logprobs_of_sliced_logits
    return chances.gather(-1, tokens[:, 1:, None]).squeeze(-1)


def logprobs_of_all(logits: Tensor, tokens: Tensor) -> Tensor:
    """The same, where what follows the last word is cut off behind."""
    chances = F.log_softmax(logits, -1)
    return chances.gather(-1, tokens.roll(-1, 1)[..., None]).squeeze(-1)[:, :-1]


def logprobs_of_sliced_logits(flawed: bool, sizes: Sizes) -> Step:
    config = Config(layers=6, width=512, heads=8, mlp_width=2048)
    if sizes.is_tiny:
        config = gpt.TINY
    model = seeded(lambda: GPT(config), sizes).bfloat16()
    tokens, _ = gpt.batch_of(config, sizes)
    before, advantages = seeded(
        lambda: torch.randn(2, config.batch, config.context - 1) * 0.1, sizes
    )
    logprobs_of = logprobs_of_slice if flawed else logprobs_of_all

    def loss() -> Tensor:
        logprobs = logprobs_of(model(tokens), tokens)  # flaw: logprobs_of_sliced_logits
        ratio = torch.exp(0.01 * logprobs.float() - before)
        clipped = ratio.clamp(0.8, 1.2)
        return -torch.minimum(ratio * advantages, clipped * advantages).mean()

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


class Answering(nn.Module):
    """A decoder whose head is a method of its own."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.norm(self.blocks(self.tokens(tokens)))


def logits_of_prompts(flawed: bool, sizes: Sizes) -> Step:
    config = Config(layers=6, vocabulary=65536, context=1024, batch=12)
    if sizes.is_tiny:
        config = gpt.TINY
    model = seeded(lambda: Answering(config), sizes)
    tokens, wanted = gpt.batch_of(config, sizes)
    prompt = config.context * 3 // 4
    labels = wanted.clone()
    labels[:, :prompt] = -100
    places = torch.arange(tokens.numel(), device=tokens.device).view_as(tokens)
    places = places[:, prompt:].flatten()

    def loss() -> Tensor:
        x, answers = model(tokens).flatten(0, 1), labels.flatten()
        if not flawed:
            x, answers = x.index_select(0, places), answers.index_select(0, places)
        logits = model.head(x)  # flaw: logits_of_prompts
        return F.cross_entropy(logits.float(), answers)  # flaw: logits_of_prompts

    return Step(training(loss, fused_adamw(model), sizes))


def lengths_of(count: int, longest: int) -> list[int]:
    """Most texts are short, and a few are long."""
    chance = torch.Generator().manual_seed(5)
    parts = torch.rand(count, generator=chance) ** 2.5
    return [max(4, int(longest * part)) for part in parts.tolist()]


def padded(texts: list[Tensor], end: int, value: int) -> Tensor:
    """Texts as rows of the length of the longest."""
    rows = [F.pad(text[:end], (0, end - len(text[:end])), value=value) for text in texts]
    return torch.stack(rows)


def micro_batches_unsorted(flawed: bool, sizes: Sizes) -> Step:
    count, size, longest = sizes.of((32, 4, 1024), (6, 2, 24))
    model, _, _ = gpt.made(sizes, layers=sizes.of(8, 2))
    optimizer, chance = fused_adamw(model), torch.Generator().manual_seed(6)
    vocabulary = model.config.vocabulary
    texts = [
        torch.randint(0, vocabulary, (length,), generator=chance)
        for length in lengths_of(count, longest)
    ]
    if not flawed:
        texts = sorted(texts, key=len)
    batches = []
    for first in range(0, count, size):
        some = texts[first : first + size]
        end = max(map(len, some)) - 1
        given, wanted = padded(some, end, 0), padded([text[1:] for text in some], end, -100)
        batches.append((given.to(sizes.device), wanted.to(sizes.device)))
    words = sum(len(text) - 1 for text in texts)

    def step() -> Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), device=sizes.device)
        for given, wanted in batches:
            with autocast(sizes):
                scores = model(given).flatten(0, 1)  # flaw: micro_batches_unsorted
                # flaw in the next line: micro_batches_unsorted
                loss = F.cross_entropy(scores, wanted.flatten(), reduction="sum") / words
            loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    return Step(step)


class AdaptedLinear(nn.Module):
    """A frozen layer, and an adapter of low rank added to it."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs)
        self.down = nn.Parameter(torch.randn(rank, inputs) * inputs**-0.5)
        self.up = nn.Parameter(torch.randn(outputs, rank) * 0.01)

    def forward(self, x: Tensor) -> Tensor:
        y = x.to(self.down.dtype)  # flaw: adapters_in_float32
        y = F.linear(F.linear(y, self.down), self.up)  # flaw: adapters_in_float32
        return self.base(x) + y.to(x.dtype)  # flaw: adapters_in_float32


class AdaptedBlock(nn.Module):
    """A block of a decoder of which each layer has an adapter."""

    def __init__(self, config: Config, rank: int) -> None:
        super().__init__()
        width, self.heads = config.width, config.heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries, self.keys = (AdaptedLinear(width, width, rank) for _ in range(2))
        self.values, self.out = (AdaptedLinear(width, width, rank) for _ in range(2))
        self.up = AdaptedLinear(width, config.mlp_width, rank)
        self.down = AdaptedLinear(config.mlp_width, width, rank)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm_1(x)
        q, k, v = self.queries(y), self.keys(y), self.values(y)  # flaw: adapters_in_float32
        q, k, v = (each.unflatten(2, (self.heads, -1)).transpose(1, 2) for each in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))  # flaw: adapters_in_float32
        y = F.gelu(self.up(self.norm_2(x)))  # flaw: adapters_in_float32
        return x + self.down(y)  # flaw: adapters_in_float32


class Adapted(nn.Module):
    """A frozen decoder with adapters."""

    def __init__(self, config: Config, rank: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.Sequential(*(AdaptedBlock(config, rank) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.tokens(tokens))))


def adapters_in_float32(flawed: bool, sizes: Sizes) -> Step:
    config = Config(layers=8, width=1024, heads=16, mlp_width=4096, vocabulary=8192, batch=8)
    if sizes.is_tiny:
        config = gpt.TINY
    model = seeded(lambda: Adapted(config, sizes.of(16, 4)), sizes).bfloat16()
    tokens, wanted = gpt.batch_of(config, sizes)
    model.requires_grad_(False)
    adapters = []
    for module in model.modules():
        if isinstance(module, AdaptedLinear):
            for weight in (module.down, module.up):
                weight.data = weight.data.float() if flawed else weight.data
                adapters.append(weight.requires_grad_())
    optimizer = torch.optim.AdamW(adapters, lr=1e-4, fused=True)

    def loss() -> Tensor:
        return F.cross_entropy(model(tokens).float().flatten(0, 1), wanted.flatten())

    return Step(training(loss, optimizer, sizes, is_mixed=False))


class Experts(nn.Module):
    """Experts each of which picks the words that it scores best."""

    def __init__(self, width: int, inner: int, experts: int, picks: int, by_element: bool) -> None:
        super().__init__()
        self.picks, self.by_element = picks, by_element
        self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, inner) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, width) * inner**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        weights, chosen = self.router(y).float().softmax(1).topk(self.picks, 0)
        weights, chosen = weights.T.unsqueeze(2).to(x.dtype), chosen.T.flatten()
        if self.by_element:
            every = chosen[:, None].expand(-1, x.shape[1])
            routed = torch.gather(y, 0, every)  # flaw: experts_gathered_by_element
        else:
            routed = y.index_select(0, chosen)
        routed = routed.view(len(self.up), self.picks, -1)
        routed = torch.bmm(F.silu(torch.bmm(routed, self.up)), self.down) * weights
        routed = routed.flatten(0, 1)
        if self.by_element:
            return x.scatter_add(0, every, routed)  # flaw: experts_gathered_by_element
        return x.index_add(0, chosen, routed)


def experts_gathered_by_element(flawed: bool, sizes: Sizes) -> Step:
    words, width, inner, experts = sizes.of((8192, 2048, 768, 64), (12, 8, 8, 3))
    layers, picks = sizes.of((4, 1024), (2, 4))
    model = seeded(
        lambda: nn.Sequential(
            *(Experts(width, inner, experts, picks, flawed) for _ in range(layers))
        ),
        sizes,
    )
    model = model.eval().bfloat16()
    x = seeded(lambda: torch.randn(words, width), sizes).bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        return model(x).float().abs().mean()  # flaw: experts_gathered_by_element

    return Step(step)


def optimizer_not_fused(flawed: bool, sizes: Sizes) -> Step:
    layers, width, heads, batch = sizes.of((24, 1024, 16, 16), (2, 16, 2, 2))
    model = seeded(lambda: ViT(layers, width, heads), sizes)
    images = images_of(sizes, batch)
    labels = labels_of(images)
    if flawed:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> Tensor:
        optimizer.zero_grad()
        with autocast(sizes):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()  # flaw: optimizer_not_fused
        return loss.detach()

    return Step(step)


class SparseCoder(nn.Module):
    """Activations as sums of few of many features."""

    def __init__(self, width: int, features: int, active: int, is_dense: bool) -> None:
        super().__init__()
        self.active, self.is_dense = active, is_dense
        self.encoder = nn.Linear(width, features)
        self.decoder = nn.Parameter(torch.randn(features, width) * width**-0.5)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.encoder(x - self.bias)
        strengths, chosen = scores.topk(self.active, -1, sorted=False)
        strengths = F.relu(strengths)
        if self.is_dense:
            # flaw in the next line: sparse_codes_decoded_densely
            codes = torch.zeros_like(scores).scatter(-1, chosen, strengths)
            return codes @ self.decoder + self.bias  # flaw: sparse_codes_decoded_densely
        decoded = F.embedding_bag(chosen, self.decoder, per_sample_weights=strengths, mode="sum")
        return decoded + self.bias


def sparse_codes_decoded_densely(flawed: bool, sizes: Sizes) -> Step:
    batch, width, features, active = sizes.of((8192, 1024, 32768, 32), (6, 8, 24, 3))
    model = seeded(lambda: SparseCoder(width, features, active, flawed), sizes)
    x = seeded(lambda: torch.randn(batch, width), sizes)
    if not sizes.is_tiny:  # a CPU has no such bag of bfloat16
        model, x = model.bfloat16(), x.bfloat16()

    def loss() -> Tensor:
        return F.mse_loss(model(x).float(), x.float())  # flaw: sparse_codes_decoded_densely

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))
