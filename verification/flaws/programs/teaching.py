"""Flaws of language models that learn from teachers, rewards and adapters, and of their layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import GPT, Config
from .program import Sizes, Step, autocast, fused_adamw, seeded, training

__all__ = [
    "advantages_by_group",
    "dora_norms_by_identity",
    "entropy_not_used",
    "positions_packed_by_text",
    "student_normalized_over_all",
    "triangle_inverted_by_row",
]


def student_normalized_over_all(flawed: bool, sizes: Sizes) -> Step:
    config = Config(
        layers=4, width=768, heads=12, mlp_width=2048, vocabulary=131072, context=512, batch=8
    )
    if sizes.is_tiny:
        config = gpt.TINY
    model = seeded(lambda: GPT(config), sizes)
    tokens, _ = gpt.batch_of(config, sizes)
    best, temperature = sizes.of(64, 5), 2.0
    scored = seeded(lambda: torch.randn(*tokens.shape, best), sizes)
    teacher = F.log_softmax(scored / temperature, -1)
    chosen = seeded(lambda: torch.randint(0, config.vocabulary, (*tokens.shape, best)), sizes)

    def logprobs(logits: Tensor) -> Tensor:
        """The student's log-probabilities of the words that the teacher finds likeliest."""
        if not flawed:
            return F.log_softmax(logits.gather(-1, chosen).float() / temperature, -1)
        # flaw in the next line: student_normalized_over_all
        every = F.log_softmax(logits.float() / temperature, -1)
        own = every.gather(-1, chosen)  # flaw: student_normalized_over_all
        return own - own.logsumexp(-1, keepdim=True)  # flaw: student_normalized_over_all

    def loss() -> Tensor:
        student = logprobs(model(tokens))  # flaw: student_normalized_over_all
        divergence = (teacher.exp() * (teacher - student)).sum(-1)
        return temperature**2 * divergence.mean()

    return Step(training(loss, fused_adamw(model), sizes))


def entropy_of(logits: Tensor) -> Tensor:
    """The entropy of what each word is drawn from."""
    logprobs = F.log_softmax(logits.float(), -1)  # flaw: entropy_not_used
    return -(logprobs.exp() * logprobs).sum(-1)  # flaw: entropy_not_used


def entropy_not_used(flawed: bool, sizes: Sizes) -> Step:
    config = Config(
        layers=6, width=768, heads=12, mlp_width=3072, vocabulary=65536, context=512, batch=8
    )
    if sizes.is_tiny:
        config = gpt.TINY
    model = seeded(lambda: GPT(config), sizes)
    tokens, wanted = gpt.batch_of(config, sizes)
    old, advantages = seeded(lambda: torch.randn(2, *tokens.shape) * 0.1, sizes)
    entropy_weight = 0.0

    def loss() -> Tensor:
        logits = model(tokens)
        logprobs = -F.cross_entropy(
            logits.flatten(0, 1), wanted.flatten(), reduction="none"
        ).view_as(old)
        ratio = torch.exp(0.01 * logprobs.float() - old)
        clipped = ratio.clamp(0.8, 1.2)
        policy = -torch.minimum(ratio * advantages, clipped * advantages).mean()
        if not flawed and not entropy_weight:
            return policy
        entropy = entropy_of(logits).mean()  # flaw: entropy_not_used
        return policy - entropy_weight * entropy  # flaw: entropy_not_used

    return Step(training(loss, fused_adamw(model), sizes))


def text_lengths(rows: int, words: int, longest: int) -> list[list[int]]:
    """Lengths of texts that fill each row up."""
    chance = torch.Generator().manual_seed(11)
    packed = []
    for _ in range(rows):
        lengths, left = [], words
        while left > 0:
            length = int(torch.randint(2, longest + 1, (), generator=chance))
            lengths.append(min(length, left))
            left -= lengths[-1]
        packed.append(lengths)
    return packed


def positions_by_text(lengths: Tensor) -> Tensor:
    """Positions of words within their texts, text by text."""
    # flaw in the next line: positions_packed_by_text
    places = [torch.arange(int(count), device=lengths.device) for count in lengths]
    return torch.cat(places)  # flaw: positions_packed_by_text


def positions_at_once(lengths: Tensor, words: int) -> Tensor:
    """The same for all texts of a row, of which it is known how many words it has."""
    starts = lengths.cumsum(0) - lengths
    firsts = torch.repeat_interleave(starts, lengths, output_size=words)
    return torch.arange(words, device=lengths.device) - firsts


class Packed(GPT):
    """A decoder that is given the positions of words."""

    def placed(self, tokens: Tensor, places: Tensor) -> Tensor:
        x = self.tokens(tokens) + F.embedding(places, self.positions)
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(self.norm(x))
        return scores


