"""Flaws of models that look things up: recommenders, knowledge graphs, and models of DNA."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "contended_embedding",
    "einsum_of_rows",
    "embedding_max_norm",
    "interactions_over_time",
    "matmul_broadcast",
    "repeated_to_match",
]


class Interactions(nn.Module):
    """DLRM: the products of all pairs of embedded features, and a vector of them."""

    def __init__(self, rows: int, features: int, numbers: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(features))
        self.bottom = nn.Sequential(nn.Linear(numbers, 64), nn.ReLU(), nn.Linear(64, width))
        pairs = (features + 1) * features // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 64), nn.ReLU(), nn.Linear(64, width))
        self.register_buffer("pairs", torch.tril_indices(features + 1, features + 1, -1))

    def forward(self, numbers: Tensor, items: Tensor) -> Tensor:
        """A vector for each row of numbers (n, numbers) and of items (n, features)."""
        x = self.bottom(numbers)  # flaw: interactions_over_time
        # flaw in the next line: interactions_over_time
        embedded = [table(item) for table, item in zip(self.tables, items.T, strict=True)]
        both = torch.stack([x, *embedded], 1)  # flaw: interactions_over_time
        products = both @ both.transpose(1, 2)  # flaw: interactions_over_time
        chosen = products[:, self.pairs[0], self.pairs[1]]  # flaw: interactions_over_time
        return self.top(torch.cat((x, chosen), 1))  # flaw: interactions_over_time


class History(nn.Module):
    """The vectors of what a user did before, weighed by the last, as TBSM has it."""

    def __init__(self, each: Interactions, width: int, loops: bool) -> None:
        super().__init__()
        self.each, self.loops = each, loops
        self.out = nn.Sequential(nn.Linear(2 * width, 64), nn.ReLU(), nn.Linear(64, 1))

    def vectors(self, numbers: Tensor, items: Tensor) -> Tensor:
        if self.loops:
            found = []
            for at in range(numbers.shape[1]):
                # flaw in the next line: interactions_over_time
                found.append(self.each(numbers[:, at], items[:, at]))
            return torch.stack(found, 1)
        flat = self.each(numbers.flatten(0, 1), items.flatten(0, 1))
        return flat.unflatten(0, numbers.shape[:2])

    def forward(self, numbers: Tensor, items: Tensor) -> Tensor:
        x = self.vectors(numbers, items)
        last = x[:, -1:]
        weights = (x[:, :-1] @ last.transpose(1, 2)).softmax(1)
        before = (weights * x[:, :-1]).sum(1)
        return self.out(torch.cat((before, last.squeeze(1)), 1)).squeeze(1)


def interactions_over_time(flawed: bool, sizes: Sizes) -> Step:
    rows, features, numbers, width = sizes.of((20_000, 3, 8, 32), (20, 3, 4, 8))
    batch, moments = sizes.of((1024, 20), (4, 5))
    model = seeded(
        lambda: History(Interactions(rows, features, numbers, width), width, flawed), sizes
    )
    seen, items, clicks = seeded(
        lambda: (
            torch.randn(batch, moments, numbers),
            torch.randint(0, rows, (batch, moments, features)),
            torch.randint(0, 2, (batch,)).float(),
        ),
        sizes,
    )

    def loss() -> Tensor:
        return F.binary_cross_entropy_with_logits(model(seen, items), clicks)

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


class AdditiveScores(nn.Module):
    """How well each candidate fits each interest of a user, by a hidden layer of both."""

    def __init__(self, width: int, repeats: bool) -> None:
        super().__init__()
        self.repeats = repeats
        self.interest, self.candidate = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, 1)

    def forward(self, interests: Tensor, candidates: Tensor) -> Tensor:
        left, right = self.interest(interests)[:, :, None], self.candidate(candidates)[:, None]
        if self.repeats:
            count, others = left.shape[1], right.shape[2]
            left = left.repeat(1, 1, others, 1)  # flaw: repeated_to_match
            right = right.repeat(1, count, 1, 1)  # flaw: repeated_to_match
        hidden = F.relu(left + right)  # flaw: repeated_to_match
        return self.out(hidden).squeeze(-1)


def repeated_to_match(flawed: bool, sizes: Sizes) -> Step:
    users, interests, candidates, width = sizes.of((128, 16, 512, 256), (2, 2, 5, 8))
    model = seeded(lambda: AdditiveScores(width, flawed), sizes)
    left, right = seeded(
        lambda: (torch.randn(users, interests, width), torch.randn(users, candidates, width)),
        sizes,
    )
    clicked = torch.arange(users, device=sizes.device) % candidates

    def loss() -> Tensor:
        return F.cross_entropy(model(left, right).amax(1).float(), clicked)

    return Step(training(loss, fused_adamw(model), sizes))


class Translations(nn.Module):
    """TransE: a tail is its head and a relation further, and entities have a norm of at most 1."""

    def __init__(self, entities: int, relations: int, width: int, at_lookup: bool) -> None:
        super().__init__()
        largest = 1.0 if at_lookup else None
        self.entities = nn.Embedding(entities, width, max_norm=largest)
        self.relations = nn.Embedding(relations, width)

    def forward(self, triples: Tensor) -> Tensor:
        heads, relations, tails = triples.T
        start = self.entities(heads)  # flaw: embedding_max_norm
        end = self.entities(tails)  # flaw: embedding_max_norm
        return (start + self.relations(relations) - end).square().sum(1)


def embedding_max_norm(flawed: bool, sizes: Sizes) -> Step:
    entities, relations, width, batch = sizes.of((15_000, 1300, 256, 131_072), (20, 4, 8, 16))
    model = seeded(lambda: Translations(entities, relations, width, flawed), sizes)
    true, false = seeded(
        lambda: tuple(
            torch.stack(
                [torch.randint(0, count, (batch,)) for count in (entities, relations, entities)], 1
            )
            for _ in range(2)
        ),
        sizes,
    )

    def loss() -> Tensor:
        if not flawed:
            with torch.no_grad():
                model.entities.weight.renorm_(2, 0, 1.0)
        return F.relu(1 + model(true) - model(false)).mean()

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


class DilatedLayer(nn.Module):
    """A convolution over bases, of (batch, bases, channels)."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.conv = nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.gelu(self.conv(self.norm(x).transpose(1, 2)).transpose(1, 2))


