"""Flaws of models of molecules and of bodies."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = ["constants_from_host", "padding_at_one_index", "small_qr"]


class Neighbourhoods(nn.Module):
    """A layer of messages from each atom to each of its neighbours, as PET has it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, back: Tensor, there: Tensor) -> Tensor:
        """Messages (atoms, neighbours, channels); `back` is the place of each one's reverse."""
        qkv = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        x = x + self.down(F.silu(self.up(x)))
        reverse = x.flatten(0, 1)[back]  # flaw: padding_at_one_index
        return 0.5 * (x + reverse.view_as(x)) * there[..., None]


def padding_at_one_index(flawed: bool, sizes: Sizes) -> Step:
    width, heads, depth, atoms, most = sizes.of((128, 4, 2, 3072, 32), (8, 2, 2, 6, 5))
    model = seeded(lambda: nn.ModuleList(Neighbourhoods(width, heads) for _ in range(depth)), sizes)
    head = seeded(lambda: nn.Linear(width, 1), sizes)
    distances = seeded(lambda: torch.randn(atoms, most, width), sizes)
    counts = torch.arange(atoms, device=sizes.device) % (most // 2) + most // 4
    there = (torch.arange(most, device=sizes.device) < counts[:, None]).float()
    places = torch.arange(atoms * most, device=sizes.device)
    real = there.flatten().bool()
    back = places.clone()
    back[real] = places[real].flip(0)
    if flawed:
        back[~real] = 0  # flaw: padding_at_one_index
    both = nn.ModuleList([model, head])

    def loss() -> Tensor:
        x = distances * there[..., None]
        for layer in model:
            x = layer(x, back, there)
        return head(x.sum(1)).float().square().mean()

    return Step(training(loss, fused_adamw(both), sizes))


def copied_constant(value: float, like: Tensor) -> Tensor:
    """A constant on the device of a tensor, copied there from the host."""
    return torch.tensor(value, device=like.device, dtype=like.dtype)  # flaw: constants_from_host


def plain_constant(value: float, like: Tensor) -> float:
    return value


Constant = Callable[[float, Tensor], Tensor | float]


class FittingNet(nn.Module):
    """Descriptors of atoms to their energies, through layers with scaled residual paths."""

    def __init__(self, width: int, depth: int, constant: Constant) -> None:
        super().__init__()
        self.constant = constant
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            scale = self.constant(0.5, x)  # flaw: constants_from_host
            x = x + layer(x).tanh() * scale
        return self.out(x).squeeze(-1)


def constants_from_host(flawed: bool, sizes: Sizes) -> Step:
    width, depth, frames, atoms = sizes.of((240, 16, 64, 192), (8, 3, 2, 5))
    constant: Constant = copied_constant if flawed else plain_constant
    model = seeded(lambda: FittingNet(width, depth, constant), sizes)
    descriptors, energies = seeded(
        lambda: (torch.randn(frames, atoms, width), torch.randn(frames)), sizes
    )

    def loss() -> Tensor:
        each = model(descriptors)
        error = each.mean(1) - energies
        spread = each.std(1)
        first = error.square().mean() * constant(0.9, error)
        return first + error.abs().mean() * constant(0.1, error) + 0.01 * spread.mean()

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


def rotations_by_qr(columns: Tensor) -> Tensor:
    """Rotations (n, 3, 3) whose first columns span what two columns (n, 3, 2) do."""
    q, r = torch.linalg.qr(columns)  # flaw: small_qr
    signs = r.diagonal(dim1=1, dim2=2).sign()  # flaw: small_qr
    first, second = (q * signs[:, None]).unbind(2)
    return torch.stack((first, second, torch.linalg.cross(first, second)), 2)


def rotations(columns: Tensor) -> Tensor:
    """The same as the steps of Gram and Schmidt."""
    one, two = columns.unbind(2)
    first = F.normalize(one, dim=1)
    second = F.normalize(two - (first * two).sum(1, keepdim=True) * first, dim=1)
    return torch.stack((first, second, torch.linalg.cross(first, second)), 2)


class Poser(nn.Module):
    """Features of bodies to two columns of the rotation of each joint."""

    def __init__(self, width: int, depth: int, joints: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, 6 * joints)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + F.relu(layer(x))
        return self.out(x).view(-1, 3, 2)


def small_qr(flawed: bool, sizes: Sizes) -> Step:
    width, depth, joints, batch = sizes.of((2048, 8, 24, 64), (8, 2, 3, 2))
    model = seeded(lambda: Poser(width, depth, joints), sizes)
    x = seeded(lambda: torch.randn(batch, width), sizes)
    wanted = rotations(seeded(lambda: torch.randn(batch * joints, 3, 2), sizes))
    turned = rotations_by_qr if flawed else rotations

    def loss() -> Tensor:
        return F.mse_loss(turned(model(x)), wanted)

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))