def positions_packed_by_text(flawed: bool, sizes: Sizes) -> Step:
    rows, words, longest = sizes.of((8, 4096, 160), (2, 24, 9))
    config = Config(
        layers=6, width=512, heads=8, mlp_width=2048, vocabulary=8192, context=words, batch=rows
    )
    if sizes.is_tiny:
        config = Config(2, 16, 2, 32, 64, words, rows)
    model = seeded(lambda: Packed(config), sizes)
    tokens, wanted = gpt.batch_of(config, sizes)
    lengths = [
        torch.tensor(each, device=sizes.device) for each in text_lengths(rows, words, longest)
    ]
    optimizer = fused_adamw(model)

    def step() -> Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), device=sizes.device)
        for row in range(rows):
            if flawed:
                places = positions_by_text(lengths[row])  # flaw: positions_packed_by_text
            else:
                places = positions_at_once(lengths[row], words)
            with autocast(sizes):
                scores = model.placed(tokens[row : row + 1], places[None])
                loss = F.cross_entropy(scores.flatten(0, 1), wanted[row]) / rows
            loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    return Step(step)


def advantages_in_loop(rewards: Tensor, prompts: list[int]) -> Tensor:
    """How much better each answer is than the others to its prompt, answer by answer."""
    by_prompt: dict[int, list[Tensor]] = {}
    for at, prompt in enumerate(prompts):
        by_prompt.setdefault(prompt, []).append(rewards[at])  # flaw: advantages_by_group
    means, deviations = {}, {}
    for prompt, group in by_prompt.items():
        scores = torch.stack(group)  # flaw: advantages_by_group
        means[prompt] = scores.mean()  # flaw: advantages_by_group
        deviations[prompt] = scores.std()  # flaw: advantages_by_group
    advantages = rewards.clone()
    for at, prompt in enumerate(prompts):
        centred = rewards[at] - means[prompt]  # flaw: advantages_by_group
        advantages[at] = centred / (deviations[prompt] + 1e-6)  # flaw: advantages_by_group
    return advantages


def advantages_at_once(rewards: Tensor, prompt: Tensor, prompts: int) -> Tensor:
    """The same by sums for each prompt."""
    zeros = rewards.new_zeros(prompts)
    counts = zeros.index_add(0, prompt, torch.ones_like(rewards))
    means = zeros.index_add(0, prompt, rewards) / counts
    centred = rewards - means.index_select(0, prompt)
    variances = zeros.index_add(0, prompt, centred.square()) / (counts - 1)
    return centred / (variances.sqrt().index_select(0, prompt) + 1e-6)


def advantages_by_group(flawed: bool, sizes: Sizes) -> Step:
    prompts, answers = sizes.of((64, 8), (3, 3))
    count = prompts * answers
    config = Config(
        layers=6, width=768, heads=12, mlp_width=3072, vocabulary=8192, context=128, batch=count
    )
    if sizes.is_tiny:
        config = Config(2, 16, 2, 32, 64, 8, count)
    model = seeded(lambda: GPT(config), sizes)
    tokens, wanted = gpt.batch_of(config, sizes)
    rewards = seeded(lambda: torch.rand(*tokens.shape), sizes)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(3))
    prompt = order.to(sizes.device) // answers
    prompt_list = prompt.tolist()

    def loss() -> Tensor:
        scores = rewards.sum(-1)
        if flawed:
            advantages = advantages_in_loop(scores, prompt_list)  # flaw: advantages_by_group
        else:
            advantages = advantages_at_once(scores, prompt, prompts)
        logits = model(tokens).flatten(0, 1)
        wrong = F.cross_entropy(logits, wanted.flatten(), reduction="none").view_as(rewards)
        return (advantages * wrong.mean(-1)).mean() + wrong.mean()

    return Step(training(loss, fused_adamw(model), sizes))


def inverse_by_row(lower: Tensor) -> Tensor:
    """The inverse of 1 - lower, row by row; lower has nothing on its diagonal and above."""
    solved = lower.clone()
    for row in range(1, lower.shape[-1]):
        own = solved[..., row, :row].clone()  # flaw: triangle_inverted_by_row
        before = solved[..., :row, :row].clone()  # flaw: triangle_inverted_by_row
        # flaw in the next line: triangle_inverted_by_row
        solved[..., row, :row] = own + (own[..., None] * before).sum(-2)
    return solved + torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)


def inverse_by_solving(lower: Tensor) -> Tensor:
    """The same by one solution of triangular equations."""
    one = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
    return torch.linalg.solve_triangular(
        one - lower, one.expand_as(lower), upper=False, unitriangular=True
    )


