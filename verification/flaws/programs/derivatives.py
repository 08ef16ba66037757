"""Flaws of programs around autograd: physics, scores, Fisher information, rollouts, penalties."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from .program import Sizes, Step, autocast, compiled, copied, fused_adamw, seeded, training

__all__ = [
    "denoiser_run_twice",
    "derivatives_one_by_one",
    "l2_in_loop",
    "molecules_counted_by_item",
    "projections_in_loop",
    "sample_gradients_in_loop",
    "trajectory_grown_by_cat",
]


def layers(inputs: int, width: int, depth: int, outputs: int, kind: type[nn.Module]) -> nn.Module:
    """Linear layers with an activation of this kind between them."""
    parts: list[nn.Module] = [nn.Linear(inputs, width), kind()]
    for _ in range(depth - 1):
        parts += [nn.Linear(width, width), kind()]
    return nn.Sequential(*parts, nn.Linear(width, outputs))


def slopes_one_by_one(y: Tensor, places: Sequence[Tensor]) -> list[Tensor]:
    """The derivatives of y by each coordinate, each from a pass of its own."""
    total = y.sum()
    found = []
    for place in places:
        # flaw in the next line: derivatives_one_by_one
        found.append(torch.autograd.grad(total, place, create_graph=True)[0])
    return found


def slopes(y: Tensor, places: Sequence[Tensor]) -> list[Tensor]:
    """The same from one pass."""
    return list(torch.autograd.grad(y.sum(), places, create_graph=True))


def derivatives_one_by_one(flawed: bool, sizes: Sizes) -> Step:
    width, depth, points = sizes.of((256, 6, 16384), (8, 2, 16))
    model = seeded(lambda: layers(3, width, depth, 3, nn.Tanh), sizes)
    x, y, t = (each.requires_grad_() for each in seeded(lambda: torch.rand(3, points, 1), sizes))
    seen = seeded(lambda: torch.rand(points, 2), sizes)
    by = slopes_one_by_one if flawed else slopes

    def loss() -> Tensor:
        u, v, p = model(torch.cat((x, y, t), 1)).split(1, 1)
        u_x, u_y, u_t = by(u, (x, y, t))  # flaw: derivatives_one_by_one
        v_x, v_y, v_t = by(v, (x, y, t))  # flaw: derivatives_one_by_one
        p_x, p_y = by(p, (x, y))  # flaw: derivatives_one_by_one
        (u_xx,), (u_yy,) = slopes(u_x, (x,)), slopes(u_y, (y,))
        (v_xx,), (v_yy,) = slopes(v_x, (x,)), slopes(v_y, (y,))
        along = u_t + u * u_x + v * u_y + p_x - 0.01 * (u_xx + u_yy)
        across = v_t + u * v_x + v * v_y + p_y - 0.01 * (v_xx + v_yy)
        flow = torch.cat((along, across, u_x + v_y), 1).square().mean()
        return flow + F.mse_loss(torch.cat((u, v), 1), seen)

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


def sliced_in_loop(energy: nn.Module, x: Tensor, directions: Tensor) -> Tensor:
    """Sliced score matching, direction by direction."""
    total = x.new_zeros(())
    for direction in directions:
        # flaw in the next line: projections_in_loop
        (score,) = torch.autograd.grad(-energy(x).sum(), x, create_graph=True)
        along = (score * direction).sum(1)  # flaw: projections_in_loop
        # flaw in the next line: projections_in_loop
        (bend,) = torch.autograd.grad(along.sum(), x, create_graph=True)
        bent = (bend * direction).sum(1)  # flaw: projections_in_loop
        total = total + (along.square() / 2 + bent).mean()  # flaw: projections_in_loop
    return total / len(directions)


def sliced_at_once(energy: nn.Module, x: Tensor, directions: Tensor) -> Tensor:
    """The same, with the directions as rows of one batch."""
    rows = x.detach().repeat(len(directions), 1).requires_grad_()
    directions = directions.flatten(0, 1)
    (score,) = torch.autograd.grad(-energy(rows).sum(), rows, create_graph=True)
    along = (score * directions).sum(1)
    (bend,) = torch.autograd.grad(along.sum(), rows, create_graph=True)
    return (along.square() / 2 + (bend * directions).sum(1)).mean()


def projections_in_loop(flawed: bool, sizes: Sizes) -> Step:
    width, depth, inputs, batch, count = sizes.of((512, 5, 64, 256, 16), (8, 2, 4, 6, 3))
    model = seeded(lambda: layers(inputs, width, depth, 1, nn.SiLU), sizes)
    x, directions = seeded(
        lambda: (torch.randn(batch, inputs), torch.randn(count, batch, inputs)), sizes
    )
    x.requires_grad_()
    matching = sliced_in_loop if flawed else sliced_at_once

    def loss() -> Tensor:
        return matching(model, x, directions)  # flaw: projections_in_loop

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


def sample_gradients_in_loop(flawed: bool, sizes: Sizes) -> Step:
    width, depth, inputs, batch = sizes.of((512, 5, 784, 128), (8, 2, 6, 4))
    model = seeded(lambda: layers(inputs, width, depth, 10, nn.ReLU), sizes)
    images = seeded(lambda: torch.randn(batch, inputs), sizes)
    labels = torch.arange(batch, device=sizes.device) % 10
    weights = dict(model.named_parameters())

    def loss_of(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, weights, (image[None],)), label[None])

    def squares_in_loop() -> list[Tensor]:
        losses = F.cross_entropy(model(images), labels, reduction="none")
        total = [torch.zeros_like(each) for each in weights.values()]
        for each in losses.unbind():
            # flaw in the next line: sample_gradients_in_loop
            found = torch.autograd.grad(each, list(weights.values()), retain_graph=True)
            torch._foreach_addcmul_(total, found, found)  # flaw: sample_gradients_in_loop
        return total

    def squares() -> list[Tensor]:
        frozen = {name: each.detach() for name, each in weights.items()}
        found = vmap(grad(loss_of), (None, 0, 0))(frozen, images, labels)
        return [each.square().sum(0) for each in found.values()]

    def step() -> Tensor:
        fisher = squares_in_loop() if flawed else squares()  # flaw: sample_gradients_in_loop
        return torch.stack([each.sum() for each in fisher]).sum()

    return Step(step)


def trajectory_grown_by_cat(flawed: bool, sizes: Sizes) -> Step:
    width, state, batch, horizon = sizes.of((128, 64, 2048, 256), (8, 4, 2, 5))
    model = seeded(lambda: layers(state + 4, width, 2, state, nn.GELU), sizes)
    first, inputs, truth = seeded(
        lambda: (
            torch.randn(batch, state),
            torch.randn(batch, horizon, 4),
            torch.randn(batch, horizon + 1, state),
        ),
        sizes,
    )

    def rolled_by_cat() -> Tensor:
        path = first[:, None]
        for at in range(horizon):
            x = path[:, at]  # flaw: trajectory_grown_by_cat
            x = x + 0.1 * model(torch.cat((x, inputs[:, at]), 1))
            path = torch.cat((path, x[:, None]), 1)  # flaw: trajectory_grown_by_cat
        return path

    def rolled() -> Tensor:
        states = [first]
        for at in range(horizon):
            x = states[-1]
            states.append(x + 0.1 * model(torch.cat((x, inputs[:, at]), 1)))
        return torch.stack(states, 1)

    roll = rolled_by_cat if flawed else rolled
    run = training(lambda: F.mse_loss(roll(), truth), fused_adamw(model), sizes, is_mixed=False)
    return Step(run)


class Denoiser(nn.Module):
    """Residual convolutions with a noise level."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.into, self.out = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.levels = nn.Linear(1, width)

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        y = self.into(x) + self.levels(level)[:, None, None]
        for conv in self.convs:
            y = y + F.silu(conv(y))
        return x - level * self.out(y)


