"""Flaws of the sizes of products, of loops, and of embeddings."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .program import Sizes, Step, autocast, fused_adamw, seeded, training

__all__ = [
    "DLRM",
    "dense_embedding_gradients",
    "head_dim_alignment",
    "lstm_cell_loop",
    "micro_batches_of_one",
    "odd_mlp_width",
    "table_per_feature",
    "vocabulary_size",
]


def vocabulary_size(flawed: bool, sizes: Sizes) -> Step:
    exact, padded = sizes.of((50257, 50304), (113, 128))
    return gpt.trained(sizes, vocabulary=exact if flawed else padded)


def odd_mlp_width(flawed: bool, sizes: Sizes) -> Step:
    width = sizes.of(3072, 96)
    return gpt.trained(sizes, mlp_width=width - 1 if flawed else width)


def head_dim_alignment(flawed: bool, sizes: Sizes) -> Step:
    width, odd, even = sizes.of((832, 16, 13), (48, 4, 3))
    return gpt.trained(sizes, width=width, heads=odd if flawed else even)


def micro_batches_of_one(flawed: bool, sizes: Sizes) -> Step:
    model, tokens, targets = gpt.made(
        sizes, layers=sizes.of(6, 2), batch=4, context=sizes.of(256, 32)
    )
    optimizer = fused_adamw(model)
    size = 1 if flawed else len(tokens)

    def step() -> Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), device=tokens.device)
        for some, their in zip(tokens.split(size), targets.split(size), strict=True):
            with autocast(sizes):
                loss = gpt.loss_of(model, some, their) * size / len(tokens)
            loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    return Step(step)


class DLRM(nn.Module):
    """Embeddings of categories beside an MLP of numbers; a table for each feature, or one."""

    def __init__(self, features: int, rows: int, width: int, is_apart: bool) -> None:
        super().__init__()
        weights = torch.randn(features * rows, width) * 0.01
        self.is_apart = is_apart
        if is_apart:
            self.tables = nn.ModuleList(
                nn.Embedding.from_pretrained(each.clone(), freeze=False)
                for each in weights.split(rows)
            )
        else:
            self.table = nn.Embedding.from_pretrained(weights, freeze=False)
        self.register_buffer("offsets", torch.arange(features) * rows)
        self.numbers = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width))
        self.top = nn.Sequential(
            nn.Linear((features + 1) * width, 512), nn.ReLU(), nn.Linear(512, 1)
        )

    def embed(self, categories: Tensor) -> Tensor:
        if self.is_apart:
            rows = [
                table(categories[:, at])  # flaw: table_per_feature
                for at, table in enumerate(self.tables)
            ]
            return torch.stack(rows, 1)
        return self.table(categories + self.offsets)

    def forward(self, categories: Tensor, numbers: Tensor) -> Tensor:
        rows = torch.cat((self.embed(categories), self.numbers(numbers)[:, None]), 1)
        return self.top(rows.flatten(1)).squeeze(1)


def clicks_of(sizes: Sizes, features: int, rows: int, batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Categories, numbers and clicks."""
    return seeded(
        lambda: (
            torch.randint(0, rows, (batch, features)),
            torch.randn(batch, 13),
            torch.rand(batch).round(),
        ),
        sizes,
    )


def table_per_feature(flawed: bool, sizes: Sizes) -> Step:
    features, rows, width, batch = sizes.of((64, 2000, 64, 4096), (4, 20, 8, 16))
    model = seeded(lambda: DLRM(features, rows, width, is_apart=flawed), sizes)
    categories, numbers, clicks = clicks_of(sizes, features, rows, batch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss() -> Tensor:
        return F.binary_cross_entropy_with_logits(model(categories, numbers), clicks)

    return Step(training(loss, optimizer, sizes, is_mixed=False))


class Items(nn.Module):
    """A large table of items, whose rows a small model scores."""

    def __init__(self, rows: int, width: int, is_sparse: bool) -> None:
        super().__init__()
        self.items = nn.Embedding(rows, width, sparse=is_sparse)
        self.score = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, items: Tensor) -> Tensor:
        rows = self.items(items)  # flaw: dense_embedding_gradients
        return self.score(rows.mean(1)).squeeze(1)


def dense_embedding_gradients(flawed: bool, sizes: Sizes) -> Step:
    rows, width, batch = sizes.of((8_000_000, 64, 8192), (200, 8, 16))
    model = seeded(lambda: Items(rows, width, is_sparse=not flawed), sizes)
    items = seeded(lambda: torch.randint(0, rows, (batch, 20)), sizes)
    clicks = items[:, 0].remainder(2).float()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(items), clicks)
        loss.backward()  # flaw: dense_embedding_gradients
        optimizer.step()  # flaw: dense_embedding_gradients
        return loss.detach()

    return Step(step)


class Cells(nn.Module):
    """An LSTM that runs its cells in a loop, with the weights of another one."""

    def __init__(self, lstm: nn.LSTM) -> None:
        super().__init__()
        self.cells = nn.ModuleList()
        for layer in range(lstm.num_layers):
            cell = nn.LSTMCell(lstm.hidden_size if layer else lstm.input_size, lstm.hidden_size)
            for name, weight in cell.named_parameters():
                weight.data.copy_(getattr(lstm, f"{name}_l{layer}").data)
            self.cells.append(cell)

    def forward(self, x: Tensor) -> Tensor:
        for cell in self.cells:
            outputs, state = [], None
            for moment in x.unbind(1):
                state = cell(moment, state)  # flaw: lstm_cell_loop
                outputs.append(state[0])
            x = torch.stack(outputs, 1)
        return x


class Sequence(nn.Module):
    """Scores of the next frame, by an LSTM."""

    def __init__(self, width: int, is_loop: bool) -> None:
        super().__init__()
        lstm = nn.LSTM(width, width, 2, batch_first=True)
        self.is_loop = is_loop
        self.head = nn.Linear(width, width)
        self.lstm: nn.Module = Cells(lstm) if is_loop else lstm

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x) if self.is_loop else self.lstm(x)[0])


def lstm_cell_loop(flawed: bool, sizes: Sizes) -> Step:
    width, moments, batch = sizes.of((512, 64, 64), (16, 5, 2))
    model = seeded(lambda: Sequence(width, flawed), sizes)
    x = seeded(lambda: torch.randn(batch, moments, width), sizes)
    optimizer = fused_adamw(model)
    return Step(
        training(lambda: F.mse_loss(model(x)[:, :-1], x[:, 1:]), optimizer, sizes, is_mixed=False)
    )
