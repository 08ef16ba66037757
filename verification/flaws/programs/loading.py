"""Flaws of data: loaders, rows of tables, images, and samples that Python draws."""

from __future__ import annotations

import random
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, TensorDataset

from .detection import detector_of
from .host import Forever
from .program import Sizes, Step, autocast, fused_adamw, seeded, training

__all__ = [
    "images_copied_as_floats",
    "negatives_in_python",
    "rows_one_by_one",
    "workers_restarted",
]


class Windows(Dataset):
    """Windows of several series, and what follows each."""

    def __init__(self, series: Tensor, count: int, length: int, ahead: int) -> None:
        self.series, self.count, self.length, self.ahead = series, count, length, ahead

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        window = self.series[:, at : at + self.length + self.ahead]
        mean, std = window[:, : self.length].mean(1), window[:, : self.length].std(1)
        window = (window - mean[:, None]) / (std[:, None] + 1e-5)
        return window[:, : self.length], window[:, self.length :]


class Forecaster(nn.Module):
    """A forecast by dilated causal convolutions."""

    def __init__(self, series: int, width: int, layers: int, ahead: int) -> None:
        super().__init__()
        self.into = nn.Conv1d(series, width, 1)
        self.convs = nn.ModuleList(
            nn.Conv1d(width, width, 3, padding=1 << at, dilation=1 << at) for at in range(layers)
        )
        self.out = nn.Linear(width, series * ahead)
        self.ahead = ahead

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        for conv in self.convs:
            x = x + F.relu(conv(x))
        return self.out(x.mean(2)).unflatten(1, (-1, self.ahead))


def workers_restarted(flawed: bool, sizes: Sizes) -> Step:
    series, length, ahead, width = sizes.of((32, 512, 64, 384), (3, 16, 4, 8))
    batch, batches, workers = sizes.of((64, 6, 2), (2, 2, 1))
    model = seeded(lambda: Forecaster(series, width, sizes.of(8, 2), ahead), sizes)
    optimizer = fused_adamw(model)
    count = batch * batches
    values = torch.randn(series, count + length + ahead, generator=torch.Generator().manual_seed(3))
    loader = DataLoader(
        Windows(values, count, length, ahead),
        batch_size=batch,
        num_workers=workers,
        pin_memory=not sizes.is_tiny,
        persistent_workers=not flawed,
    )

    def epoch() -> Tensor:
        total = torch.zeros((), device=sizes.device)
        for past, future in loader:  # flaw: workers_restarted
            past = past.to(sizes.device, non_blocking=True)
            future = future.to(sizes.device, non_blocking=True)
            optimizer.zero_grad()
            with autocast(sizes):
                loss = F.mse_loss(model(past).float(), future)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        return total / batches

    return Step(epoch)


class TabularModel(nn.Module):
    """Embeddings of categories beside numbers, and an MLP."""

    def __init__(self, categories: int, rows: int, numbers: int, width: int) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(categories * rows, 16)
        self.register_buffer("offsets", torch.arange(categories) * rows)
        self.norm = nn.BatchNorm1d(numbers)
        self.layers = nn.Sequential(
            nn.Linear(16 * categories + numbers, width),
            nn.ReLU(),
            nn.BatchNorm1d(width),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.BatchNorm1d(width),
            nn.Linear(width, 1),
        )

    def forward(self, categories: Tensor, numbers: Tensor) -> Tensor:
        x = self.embeddings(categories + self.offsets).flatten(1)
        return self.layers(torch.cat((x, self.norm(numbers)), 1)).squeeze(1)


def rows_one_by_one(flawed: bool, sizes: Sizes) -> Step:
    categories, rows, numbers, width = sizes.of((12, 1000, 20, 2048), (3, 10, 4, 8))
    batch = sizes.of(2048, 8)
    model = seeded(lambda: TabularModel(categories, rows, numbers, width), sizes)
    optimizer = fused_adamw(model)
    chance = torch.Generator().manual_seed(4)
    data = TensorDataset(
        torch.randint(0, rows, (16 * batch, categories), generator=chance),
        torch.randn(16 * batch, numbers, generator=chance),
        torch.randint(0, 2, (16 * batch,), generator=chance).float(),
    )
    make = partial(DataLoader, data, pin_memory=not sizes.is_tiny)
    order = Forever(len(data))
    if flawed:
        loader = make(sampler=order, batch_size=batch)
    else:
        loader = make(sampler=BatchSampler(order, batch, drop_last=True), batch_size=None)
    batches = iter(loader)

    def loss() -> Tensor:
        some = next(batches)  # flaw: rows_one_by_one
        chosen, measured, labels = (each.to(sizes.device, non_blocking=True) for each in some)
        return F.binary_cross_entropy_with_logits(model(chosen, measured), labels)

    return Step(training(loss, optimizer, sizes, is_mixed=False))


