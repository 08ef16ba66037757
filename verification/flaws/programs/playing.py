"""Flaws of agents and their memories, of learners of few examples, and of evaluations."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "arrays_stacked_by_tensor",
    "history_rolled",
    "learner_deepcopied",
    "minibatches_moved_again",
    "slices_sought_in_buffer",
    "users_scored_one_by_one",
]


def perceptron(*widths: int) -> nn.Sequential:
    """Linear layers, and what is between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.SiLU()]
    return nn.Sequential(*layers[:-1])


def episodes_of(owner: Tensor, least: int) -> tuple[Tensor, Tensor]:
    """Where the episodes of a memory start that are long enough, and how long they are."""
    is_last = owner[1:] != owner[:-1]  # flaw: slices_sought_in_buffer
    is_last = F.pad(is_last, (0, 1), value=True)  # flaw: slices_sought_in_buffer
    stops = is_last.nonzero().flatten()  # flaw: slices_sought_in_buffer
    starts = F.pad(stops[:-1] + 1, (1, 0))  # flaw: slices_sought_in_buffer
    lengths = stops - starts + 1  # flaw: slices_sought_in_buffer
    is_long = lengths >= least  # flaw: slices_sought_in_buffer
    return starts[is_long], lengths[is_long]  # flaw: slices_sought_in_buffer


def slices_sought_in_buffer(flawed: bool, sizes: Sizes) -> Step:
    steps, width, actions, slices, least = sizes.of((80_000_000, 16, 4, 512, 8), (200, 4, 2, 5, 3))
    seen, acted = seeded(
        lambda: (
            torch.randn(steps, width, dtype=torch.bfloat16),
            torch.randn(steps, actions, dtype=torch.bfloat16),
        ),
        sizes,
    )
    owner = torch.arange(steps, device=sizes.device) // sizes.of(500, 7)
    kept = episodes_of(owner, least)
    model = seeded(lambda: perceptron(width + actions, 512, 512, 512, width), sizes)
    chance = torch.Generator(sizes.device).manual_seed(7)
    within = torch.arange(least, device=sizes.device)

    def drawn() -> Tensor:
        """The places of some slices of episodes."""
        if flawed:
            starts, lengths = episodes_of(owner, least)  # flaw: slices_sought_in_buffer
        else:
            starts, lengths = kept
        parts = torch.rand(2, slices, generator=chance, device=sizes.device)
        episode = (parts[0] * len(starts)).long()
        room = lengths[episode] - least + 1
        return (starts[episode] + (parts[1] * room).long())[:, None] + within

    def loss() -> Tensor:
        places = drawn()  # flaw: slices_sought_in_buffer
        states, moves = seen[places], acted[places]
        state, total = states[:, 0], torch.zeros((), device=sizes.device)
        for at in range(1, least):
            state = model(torch.cat((state, moves[:, at - 1]), 1))
            total = total + F.mse_loss(state.float(), states[:, at].float())
        return total

    return Step(training(loss, fused_adamw(model), sizes))


def minibatches_moved_again(flawed: bool, sizes: Sizes) -> Step:
    rows, width, actions, epochs, parts = sizes.of((32_768, 256, 12, 4, 8), (24, 6, 2, 2, 3))
    model = seeded(lambda: perceptron(width, 512, 256, actions + 1), sizes)
    optimizer = fused_adamw(model)
    chance = torch.Generator().manual_seed(9)
    seen = torch.randn(rows, width, generator=chance)
    acted = torch.randn(rows, actions, generator=chance)
    gained, returned = torch.randn(2, rows, generator=chance)
    rollout = (seen, acted, gained, returned)
    order = torch.Generator().manual_seed(4)

    def learn(batch: tuple[Tensor, ...]) -> Tensor:
        observed, moves, advantages, returns = batch
        optimizer.zero_grad()
        found = model(observed)
        errors = (found[:, :-1] - moves).square().sum(1)
        loss = (errors * advantages.sigmoid()).mean() + F.mse_loss(found[:, -1], returns)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def step() -> Tensor:
        total = torch.zeros((), device=sizes.device)
        held = rollout if flawed else tuple(each.to(sizes.device) for each in rollout)
        for _ in range(epochs):
            permuted = torch.randperm(rows, generator=order)
            for some in permuted.to(held[0].device).chunk(parts):
                # flaw in the next line: minibatches_moved_again
                batch = tuple(each[some].to(sizes.device) for each in held)
                total += learn(batch)
        return total

    return Step(step)