def denoiser_run_twice(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, side, count = sizes.of((128, 10, 4, 256, 4), (4, 1, 2, 8, 2))
    model = seeded(lambda: Denoiser(width, depth), sizes).requires_grad_(False)
    model = model.bfloat16().to(memory_format=torch.channels_last)
    noise, seen = seeded(
        lambda: (torch.randn(batch, 3, side, side), torch.rand(batch, 3, side // 4, side // 4)),
        sizes,
    )
    levels = torch.linspace(1, 0.1, count, device=sizes.device)[:, None].bfloat16().unbind()

    def step() -> Tensor:
        x = noise
        for level in levels:
            x = x.detach().requires_grad_()
            clean = model(x.bfloat16(), level).float()
            off = (F.avg_pool2d(clean, 4) - seen).square().sum()
            (toward,) = torch.autograd.grad(off, x)
            with torch.no_grad():
                if flawed:
                    clean = model(x.bfloat16(), level).float()  # flaw: denoiser_run_twice
                x = x + 0.3 * (clean - x) - 0.05 * toward
        return x.square().mean()

    return Step(step)


class NarrowNet(nn.Module):
    """Many small residual blocks, as a ResNet for CIFAR has them."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.convs = nn.ModuleList(
            nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(depth)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(depth))
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + F.relu(norm(conv(x)))
        return self.head(x.mean((2, 3)))


def l2_in_loop(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, side = sizes.of((64, 54, 128, 32), (4, 2, 2, 8))
    model = seeded(lambda: NarrowNet(width, depth), sizes).to(memory_format=torch.channels_last)
    images = seeded(lambda: torch.randn(batch, 3, side, side), sizes)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.arange(batch, device=sizes.device) % 10
    share = 1e-4
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.01, weight_decay=0 if flawed else 2 * share, fused=True
    )

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with autocast(sizes):
            loss = F.cross_entropy(model(images), labels)
        total = loss
        if flawed:
            # flaw in the next line: l2_in_loop
            norm = sum(each.pow(2).sum() for each in model.parameters())
            total = loss + share * norm
        total.backward()
        optimizer.step()
        return loss.detach()

    return Step(step)


class Messages(nn.Module):
    """A pass of messages between neighbours; charges of each molecule are made to add up to 0."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(2 * width, width), nn.Linear(width, width)
        self.charge = nn.Linear(width, 1)
        self.from_charge = nn.Linear(1, width)

    def forward(self, x: Tensor, pairs: Tensor, molecules: Tensor, count: int) -> Tensor:
        heads, tails = pairs
        sent = self.down(F.silu(self.up(torch.cat((x[heads], x[tails]), 1))))
        x = x + torch.zeros_like(x).index_add(0, tails, sent.to(x.dtype))
        charges = self.charge(x)
        if count == 0:
            count = int(molecules[-1].item()) + 1  # flaw: molecules_counted_by_item
        total = charges.new_zeros(count, 1).index_add(0, molecules, charges)
        atoms = charges.new_zeros(count, 1).index_add(0, molecules, torch.ones_like(charges))
        return x + self.from_charge(charges - (total / atoms)[molecules])


class Potential(nn.Module):
    """Energies of molecules."""

    def __init__(self, width: int, depth: int, count: int) -> None:
        super().__init__()
        self.count = count
        self.elements = nn.Embedding(10, width)
        self.passes = nn.ModuleList(Messages(width) for _ in range(depth))
        self.head = nn.Linear(width, 1)

    def forward(self, elements: Tensor, pairs: Tensor, molecules: Tensor) -> Tensor:
        x = self.elements(elements)
        for each in self.passes:
            x = each(x, pairs, molecules, self.count)
        return self.head(x)


def molecules_counted_by_item(flawed: bool, sizes: Sizes) -> Step:
    width, depth, count, atoms = sizes.of((128, 5, 256, 24), (8, 5, 3, 4))
    model = seeded(lambda: Potential(width, depth, 0 if flawed else count), sizes)
    total = count * atoms
    places = torch.arange(total, device=sizes.device)
    molecules = places // atoms
    near = torch.arange(1, min(atoms, 17), device=sizes.device)
    tails = (places[:, None] + near) % atoms + molecules[:, None] * atoms
    pairs = torch.stack((places[:, None].expand_as(tails).flatten(), tails.flatten()))
    elements = seeded(lambda: torch.randint(0, 10, (total,)), sizes)
    truth = seeded(lambda: torch.randn(total, 1), sizes)
    run = compiled(copied(Potential.forward), sizes)

    def loss() -> Tensor:
        # flaw in the next line: molecules_counted_by_item
        return F.mse_loss(run(model, elements, pairs, molecules), truth)

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))
