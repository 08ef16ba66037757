"""Small networks: of likelihoods, of ratings, and of a policy that plays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, autocast, seeded

__all__ = [
    "fast_float32",
    "lan_training_loss_float",
    "ppo_minibatches_copied_again",
    "ratings_tiny_batches",
]


@contextmanager
def fast_float32() -> Iterator[None]:
    """Products of float32 matrices in TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def adam(model: nn.Module, rate: float = 1e-4) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=rate, fused=True)


class LikelihoodNetwork(nn.Module):
    """The log likelihood of a trial, given parameters of a cognitive model, choice and time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = (7, width, width, width)
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.out = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.hidden:
            x = torch.tanh(layer(x))
        return self.out(x)


def lan_training_loss_float(flawed: bool, sizes: Sizes) -> Step:
    """Some batches of an epoch, whose loss is added up for the log."""
    batch, batches = sizes.of((131072, 8), (64, 3))
    model = seeded(lambda: LikelihoodNetwork(sizes.of(256, 16)), sizes)
    optimizer = adam(model)
    trials = seeded(lambda: torch.randn(batches, batch, 7), sizes)
    likelihoods = seeded(lambda: torch.randn(batches, batch, 1), sizes)

    def epoch() -> Tensor:
        total = torch.zeros((), device=sizes.device)
        logged = 0.0
        for features, labels in zip(trials, likelihoods, strict=True):
            optimizer.zero_grad(set_to_none=True)
            loss = F.huber_loss(model(features), labels)
            loss.backward()
            optimizer.step()
            if flawed:
                logged += loss.item()  # flaw: lan_training_loss_float
            else:
                total += loss.detach()
        return (total + logged) / batches

    return Step(epoch, fast_float32)


class Ratings(nn.Module):
    """The rating that a user gives an item: a product of factors, and biases."""

    def __init__(self, users: int, items: int, width: int) -> None:
        super().__init__()
        self.users = nn.Embedding(users, width)
        self.items = nn.Embedding(items, width)
        self.user_bias = nn.Embedding(users, 1)
        self.item_bias = nn.Embedding(items, 1)
        for table in (self.users, self.items, self.user_bias, self.item_bias):
            nn.init.normal_(table.weight, std=0.05)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        biases = self.user_bias(user) + self.item_bias(item)
        return 3.5 + biases.squeeze(-1) + (self.users(user) * self.items(item)).sum(-1)


def ratings_tiny_batches(flawed: bool, sizes: Sizes) -> Step:
    """A pass over some thousand ratings, batch by batch."""
    users, items, width, count = sizes.of((70000, 10000, 64, 8192), (40, 30, 8, 64))
    small, large = sizes.of((128, 4096), (8, 32))
    batch = small if flawed else large  # flaw: ratings_tiny_batches
    model = seeded(lambda: Ratings(users, items, width), sizes)
    optimizer = adam(model)
    user, item = seeded(
        lambda: (torch.randint(users, (count,)), torch.randint(items, (count,))), sizes
    )
    rating = seeded(lambda: torch.randint(1, 6, (count,)).float(), sizes)

    def epoch() -> Tensor:
        total = torch.zeros((), device=sizes.device)
        for start in range(0, count, batch):  # flaw: ratings_tiny_batches
            rows = slice(start, start + batch)  # flaw: ratings_tiny_batches
            optimizer.zero_grad(set_to_none=True)
            predicted = model(user[rows], item[rows])  # flaw: ratings_tiny_batches
            loss = F.mse_loss(predicted, rating[rows])  # flaw: ratings_tiny_batches
            loss.backward()  # flaw: ratings_tiny_batches
            optimizer.step()  # flaw: ratings_tiny_batches
            total += loss.detach()
        return total * batch / count

    return Step(epoch)


class ActorCritic(nn.Module):
    """Actions and values of frames of a game."""

    def __init__(self, side: int, actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(),
            nn.Flatten(),
        )
        after = ((side - 8) // 4 + 1 - 4) // 2 + 1 - 2
        self.hidden = nn.Linear(64 * after * after, 512)
        self.actor = nn.Linear(512, actions)
        self.critic = nn.Linear(512, 1)

    def forward(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        x = F.relu(self.hidden(self.body(frames / 255.0)))
        return self.actor(x), self.critic(x).squeeze(-1)


def ppo_loss(model: ActorCritic, batch: dict[str, Tensor]) -> Tensor:
    """The clipped loss of the policy, the loss of the value, and the entropy."""
    logits, values = model(batch["frames"])
    log_all = F.log_softmax(logits.float(), -1)
    chosen = log_all.gather(-1, batch["actions"].unsqueeze(-1)).squeeze(-1)
    ratio = torch.exp(chosen - batch["log_probabilities"])
    advantages = batch["advantages"]
    gain = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    value_loss = F.mse_loss(values.float(), batch["returns"])
    entropy = -(log_all.exp() * log_all).sum(-1).mean()
    return 0.5 * value_loss - gain.mean() - 0.01 * entropy


def rollouts(count: int, side: int, actions: int) -> dict[str, Tensor]:
    """What the workers have sampled, in the memory of the host."""
    chance = torch.Generator().manual_seed(7)
    return {
        "frames": torch.randint(
            0, 256, (count, 4, side, side), dtype=torch.uint8, generator=chance
        ),
        "actions": torch.randint(0, actions, (count,), generator=chance),
        "log_probabilities": torch.full((count,), 1 / actions).log(),
        "advantages": torch.randn(count, generator=chance),
        "returns": torch.randn(count, generator=chance),
    }


def part_of(batch: dict[str, Tensor], start: int, stop: int) -> dict[str, Tensor]:
    return {name: column[start:stop] for name, column in batch.items()}


def ppo_minibatches_copied_again(flawed: bool, sizes: Sizes) -> Step:
    """The passes of stochastic gradient descent over one batch of rollouts."""
    count, side, minibatch, passes = sizes.of((2048, 84, 512, 4), (8, 52, 4, 2))
    model = seeded(lambda: ActorCritic(side, 6), sizes)
    optimizer = adam(model)
    sampled = rollouts(count, side, 6)

    def train_batch() -> Tensor:
        total = torch.zeros((), device=sizes.device)
        if not flawed:
            loaded = {name: column.to(sizes.device) for name, column in sampled.items()}
        for _ in range(passes):
            for start in range(0, count, minibatch):
                if flawed:
                    part = {
                        name: column.to(sizes.device)  # flaw: ppo_minibatches_copied_again
                        for name, column in part_of(sampled, start, start + minibatch).items()
                    }
                else:
                    part = part_of(loaded, start, start + minibatch)
                optimizer.zero_grad(set_to_none=True)
                with autocast(sizes):
                    loss = ppo_loss(model, part)
                loss.backward()
                optimizer.step()
                total += loss.detach()
        return total * minibatch / (count * passes)

    return Step(train_batch)
