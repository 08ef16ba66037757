"""Flaws of models that move: arms, agents, routes, poses and dynamics."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.functional import jacobian

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "jacobian_row_by_row",
    "kinematics_by_autograd",
    "rotations_by_matrix_exp",
    "routes_one_by_one",
    "traces_on_cpu",
]


def layers(inputs: int, width: int, depth: int, outputs: int) -> nn.Sequential:
    """Linear layers with SiLU between them."""
    parts: list[nn.Module] = [nn.Linear(inputs, width), nn.SiLU()]
    for _ in range(depth - 1):
        parts += [nn.Linear(width, width), nn.SiLU()]
    return nn.Sequential(*parts, nn.Linear(width, outputs))


def cross_matrices(vectors: Tensor) -> Tensor:
    """The matrices (..., 3, 3) that multiply by these vectors as the cross product does."""
    x, y, z = vectors.unbind(-1)
    zero = torch.zeros_like(x)
    return torch.stack((zero, -z, y, z, zero, -x, -y, x, zero), -1).unflatten(-1, (3, 3))


def chain(angles: Tensor, axes: Tensor, links: Tensor) -> tuple[Tensor, Tensor]:
    """Where the joints of an arm are, and their axes, from its angles (arms, joints)."""
    turns, eye = cross_matrices(axes), torch.eye(3, device=angles.device)
    turned = eye.expand(len(angles), 3, 3)
    place, places, directions = torch.zeros_like(angles[:, :3]), [], []
    for at in range(angles.shape[1]):
        directions.append(turned @ axes[at])  # flaw: kinematics_by_autograd
        angle = angles[:, at, None, None]
        # flaw in the next line: kinematics_by_autograd
        turn = eye + angle.sin() * turns[at] + (1 - angle.cos()) * (turns[at] @ turns[at])
        turned = turned @ turn  # flaw: kinematics_by_autograd
        place = place + turned @ links[at]  # flaw: kinematics_by_autograd
        places.append(place)
    return torch.stack(places, 1), torch.stack(directions, 1)


class Chain(torch.autograd.Function):
    """The ends of all links, with the gradient that geometry tells."""

    @staticmethod
    def forward(ctx: Any, angles: Tensor, axes: Tensor, links: Tensor) -> Tensor:
        places, directions = chain(angles, axes, links)
        ctx.save_for_backward(places, directions)
        return places

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        places, directions = ctx.saved_tensors
        moments = torch.linalg.cross(places, grad).flip(1).cumsum(1).flip(1)
        forces = grad.flip(1).cumsum(1).flip(1)
        joints = F.pad(places[:, :-1], (0, 0, 1, 0))
        return (directions * (moments - torch.linalg.cross(joints, forces))).sum(2), None, None


def kinematics_by_autograd(flawed: bool, sizes: Sizes) -> Step:
    width, depth, arms, joints = sizes.of((1024, 4, 8192, 30), (8, 2, 3, 4))
    model = seeded(lambda: layers(6, width, depth, joints), sizes)
    axes, links, goals, truth = seeded(
        lambda: (
            F.normalize(torch.randn(joints, 3), dim=1),
            torch.randn(joints, 3) * 0.1,
            torch.randn(arms, 6),
            torch.randn(arms, joints, 3) * 0.3,
        ),
        sizes,
    )

    def loss() -> Tensor:
        angles = model(goals)
        if flawed:
            places, _ = chain(angles, axes, links)  # flaw: kinematics_by_autograd
        else:
            places = Chain.apply(angles, axes, links)
        return F.mse_loss(places, truth)

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


class Agent(nn.Module):
    """Scores of actions and a value of each view."""

    def __init__(self, channels: int, width: int, depth: int, actions: int) -> None:
        super().__init__()
        self.body = layers(channels, width, depth, width)
        self.actions, self.value = nn.Linear(width, actions), nn.Linear(width, 1)

    def forward(self, views: Tensor) -> tuple[Tensor, Tensor]:
        x = self.body(views)
        return self.actions(x).float().log_softmax(-1), self.value(x).float().squeeze(-1)


def v_trace(ratios: Tensor, rewards: Tensor, values: Tensor, discount: float) -> Tensor:
    """Targets of values (moments, agents), corrected for the policy that acted."""
    ratios = ratios.clamp(max=1)
    deltas = ratios[:-1] * (rewards[:-1] + discount * values[1:] - values[:-1])
    total, rows = torch.zeros_like(values[0]), []
    for at in range(len(deltas) - 1, -1, -1):
        total = deltas[at] + discount * ratios[at] * total  # flaw: traces_on_cpu
        rows.append(total)
    return torch.stack(rows[::-1]) + values[:-1]


def traces_on_cpu(flawed: bool, sizes: Sizes) -> Step:
    channels, width, depth, actions = sizes.of((48, 256, 3, 18), (4, 8, 1, 3))
    moments, agents = sizes.of((48, 16384), (4, 3))
    model = seeded(lambda: Agent(channels, width, depth, actions), sizes)
    views, taken, rewards = seeded(
        lambda: (
            torch.randn(moments, agents, channels),
            torch.randint(0, actions, (moments, agents, 1)),
            torch.randn(moments, agents),
        ),
        sizes,
    )
    acted = seeded(lambda: torch.rand(moments, agents) - 3.2, sizes)

    def targets(likely: Tensor, values: Tensor) -> Tensor:
        ratios = (likely - acted).exp()
        if not flawed:
            return v_trace(ratios, rewards, values, 0.99)
        ratios, values = ratios.cpu(), values.cpu()  # flaw: traces_on_cpu
        found = v_trace(ratios, rewards.cpu(), values, 0.99)  # flaw: traces_on_cpu
        return found.to(sizes.device)  # flaw: traces_on_cpu

    def loss() -> Tensor:
        scores, values = model(views)
        likely = scores.gather(2, taken).squeeze(2)
        goal = targets(likely.detach(), values.detach())  # flaw: traces_on_cpu
        gains = goal - values[:-1]
        entropy = -(scores.exp() * scores).sum(2).mean()
        policy = -(likely[:-1] * gains.detach()).mean()
        return policy + 0.5 * gains.square().mean() - 0.01 * entropy

    return Step(training(loss, fused_adamw(model), sizes))


class Thinker(nn.Module):
    """Looks at a maze some times; after each look it tells the moves of the whole route."""

    def __init__(self, width: int, route: int, looks: int) -> None:
        super().__init__()
        self.route, self.looks = route, looks
        self.maze = nn.Sequential(
            nn.Conv2d(3, width // 4, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width // 4, width // 2, 3, 2, 1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
        )
        self.cell, self.out = nn.GRUCell(8 * width, width), nn.Linear(width, 5 * route)

    def forward(self, mazes: Tensor) -> Tensor:
        seen = self.maze(mazes)
        state, told = torch.zeros_like(seen[:, : self.cell.hidden_size]), []
        for _ in range(self.looks):
            state = self.cell(seen, state)
            told.append(self.out(state).unflatten(1, (self.route, 5)))
        return torch.stack(told, 3).float()


def horizons_in_loop(scores: Tensor, moves: Tensor, ahead: int) -> Tensor:
    """Which moves count: those that are right from the start, and some after them."""
    right = scores.argmax(2) == moves[:, :, None]
    counts = torch.zeros_like(right, dtype=scores.dtype)
    for maze in range(len(scores)):
        best = 0
        for look in range(right.shape[2]):
            wrong = (~right[maze, :, look]).nonzero()  # flaw: routes_one_by_one
            first = int(wrong[0]) if len(wrong) else right.shape[1]  # flaw: routes_one_by_one
            best = max(best, first)
        counts[maze, : best + ahead] = 1  # flaw: routes_one_by_one
    return counts


def horizons(scores: Tensor, moves: Tensor, ahead: int) -> Tensor:
    """The same for all mazes at once."""
    right = scores.argmax(2) == moves[:, :, None]
    best = right.long().cumprod(1).sum(1).amax(1)
    places = torch.arange(right.shape[1], device=right.device)
    counts = (places < best[:, None] + ahead).to(scores.dtype)
    return counts[:, :, None].expand_as(right)


def routes_one_by_one(flawed: bool, sizes: Sizes) -> Step:
    width, route, looks, batch, side = sizes.of((1024, 50, 8, 48, 64), (8, 6, 2, 3, 16))
    model = seeded(lambda: Thinker(width, route, looks), sizes)
    mazes = seeded(lambda: torch.randn(batch, 3, side, side), sizes)
    moves = seeded(lambda: torch.randint(0, 5, (batch, route)), sizes)
    horizon = horizons_in_loop if flawed else horizons

    def loss() -> Tensor:
        scores = model(mazes)
        goal = moves[:, :, None].expand(-1, -1, scores.shape[3])
        off = F.cross_entropy(scores.transpose(1, 2), goal, reduction="none")
        counts = horizon(scores.detach(), moves, 5)  # flaw: routes_one_by_one
        each = (off * counts).sum(1) / counts.sum(1)
        return (each.amin(1) + each[:, -1]).mean() / 2

    return Step(training(loss, fused_adamw(model), sizes))


def turned_by_series(vectors: Tensor) -> Tensor:
    """The rotations about these vectors, by the exponential of matrices."""
    return torch.matrix_exp(cross_matrices(vectors))  # flaw: rotations_by_matrix_exp


def turned(vectors: Tensor) -> Tensor:
    """The same by the formula of Rodrigues."""
    squared = vectors.square().sum(-1)[..., None, None] + 1e-8
    angle = squared.sqrt()
    crosses = cross_matrices(vectors)
    # x (x . y) - y (x . x) is what the matrix does twice
    twice = vectors[..., None] * vectors[..., None, :] - (squared - 1e-8) * torch.eye(
        3, device=vectors.device
    )
    once = torch.eye(3, device=vectors.device) + angle.sin() / angle * crosses
    return once + (1 - angle.cos()) / squared * twice


class Poses(nn.Module):
    """Features of images to the rotations of the joints of a body."""

    def __init__(self, width: int, depth: int, joints: int, by_series: bool) -> None:
        super().__init__()
        self.turn = turned_by_series if by_series else turned
        self.body = layers(width, width, depth, 3 * joints)

    def forward(self, x: Tensor) -> Tensor:
        vectors = self.body(x).float().unflatten(1, (-1, 3))
        with torch.autocast(x.device.type, enabled=False):
            return self.turn(vectors)  # flaw: rotations_by_matrix_exp


def rotations_by_matrix_exp(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, joints = sizes.of((2048, 4, 4096, 24), (8, 2, 3, 2))
    model = seeded(lambda: Poses(width, depth, joints, flawed), sizes)
    features, wanted = seeded(
        lambda: (torch.randn(batch, width), torch.randn(batch, joints, 3)), sizes
    )
    truth = turned(wanted)
    return Step(training(lambda: F.mse_loss(model(features), truth), fused_adamw(model), sizes))


def jacobian_row_by_row(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, state = sizes.of((512, 4, 1024, 32), (8, 2, 3, 4))
    model = seeded(lambda: layers(state, width, depth, state), sizes)
    states, rates = seeded(lambda: torch.randn(2, batch, state), sizes)
    at_once = not flawed

    def summed(x: Tensor) -> Tensor:
        return model(x).sum(0)

    def loss() -> Tensor:
        # flaw in the next line: jacobian_row_by_row
        slopes = jacobian(summed, states, create_graph=True, vectorize=at_once)
        slopes = slopes.transpose(0, 1)
        symmetric = (slopes + slopes.transpose(1, 2)) / 2
        growth = symmetric.square().sum((1, 2)).mean() / state
        return F.mse_loss(model(states), rates) + 0.1 * growth

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))