class History:
    """The last observations of each robot, the newest last."""

    def __init__(self, robots: int, width: int, length: int, sizes: Sizes) -> None:
        self.width, self.length, self.at = width, length, 0
        self.rolled = torch.zeros(robots, length * width, dtype=torch.bfloat16, device=sizes.device)
        self.twice = self.rolled.repeat(1, 2)

    def roll(self, seen: Tensor) -> Tensor:
        """Move all, and write the newest to the end."""
        self.rolled = self.rolled.roll(-self.width, 1)  # flaw: history_rolled
        self.rolled[:, -self.width :] = seen
        return self.rolled

    def turn(self, seen: Tensor) -> Tensor:
        """Write the newest over the oldest, in each of two copies, and return a view."""
        first, end = self.at * self.width, self.length * self.width
        self.twice[:, first : first + self.width] = seen
        self.twice[:, end + first : end + first + self.width] = seen
        self.at = (self.at + 1) % self.length
        return self.twice[:, self.at * self.width :][:, :end]


def history_rolled(flawed: bool, sizes: Sizes) -> Step:
    robots, width, length, actions, moments = sizes.of((8192, 256, 32, 16, 24), (3, 8, 4, 2, 5))
    policy = seeded(lambda: perceptron(width * length, 256, 128, actions), sizes)
    world = seeded(lambda: nn.Linear(width + actions, width), sizes)
    policy, world = policy.bfloat16(), world.bfloat16()
    first = seeded(lambda: torch.randn(robots, width), sizes).bfloat16()
    history = History(robots, width, length, sizes)
    next_past = history.roll if flawed else history.turn

    @torch.inference_mode()
    def step() -> Tensor:
        seen, total = first, torch.zeros((), device=sizes.device)
        for _ in range(moments):
            past = next_past(seen)  # flaw: history_rolled
            action = policy(past).tanh()
            seen = world(torch.cat((seen, action), 1)).tanh()
            total += seen.float().square().mean()
        return total

    return Step(step)


class FewShots(nn.Module):
    """Convolutions and a classifier, as they are used with few examples."""

    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential()
        for at in range(depth):
            conv = nn.Conv2d(width if at else 3, width, 3, padding=1, bias=False)
            norm = nn.BatchNorm2d(width, track_running_stats=False)
            self.blocks.append(nn.Sequential(conv, norm, nn.ReLU(), nn.MaxPool2d(2)))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x).mean((2, 3)))


Task = tuple[Tensor, Tensor, Tensor, Tensor]


def copied_learner_loss(model: nn.Module, task: Task, steps: int, rate: float) -> Tensor:
    """The loss of a copy of the model that has learned from a few examples; gradients are added."""
    images, labels, others, wanted = task
    learner = copy.deepcopy(model)  # flaw: learner_deepcopied
    weights = list(learner.parameters())
    for _ in range(steps):
        grads = torch.autograd.grad(F.cross_entropy(learner(images), labels), weights)
        with torch.no_grad():
            torch._foreach_add_(weights, grads, alpha=-rate)
    loss = F.cross_entropy(learner(others), wanted)
    added_to(model, torch.autograd.grad(loss, weights))
    return loss.detach()


def functional_learner_loss(model: nn.Module, task: Task, steps: int, rate: float) -> Tensor:
    """The same with weights that are given to the model."""
    images, labels, others, wanted = task
    names, weights = zip(*model.named_parameters(), strict=True)
    weights = tuple(each.detach().requires_grad_() for each in weights)
    for _ in range(steps):
        scores = functional_call(model, dict(zip(names, weights, strict=True)), (images,))
        grads = torch.autograd.grad(F.cross_entropy(scores, labels), weights)
        with torch.no_grad():
            weights = torch._foreach_add(weights, grads, alpha=-rate)
        weights = tuple(each.requires_grad_() for each in weights)
    scores = functional_call(model, dict(zip(names, weights, strict=True)), (others,))
    loss = F.cross_entropy(scores, wanted)
    added_to(model, torch.autograd.grad(loss, weights))
    return loss.detach()


