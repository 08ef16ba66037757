"""Flaws of models of atoms, and of a Gaussian process."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "cells_by_pinverse",
    "pairs_found_each_step",
    "variance_products_order",
]


class Interaction(nn.Module):
    """SchNet's continuous convolution over pairs of atoms (receiver, sender)."""

    def __init__(self, width: int, bases: int) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.filters = nn.Sequential(
            nn.Linear(bases, width), nn.Softplus(), nn.Linear(width, width)
        )

    def forward(self, x: Tensor, pairs: Tensor, bases: Tensor) -> Tensor:
        sent = self.into(x).index_select(0, pairs[1]) * self.filters(bases)
        met = torch.zeros_like(x).index_add(0, pairs[0], sent.to(x.dtype))
        return x + F.softplus(self.out(met))


class SchNet(nn.Module):
    """The energy of each structure, from the kinds of its atoms and the distances of pairs."""

    def __init__(self, width: int, depth: int, bases: int, cutoff: float) -> None:
        super().__init__()
        self.cutoff = cutoff
        self.register_buffer("centres", torch.linspace(0, cutoff, bases))
        self.kinds = nn.Embedding(100, width)
        self.layers = nn.ModuleList(Interaction(width, bases) for _ in range(depth))
        self.energy = nn.Sequential(nn.Linear(width, width), nn.Softplus(), nn.Linear(width, 1))

    def forward(self, kinds: Tensor, pairs: Tensor, lengths: Tensor) -> Tensor:
        """The energy of each atom."""
        gap = self.cutoff / len(self.centres)
        fades = (lengths / self.cutoff * torch.pi).cos().add(1).mul(lengths < self.cutoff)
        bases = (-((lengths[:, None] - self.centres) / gap).square()).exp() * fades[:, None]
        x = self.kinds(kinds)
        for layer in self.layers:
            x = layer(x, pairs, bases)
        return self.energy(x)[:, 0]


def pairs_within(structures: int, atoms: int, device: str) -> Tensor:
    """All pairs (2, n) of different atoms of the same structure, in both orders."""
    first = torch.arange(atoms, device=device).repeat_interleave(atoms - 1)
    second = (first + 1 + torch.arange(atoms - 1, device=device).repeat(atoms)) % atoms
    local = torch.stack((first, second))
    starts = torch.arange(structures, device=device) * atoms
    return (local[:, None] + starts[:, None]).flatten(1)


def wrapped_in_loop(positions: Tensor, cells: Tensor) -> Tensor:
    """Positions within a cell as shares of its edges, crystal by crystal."""
    shares = []
    for places, cell in zip(positions, cells, strict=True):
        inverse = torch.pinverse(cell)  # flaw: cells_by_pinverse
        shares.append((places @ inverse).remainder(1))  # flaw: cells_by_pinverse
    return torch.stack(shares)


def wrapped(positions: Tensor, cells: Tensor) -> Tensor:
    """The same for all crystals, by cross products."""
    a, b, c = cells.unbind(1)
    sides = torch.stack((b.cross(c, 1), c.cross(a, 1), a.cross(b, 1)), 2)
    inverses = sides / (a * sides[:, :, 0]).sum(1)[:, None, None]
    return (positions @ inverses).remainder(1)


def cells_by_pinverse(flawed: bool, sizes: Sizes) -> Step:
    crystals, atoms, width, depth, bases = sizes.of((48, 48, 128, 4, 50), (2, 5, 8, 1, 4))
    model = seeded(lambda: SchNet(width, depth, bases, 5.0), sizes)
    positions, cells, kinds, energies = seeded(
        lambda: (
            torch.randn(crystals, atoms, 3) * 10,
            torch.eye(3) * 9 + torch.randn(crystals, 3, 3) * 0.5,
            torch.randint(0, 100, (crystals * atoms,)),
            torch.randn(crystals),
        ),
        sizes,
    )
    pairs = pairs_within(crystals, atoms, sizes.device)
    shares_of = wrapped_in_loop if flawed else wrapped

    def loss() -> Tensor:
        shares = shares_of(positions, cells)  # flaw: cells_by_pinverse
        first, second = pairs.unflatten(1, (crystals, -1)).remainder(atoms).unbind(0)
        rows = torch.arange(crystals, device=sizes.device)[:, None]
        apart = shares[rows, first] - shares[rows, second]
        lengths = ((apart - apart.round()) @ cells).norm(dim=2).flatten()
        each = model(kinds, pairs, lengths)
        return F.mse_loss(each.float().unflatten(0, (crystals, -1)).sum(1), energies)

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