def images_copied_as_floats(flawed: bool, sizes: Sizes) -> Step:
    model, images = detector_of(sizes, 32, 640)
    model = model.eval().bfloat16()
    shape, device = images.shape, images.device
    stored = torch.randint(
        0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(6)
    )
    if flawed:
        stored = stored.float() / 255
    if not sizes.is_tiny:
        stored = stored.pin_memory()

    @torch.inference_mode()
    def step() -> Tensor:
        moved = stored.to(device, non_blocking=True)  # flaw: images_copied_as_floats
        moved = moved if flawed else moved.float() / 255
        moved = moved.to(torch.bfloat16, memory_format=torch.channels_last)
        scores, boxes = model(moved)
        return scores.float().sigmoid().mean() + boxes.float().square().mean()

    return Step(step)


class CollaborativeFilter(nn.Module):
    """A score of a user and an item by an MLP."""

    def __init__(self, users: int, items: int, width: int) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)
        self.layers = nn.Sequential(
            nn.Linear(2 * width, 8 * width),
            nn.ReLU(),
            nn.Linear(8 * width, 4 * width),
            nn.ReLU(),
            nn.Linear(4 * width, 1),
        )

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        users = self.users(users).expand(*items.shape, -1)
        return self.layers(torch.cat((users, self.items(items)), -1)).squeeze(-1)


class PythonSampler:
    """Items that a user has not seen, drawn one by one."""

    def __init__(self, seen: list[set[int]], items: int) -> None:
        self.seen, self.items, self.chance = seen, items, random.Random(1)

    def draw(self, users: list[int], count: int) -> list[list[int]]:
        drawn = []
        for user in users:  # flaw: negatives_in_python
            row = []
            for _ in range(count):  # flaw: negatives_in_python
                item = int(self.chance.random() * self.items)  # flaw: negatives_in_python
                while item in self.seen[user]:  # flaw: negatives_in_python
                    item = int(self.chance.random() * self.items)
                row.append(item)  # flaw: negatives_in_python
            drawn.append(row)
        return drawn


def draw_on_device(users: Tensor, seen: Tensor, items: int, count: int) -> Tensor:
    """The same for all users at once; what was seen is drawn once more."""
    drawn, again = torch.randint(0, items, (2, len(users), count), device=users.device)
    return torch.where(seen[users[:, None], drawn], again, drawn)


def negatives_in_python(flawed: bool, sizes: Sizes) -> Step:
    users, items, width, batch, count = sizes.of((20_000, 10_000, 64, 4096, 4), (20, 30, 4, 8, 2))
    model = seeded(lambda: CollaborativeFilter(users, items, width), sizes)
    chosen = seeded(lambda: torch.randint(0, users, (batch,)), sizes)
    wanted = (chosen * 7 % items)[:, None]
    table = seeded(lambda: torch.rand(users, items) < 0.002, sizes)
    if flawed:
        pairs = table.nonzero().tolist()
        known: list[set[int]] = [set() for _ in range(users)]
        for user, item in pairs:
            known[user].add(item)
        sampler, listed = PythonSampler(known, items), chosen.tolist()

    def loss() -> Tensor:
        if flawed:
            drawn = sampler.draw(listed, count)  # flaw: negatives_in_python
            negatives = torch.tensor(drawn, device=chosen.device)  # flaw: negatives_in_python
        else:
            negatives = draw_on_device(chosen, table, items, count)
        scores = model(chosen[:, None], torch.cat((wanted, negatives), 1))
        return -F.logsigmoid(scores[:, :1] - scores[:, 1:]).mean()

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))