def added_to(model: nn.Module, grads: tuple[Tensor, ...]) -> None:
    """Add gradients to those of a model."""
    weights = list(model.parameters())
    if weights[0].grad is None:
        for weight, grad in zip(weights, grads, strict=True):
            weight.grad = grad
    else:
        torch._foreach_add_([each.grad for each in weights], list(grads))


def learner_deepcopied(flawed: bool, sizes: Sizes) -> Step:
    tasks, ways, shots, side, width, depth = sizes.of((16, 5, 5, 84, 48, 6), (2, 2, 2, 16, 4, 2))
    model = seeded(lambda: FewShots(width, depth, ways), sizes)
    optimizer = fused_adamw(model)
    count = ways * shots
    images = seeded(lambda: torch.randn(tasks, 2, count, 3, side, side), sizes)
    labels = torch.arange(count, device=sizes.device) % ways
    loss_of = copied_learner_loss if flawed else functional_learner_loss

    def step() -> Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), device=sizes.device)
        for own in images:
            # flaw in the next line: learner_deepcopied
            total += loss_of(model, (own[0], labels, own[1], labels), 1, 0.05)
        optimizer.step()
        return total / tasks

    return Step(step)


def arrays_stacked_by_tensor(flawed: bool, sizes: Sizes) -> Step:
    count, channels, moments, width = sizes.of((384, 6, 64, 192), (4, 2, 8, 4))
    chance = np.random.default_rng(5)
    windows = [chance.standard_normal((channels, moments), np.float32) for _ in range(4 * count)]
    order = np.random.default_rng(6)
    model = seeded(
        lambda: nn.Sequential(
            nn.Conv1d(channels, width, 7, padding=3),
            nn.GELU(),
            *(nn.Conv1d(width, width, 7, padding=3) for _ in range(4)),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(width, 6),
        ),
        sizes,
    )
    labels = torch.arange(count, device=sizes.device) % 6

    def loss() -> Tensor:
        some = [windows[at] for at in order.choice(len(windows), count)]
        # flaw in the next line: arrays_stacked_by_tensor
        batch = torch.tensor(some) if flawed else torch.from_numpy(np.stack(some))
        return F.cross_entropy(model(batch.to(sizes.device)), labels)

    return Step(training(loss, fused_adamw(model), sizes))


def hits_one_by_one(
    users: Tensor, items: Tensor, seen: Tensor, wanted: Tensor, best: int
) -> Tensor:
    """How often the wanted item of a user is among the best, user by user."""
    hits = torch.zeros((), device=users.device)
    for user, known, want in zip(users, seen, wanted, strict=True):
        scores = items @ user  # flaw: users_scored_one_by_one
        scores = scores.index_fill(0, known, float("-inf"))  # flaw: users_scored_one_by_one
        found = scores.topk(best).indices  # flaw: users_scored_one_by_one
        hits += (found == want).any()  # flaw: users_scored_one_by_one
    return hits


def hits_together(users: Tensor, items: Tensor, seen: Tensor, wanted: Tensor, best: int) -> Tensor:
    """The same for all users."""
    scores = (users @ items.T).scatter(1, seen, float("-inf"))
    return (scores.topk(best, 1).indices == wanted[:, None]).any(1).sum()


def users_scored_one_by_one(flawed: bool, sizes: Sizes) -> Step:
    users, items, known, width, best = sizes.of((512, 60_000, 40, 128, 20), (5, 30, 3, 4, 10))
    tower = seeded(lambda: perceptron(width, 4 * width, width), sizes)
    features, table, seen, wanted = seeded(
        lambda: (
            torch.randn(users, width),
            torch.randn(items, width),
            torch.randint(0, items, (users, known)),
            torch.randint(0, items, (users,)),
        ),
        sizes,
    )
    hits_of = hits_one_by_one if flawed else hits_together

    @torch.inference_mode()
    def step() -> Tensor:
        # flaw in the next line: users_scored_one_by_one
        hits = hits_of(tower(features), table, seen, wanted, best)
        return hits.float() / users + 1

    return Step(step)