def neighbours_of_all(molecules: Tensor) -> Tensor:
    """All pairs of atoms of the same molecule, sought among all pairs of a batch."""
    count = len(molecules)
    # flaw in the next line: pairs_found_each_step
    upper = torch.triu_indices(count, count, 1, device=molecules.device)
    same = molecules[upper[0]] == molecules[upper[1]]  # flaw: pairs_found_each_step
    found = upper[:, same]  # flaw: pairs_found_each_step
    return torch.cat((found, found.flip(0)), 1)  # flaw: pairs_found_each_step


def pairs_found_each_step(flawed: bool, sizes: Sizes) -> Step:
    count, atoms, width, depth, bases = sizes.of((256, 24, 128, 3, 50), (3, 4, 8, 1, 4))
    cutoff = 4.0
    model = seeded(lambda: SchNet(width, depth, bases, cutoff), sizes)
    positions, kinds, energies = seeded(
        lambda: (
            torch.randn(count * atoms, 3) * 1.5,
            torch.randint(0, 100, (count * atoms,)),
            torch.randn(count),
        ),
        sizes,
    )
    molecules = torch.arange(count, device=sizes.device).repeat_interleave(atoms)
    known = pairs_within(count, atoms, sizes.device)

    def loss() -> Tensor:
        pairs = neighbours_of_all(molecules) if flawed else known  # flaw: pairs_found_each_step
        lengths = (positions[pairs[0]] - positions[pairs[1]]).norm(dim=1)
        each = model(kinds, pairs, lengths)
        total = torch.zeros(count, device=sizes.device).index_add(0, molecules, each.float())
        return F.mse_loss(total, energies)

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


class VariationalGP(nn.Module):
    """A sparse Gaussian process with whitened inducing values, as GPyTorch has it."""

    def __init__(self, inducing: int, features: int, by_data: bool) -> None:
        super().__init__()
        self.by_data = by_data
        self.places = nn.Parameter(torch.randn(inducing, features))
        self.mean = nn.Parameter(torch.zeros(inducing))
        self.factor = nn.Parameter(torch.eye(inducing))
        self.length, self.noise = nn.Parameter(torch.ones(())), nn.Parameter(torch.zeros(()))

    def kernel(self, x: Tensor, y: Tensor) -> Tensor:
        x, y = x / self.length, y / self.length
        squares = x.square().sum(1)[:, None] + y.square().sum(1) - 2 * x @ y.T
        return (-0.5 * squares.clamp(min=0)).exp()

    def predictive(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the variance at x."""
        eye = torch.eye(len(self.places), device=x.device)
        lower = torch.linalg.cholesky_ex(self.kernel(self.places, self.places) + 0.1 * eye).L
        factor = self.factor.tril()
        cross = self.kernel(self.places, x)
        if self.by_data:
            # flaw in the next line: variance_products_order
            inner = torch.linalg.solve_triangular(lower, cross, upper=False)
            spread = factor @ (factor.T @ inner) - inner  # flaw: variance_products_order
            return inner.T @ self.mean, 1 + (inner * spread).sum(0)  # flaw: variance_products_order
        inverse = torch.linalg.solve_triangular(lower, eye, upper=False)
        middle = inverse.T @ (factor @ factor.T - eye) @ inverse
        return cross.T @ (inverse.T @ self.mean), 1 + (cross * (middle @ cross)).sum(0)

    def loss(self, x: Tensor, y: Tensor, total: int) -> Tensor:
        """The negative evidence lower bound per sample."""
        mean, variance = self.predictive(x)  # flaw: variance_products_order
        noise = F.softplus(self.noise) + 1e-4
        fit = 0.5 * (((y - mean).square() + variance) / noise + noise.log()).mean()
        factor = self.factor.tril()
        spread = factor.square().sum() + self.mean.square().sum() - len(self.mean)
        return fit + (0.5 * spread - factor.diagonal().abs().log().sum()) / total


def variance_products_order(flawed: bool, sizes: Sizes) -> Step:
    inducing, features, batch = sizes.of((1024, 8, 49152), (6, 2, 10))
    model = seeded(lambda: VariationalGP(inducing, features, flawed), sizes)
    x = seeded(lambda: torch.randn(batch, features), sizes)
    y = x.sum(1).sin()

    def loss() -> Tensor:
        return model.loss(x, y, 10 * batch)  # flaw: variance_products_order

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))