class Genome(nn.Module):
    """Bases to what stands in place of hidden ones."""

    def __init__(self, width: int, depth: int, looks_up: bool) -> None:
        super().__init__()
        self.looks_up = looks_up
        self.bases = nn.Embedding(5, width)
        self.layers = nn.Sequential(*(DilatedLayer(width, 1 << at) for at in range(depth)))
        self.out = nn.Linear(width, 4)

    def forward(self, bases: Tensor) -> Tensor:
        if self.looks_up:
            x = self.bases(bases)  # flaw: contended_embedding
        else:
            weight = self.bases.weight
            x = (F.one_hot(bases, len(weight)).to(weight.dtype) @ weight).to(weight.dtype)
        return self.out(self.layers(x))


def contended_embedding(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, length = sizes.of((128, 4, 32, 16_384), (8, 2, 2, 16))
    model = seeded(lambda: Genome(width, depth, flawed), sizes)
    bases = seeded(lambda: torch.randint(0, 4, (batch, length)), sizes)
    hidden = torch.arange(length, device=sizes.device) % 7 == 0
    shown = bases.masked_fill(hidden, 4)

    def loss() -> Tensor:
        scores = model(shown).flatten(0, 1)
        each = F.cross_entropy(scores, bases.flatten(), reduction="none").unflatten(0, (batch, -1))
        return (each * hidden).sum() / (batch * hidden.sum())

    return Step(training(loss, fused_adamw(model), sizes))


def rows_by_einsum(left: Tensor, right: Tensor) -> Tensor:
    return torch.einsum("ec,ec->e", left, right)  # flaw: einsum_of_rows


def rows_by_sum(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).sum(1)


class Ends(nn.Module):
    """Vectors of nodes, whose products say which of them are linked."""

    def __init__(self, nodes: int, width: int) -> None:
        super().__init__()
        self.nodes = nn.Embedding(nodes, width)
        self.hidden, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self) -> Tensor:
        return self.out(F.relu(self.hidden(self.nodes.weight)))


def einsum_of_rows(flawed: bool, sizes: Sizes) -> Step:
    nodes, width, pairs = sizes.of((100_000, 32, 1 << 20), (20, 8, 32))
    model = seeded(lambda: Ends(nodes, width), sizes)
    ends, linked = seeded(
        lambda: (torch.randint(0, nodes, (2, pairs)), torch.randint(0, 2, (pairs,)).float()), sizes
    )
    score = rows_by_einsum if flawed else rows_by_sum

    def loss() -> Tensor:
        x = model()
        scores = score(x.index_select(0, ends[0]), x.index_select(0, ends[1]))
        return F.binary_cross_entropy_with_logits(scores, linked)

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


class PerSensor(nn.Module):
    """A layer with weights of its own for each of many sensors."""

    def __init__(self, sensors: int, width: int, broadcasts: bool) -> None:
        super().__init__()
        self.broadcasts = broadcasts
        self.weight = nn.Parameter(torch.randn(sensors, width, width) * width**-0.5)
        self.bias = nn.Parameter(torch.zeros(sensors, width))

    def forward(self, x: Tensor) -> Tensor:
        """A vector of each sensor (batch, sensors, width) from another."""
        if self.broadcasts:
            y = torch.matmul(self.weight, x[..., None]).squeeze(-1)  # flaw: matmul_broadcast
        else:
            y = torch.einsum("sij,bsj->bsi", self.weight, x)
        return y + self.bias


def matmul_broadcast(flawed: bool, sizes: Sizes) -> Step:
    sensors, width, depth, batch = sizes.of((32, 64, 4, 1024), (3, 8, 2, 4))
    model = seeded(
        lambda: nn.ModuleList(PerSensor(sensors, width, flawed) for _ in range(depth)), sizes
    )
    before, after = seeded(
        lambda: (torch.randn(batch, sensors, width), torch.randn(batch, sensors, width)), sizes
    )

    def loss() -> Tensor:
        x = before
        for layer in model:
            x = x + F.gelu(layer(x))
        return F.mse_loss(x, after)

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))