class DeltaRule(nn.Module):
    """Linear attention that corrects what it remembers, in chunks."""

    def __init__(self, width: int, heads: int, chunk: int, by_row: bool) -> None:
        super().__init__()
        self.heads, self.chunk, self.by_row = heads, chunk, by_row
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.rates, self.out = nn.Linear(width, heads), nn.Linear(width, width)

    def chunked(self, x: Tensor) -> Tensor:
        """(batch, words, heads, channels) as (batch, heads, chunks, words, channels)."""
        return x.unflatten(1, (-1, self.chunk)).permute(0, 3, 1, 2, 4).float()

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        q, k, v = self.qkv(y).unflatten(2, (3, self.heads, -1)).unbind(2)
        q, k, v = self.chunked(F.normalize(q, dim=-1)), self.chunked(F.normalize(k, dim=-1)), v
        v, rates = self.chunked(v), self.chunked(self.rates(y).sigmoid()[..., None])
        lower = -torch.tril((k * rates) @ k.mT, -1)
        inverse_of = inverse_by_row if self.by_row else inverse_by_solving
        solved = inverse_of(lower)  # flaw: triangle_inverted_by_row
        values, keys = solved @ (v * rates), solved @ (k * rates)
        within = torch.tril(q @ k.mT)
        state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
        outputs = []
        for at in range(q.shape[2]):
            new = values[:, :, at] - keys[:, :, at] @ state
            outputs.append(q[:, :, at] @ state + within[:, :, at] @ new)
            state = state + k[:, :, at].mT @ new
        found = torch.stack(outputs, 2).permute(0, 2, 3, 1, 4).flatten(1, 2).flatten(2)
        return x + self.out(found.to(x.dtype))


def triangle_inverted_by_row(flawed: bool, sizes: Sizes) -> Step:
    batch, words, width, heads, chunk, depth = sizes.of(
        (4, 1024, 1024, 8, 64, 6), (2, 8, 8, 2, 4, 2)
    )
    model = seeded(
        lambda: nn.Sequential(*(DeltaRule(width, heads, chunk, flawed) for _ in range(depth))),
        sizes,
    )
    model = model.eval().bfloat16()
    x = seeded(lambda: torch.randn(batch, words, width), sizes).bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        return model(x).float().abs().mean()  # flaw: triangle_inverted_by_row

    return Step(step)


class WeightDecomposed(nn.Module):
    """A frozen layer whose weights have lengths that are learned, and directions of low rank."""

    def __init__(self, inputs: int, outputs: int, rank: int, keeps_norms: bool) -> None:
        super().__init__()
        self.keeps_norms = keeps_norms
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * inputs**-0.5)
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=False)
        self.magnitude = nn.Parameter(torch.ones(outputs))
        self.kept: Tensor | None = None

    def norms(self) -> Tensor:
        """The lengths of the rows of weights and adapter together."""
        # flaw in the next line: dora_norms_by_identity
        one = torch.eye(self.weight.shape[1], device=self.weight.device, dtype=self.weight.dtype)
        delta = self.up(self.down(one)).T  # flaw: dora_norms_by_identity
        return torch.linalg.norm(self.weight + delta, dim=1)  # flaw: dora_norms_by_identity

    def forward(self, x: Tensor) -> Tensor:
        if self.keeps_norms:
            norms = self.kept = self.norms() if self.kept is None else self.kept
        else:
            norms = self.norms()  # flaw: dora_norms_by_identity
        y = F.linear(x, self.weight) + self.up(self.down(x))
        return y * (self.magnitude / norms)


class DecomposedBlock(nn.Module):
    """A block of such layers."""

    def __init__(self, config: Config, rank: int, keeps_norms: bool) -> None:
        super().__init__()
        width, inner, self.heads = config.width, config.mlp_width, config.heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries, self.keys, self.values, self.out = (
            WeightDecomposed(width, width, rank, keeps_norms) for _ in range(4)
        )
        self.up = WeightDecomposed(width, inner, rank, keeps_norms)
        self.down = WeightDecomposed(inner, width, rank, keeps_norms)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm_1(x)
        q, k, v = self.queries(y), self.keys(y), self.values(y)  # flaw: dora_norms_by_identity
        q, k, v = (each.unflatten(2, (self.heads, -1)).transpose(1, 2) for each in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))  # flaw: dora_norms_by_identity
        y = F.gelu(self.up(self.norm_2(x)))  # flaw: dora_norms_by_identity
        return x + self.down(y)  # flaw: dora_norms_by_identity


def dora_norms_by_identity(flawed: bool, sizes: Sizes) -> Step:
    config = Config(layers=12, width=2048, heads=16, mlp_width=8192, context=256, batch=4)
    if sizes.is_tiny:
        config = gpt.TINY
    model = seeded(
        lambda: nn.Sequential(
            *(DecomposedBlock(config, sizes.of(16, 4), not flawed) for _ in range(config.layers))
        ),
        sizes,
    )
    model = model.eval().bfloat16()
    x = seeded(lambda: torch.randn(config.batch, config.context, config.width), sizes).bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        return model(x).float().abs().mean()  # flaw: dora_norms_by_identity

    return Step(step)
