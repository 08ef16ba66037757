"""Flaws of language models in training: routers, retention, windows, and a contrastive loss."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import Config
from .language import EncoderBlock
from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "balance_one_hot",
    "class_weights_in_loop",
    "keys_unfolded_for_windows",
    "outer_products_summed",
]


class Experts(nn.Module):
    """Experts of which each token has a few, with room for so many tokens each."""

    def __init__(self, width: int, experts: int, each: int, room: int) -> None:
        super().__init__()
        self.each, self.room = each, room
        self.norm = nn.LayerNorm(width)
        self.gate = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, width, width) * width**-0.5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens (n, width), and the scores of all experts for each."""
        h = self.norm(x)
        scores = self.gate(h).float()
        weights, chosen = scores.softmax(1).topk(self.each, 1)
        expert, order = chosen.flatten().sort(stable=True)
        every = torch.arange(len(self.up), device=x.device)
        place = torch.arange(len(order), device=x.device)
        place = place - torch.searchsorted(expert, every)[expert]
        rows = len(self.up) * self.room
        slots = torch.where(place < self.room, expert * self.room + place, rows)
        mine = h.index_select(0, order // self.each)
        inputs = mine.new_zeros(rows + 1, h.shape[1]).index_copy(0, slots, mine)
        y = F.gelu(torch.bmm(inputs[:-1].unflatten(0, (-1, self.room)), self.up)).bmm(self.down)
        y = F.pad(y.flatten(0, 1), (0, 0, 0, 1)).index_select(0, slots)
        y = y * weights.flatten().index_select(0, order)[:, None]
        return x.index_add(0, order // self.each, y.to(x.dtype)), scores


def balance_of_all(scores: list[Tensor], present: Tensor, each: int) -> Tensor:
    """The loss that balances experts, of all layers in one tensor, as transformers has it."""
    layers, experts = len(scores), scores[0].shape[1]
    weights = torch.cat(scores).softmax(1)  # flaw: balance_one_hot
    chosen = weights.topk(each, 1).indices  # flaw: balance_one_hot
    mask = F.one_hot(chosen, experts)  # flaw: balance_one_hot
    # flaw in the next line: balance_one_hot
    there = present[None, :, None, None].expand(layers, -1, each, experts).reshape(mask.shape)
    # flaw in the next line: balance_one_hot
    tokens = (mask.float() * there).sum(0) / there.sum(0)
    # flaw in the next line: balance_one_hot
    rows = present[None, :, None].expand(layers, -1, experts).reshape(-1, experts)
    chances = (weights * rows).sum(0) / rows.sum(0)  # flaw: balance_one_hot
    return (tokens * chances).sum() * experts


def balance_by_layer(scores: list[Tensor], present: Tensor, each: int) -> Tensor:
    """The same from the counts of each layer."""
    layers, experts = len(scores), scores[0].shape[1]
    tokens = torch.zeros(each * experts, device=present.device)
    chances = torch.zeros(experts, device=present.device)
    rank = torch.arange(each, device=present.device) * experts
    there = present.float()
    for score in scores:
        weights = score.softmax(1)
        at = weights.topk(each, 1).indices + rank
        tokens = tokens.index_add(0, at.flatten(), there.repeat_interleave(each))
        chances = chances + there @ weights
    total = there.sum() * layers
    return (tokens.view(each, experts) / total * chances / total).sum() * experts


def balance_one_hot(flawed: bool, sizes: Sizes) -> Step:
    width, experts, each, layers, tokens = sizes.of((256, 128, 8, 12, 8192), (8, 4, 2, 2, 20))
    room, vocabulary = sizes.of((640, 16_384), (12, 20))
    table = seeded(lambda: nn.Embedding(vocabulary, width), sizes)
    blocks = seeded(
        lambda: nn.ModuleList(Experts(width, experts, each, room) for _ in range(layers)), sizes
    )
    head = seeded(lambda: nn.Linear(width, vocabulary, bias=False), sizes)
    text = seeded(lambda: torch.randint(0, vocabulary, (tokens + 1,)), sizes)
    present = (torch.arange(tokens, device=sizes.device) % 16 != 15).long()
    balance = balance_of_all if flawed else balance_by_layer

    def loss() -> Tensor:
        x, scores = table(text[:-1]), []
        for block in blocks:
            x, score = block(x)
            scores.append(score)
        found = F.cross_entropy(head(x).float(), text[1:])
        # flaw in the next line: balance_one_hot
        return found + 0.01 * balance(scores, present, each)

    modules = nn.ModuleList((table, blocks, head))
    return Step(training(loss, fused_adamw(modules), sizes))


class Retention(nn.Module):
    """Retention in chunks: a state is passed on from chunk to chunk and fades."""

    def __init__(self, width: int, heads: int, chunk: int, by_outer: bool) -> None:
        super().__init__()
        self.heads, self.chunk, self.by_outer = heads, chunk, by_outer
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        gamma = 1 - 2.0 ** (-5 - torch.arange(heads, dtype=torch.float32))
        at = torch.arange(chunk)
        apart = (at[:, None] - at).float()
        self.register_buffer("inner", (gamma[:, None, None] ** apart).tril())
        self.register_buffer("before", gamma[:, None] ** (at + 1))
        self.register_buffer("after", gamma[:, None] ** (chunk - 1 - at))

    def new_state(self, k: Tensor, v: Tensor) -> Tensor:
        if self.by_outer:
            # flaw in the next line: outer_products_summed
            states = torch.einsum("bhnd,bhne->bhnde", k, v)
            # flaw in the next line: outer_products_summed
            return torch.einsum("bhnde,hn->bhde", states, self.after.to(k.dtype))
        faded = k * self.after[..., None].to(k.dtype)
        return torch.einsum("bhnd,bhne->bhde", faded, v)

    def forward(self, x: Tensor) -> Tensor:
        y = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        outs = []
        state = y.new_zeros(len(x), self.heads, y.shape[-1], y.shape[-1], dtype=torch.float32)
        for q, k, v in zip(*(each.split(self.chunk, 2) for each in y), strict=True):
            q = q * q.shape[-1] ** -0.5
            seen = (q @ k.mT * self.inner.to(q.dtype)) @ v
            past = q @ state.to(q.dtype) * self.before[..., None].to(q.dtype)
            outs.append(seen + past)
            fresh = self.new_state(k, v)  # flaw: outer_products_summed
            state = state * self.before[:, -1:, None] + fresh
        y = torch.cat(outs, 2)
        y = F.layer_norm(y, y.shape[-1:]).transpose(1, 2).flatten(2)
        return x + self.out(y)


class FeedForward(nn.Module):
    """The other half of a block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def outer_products_summed(flawed: bool, sizes: Sizes) -> Step:
    batch, length, chunk, vocabulary = sizes.of((4, 2048, 512, 32_000), (2, 12, 4, 20))
    width, heads, layers = sizes.of((512, 8, 6), (8, 2, 2))
    table = seeded(lambda: nn.Embedding(vocabulary, width), sizes)

    def made() -> nn.Sequential:
        pairs = [
            (Retention(width, heads, chunk, flawed), FeedForward(width)) for _ in range(layers)
        ]
        return nn.Sequential(*(module for pair in pairs for module in pair))

    blocks, head = seeded(made, sizes), seeded(lambda: nn.Linear(width, vocabulary), sizes)
    text = seeded(lambda: torch.randint(0, vocabulary, (batch, length + 1)), sizes)

    def loss() -> Tensor:
        scores = head(blocks(table(text[:, :-1])))
        return F.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())

    modules = nn.ModuleList((table, blocks, head))
    return Step(training(loss, fused_adamw(modules), sizes))


class WindowedAttention(nn.Module):
    """Attention of each base to those that are near."""

    def __init__(self, width: int, heads: int, near: int, chunk: int, by_unfolding: bool) -> None:
        super().__init__()
        self.heads, self.near, self.chunk = heads, near, chunk
        self.by_unfolding = by_unfolding
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def unfolded(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Queries, keys and values (batch, length, heads, channels)."""
        length, near = q.shape[1], self.near
        pad = (0, 0, 0, 0, near, near)
        # flaw in the next line: keys_unfolded_for_windows
        k = F.pad(k, pad).unfold(1, length, 1).contiguous()
        # flaw in the next line: keys_unfolded_for_windows
        v = F.pad(v, pad).unfold(1, length, 1).contiguous()
        at = torch.arange(length, device=q.device)
        other = at[:, None] + torch.arange(-near, near + 1, device=q.device)
        outside = ((other < 0) | (other >= length))[None, :, :, None]
        # flaw in the next line: keys_unfolded_for_windows
        scores = torch.einsum("bqnh,bknhq->bqkn", q, k) * q.shape[-1] ** -0.5
        # flaw in the next line: keys_unfolded_for_windows
        weights = scores.masked_fill(outside, -1e4).softmax(2).to(v.dtype)
        # flaw in the next line: keys_unfolded_for_windows
        return torch.einsum("bqkn,bknhq->bqnh", weights, v)

    def chunked(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The same by products of chunks of queries with the keys around them."""
        batch, length = q.shape[:2]
        near, size = self.near, self.chunk
        around = size + 2 * near
        pad = (0, 0, 0, 0, near, near)
        k, v = (F.pad(each, pad).unfold(1, around, size) for each in (k, v))
        q = q.unflatten(1, (-1, size)).transpose(2, 3)
        at = torch.arange(around, device=q.device) - near
        mine = torch.arange(size, device=q.device)[:, None]
        start = torch.arange(0, length, size, device=q.device)[:, None, None]
        seen = ((at - mine).abs() <= near) & (start + at >= 0) & (start + at < length)
        mask = seen[None, :, None].expand(batch, -1, 1, -1, -1).flatten(0, 1)
        q, k, v = q.flatten(0, 1), k.mT.flatten(0, 1), v.mT.flatten(0, 1)
        y = F.scaled_dot_product_attention(q, k, v, mask)
        return y.unflatten(0, (batch, -1)).transpose(2, 3).flatten(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        attend = self.unfolded if self.by_unfolding else self.chunked
        y = attend(q, k, v)  # flaw: keys_unfolded_for_windows
        return x + self.out(y.flatten(2))


def keys_unfolded_for_windows(flawed: bool, sizes: Sizes) -> Step:
    batch, length, near, chunk = sizes.of((4, 4096, 16, 64), (2, 16, 2, 4))
    width, heads, layers = sizes.of((256, 8, 4), (8, 2, 2))

    def made() -> nn.Sequential:
        pairs = [
            (WindowedAttention(width, heads, near, chunk, flawed), FeedForward(width))
            for _ in range(layers)
        ]
        return nn.Sequential(*(module for pair in pairs for module in pair))

    table = seeded(lambda: nn.Embedding(8, width), sizes)
    blocks, head = seeded(made, sizes), seeded(lambda: nn.Linear(width, 2), sizes)
    bases, labels = seeded(
        lambda: (torch.randint(0, 5, (batch, length)), torch.randint(0, 2, (batch, length))), sizes
    )

    def loss() -> Tensor:
        scores = head(blocks(table(bases)))
        return F.cross_entropy(scores.float().flatten(0, 1), labels.flatten())

    modules = nn.ModuleList((table, blocks, head))
    return Step(training(loss, fused_adamw(modules), sizes))


class TextEncoder(nn.Module):
    """A vector of each text and, of another head, the chances of its classes."""

    def __init__(self, config: Config, classes: int) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.Sequential(*(EncoderBlock(config) for _ in range(config.layers)))
        self.project = nn.Linear(config.width, 128)
        self.weigh = nn.Linear(config.width, classes)

    def forward(self, text: Tensor) -> tuple[Tensor, Tensor]:
        x = self.blocks(self.words(text)).mean(1)
        return F.normalize(self.project(x).float(), dim=1), self.weigh(x).float()


def weights_in_loop(chances: Tensor, labels: Tensor) -> Tensor:
    """How easily each text is taken for the class of each other text."""
    weights = torch.zeros(len(chances), len(labels), device=chances.device)
    for at in range(len(labels)):
        # flaw in the next line: class_weights_in_loop
        weights[:, at] = chances[:, labels[at]]
    return weights


def weights_by_index(chances: Tensor, labels: Tensor) -> Tensor:
    """The same at once."""
    return chances.index_select(1, labels)


def class_weights_in_loop(flawed: bool, sizes: Sizes) -> Step:
    config = Config(layers=12, width=768, context=32)
    if sizes.is_tiny:
        config = gpt.TINY
    batch, classes = sizes.of((256, 32), (6, 3))
    model = seeded(lambda: TextEncoder(config, classes), sizes)
    text, labels = seeded(
        lambda: (
            torch.randint(0, config.vocabulary, (batch, config.context)),
            torch.randint(0, classes, (batch,)),
        ),
        sizes,
    )
    weigh = weights_in_loop if flawed else weights_by_index
    others = ~torch.eye(batch, dtype=torch.bool, device=sizes.device)

    def loss() -> Tensor:
        vectors, scores = model(text)
        weights = weigh(scores.softmax(1), labels)  # flaw: class_weights_in_loop
        alike = (vectors @ vectors.T / 0.3).float()
        below = (alike.exp() * weights * others).sum(1, keepdim=True)
        same = (labels[:, None] == labels) & others
        found = (torch.log(below) - alike) * same
        contrast = (found.sum(1) / same.sum(1).clamp(min=1)).mean()
        return contrast + F.cross_entropy(scores, labels)

    return Step(training(loss, fused_adamw(model), sizes))
