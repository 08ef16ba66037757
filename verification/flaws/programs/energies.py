"""Flaws of networks for fields and atoms, and of Gaussian processes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import jacrev, vmap

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "covariance_of_all_points",
    "forces_not_read",
    "hessian_for_its_trace",
    "kernel_factored_per_draw",
    "references_by_one_hot",
    "stress_by_second_backward",
]


def field(inputs: int, width: int, depth: int) -> nn.Sequential:
    """A smooth network."""
    layers: list[nn.Module] = [nn.Linear(inputs, width), nn.Tanh()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def carried_laplacian(model: nn.Sequential, x: Tensor) -> Tensor:
    """The sum of second derivatives, which goes through the layers with the first ones."""
    slopes = torch.eye(x.shape[1], device=x.device).expand(len(x), -1, -1)
    bends = torch.zeros_like(x)
    for layer in model:
        if isinstance(layer, nn.Linear):
            x, slopes = layer(x), slopes @ layer.weight.T
            bends = bends @ layer.weight.T
        else:
            x = x.tanh()
            steep = 1 - x.square()
            bends = steep * (bends - 2 * x * slopes.square().sum(1))
            slopes = steep[:, None] * slopes
    return bends.squeeze(-1)


def hessian_for_its_trace(flawed: bool, sizes: Sizes) -> Step:
    points, inputs, width, depth = sizes.of((4096, 6, 128, 3), (3, 2, 4, 1))
    model = seeded(lambda: field(inputs, width, depth), sizes)
    x = seeded(lambda: torch.rand(points, inputs), sizes)

    def value(at: Tensor) -> Tensor:
        return model(at).squeeze(-1)

    def loss() -> Tensor:
        if flawed:
            second = vmap(jacrev(jacrev(value)))(x)  # flaw: hessian_for_its_trace
            laplacian = second.diagonal(dim1=-2, dim2=-1).sum(-1)  # flaw: hessian_for_its_trace
        else:
            laplacian = carried_laplacian(model, x)
        force = (torch.pi * x).sin().prod(-1)
        return (laplacian + force).square().mean()

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


class Potential(nn.Module):
    """Energies of atoms by messages of near ones."""

    def __init__(self, kinds: int, width: int, depth: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(kinds, width), nn.Linear(width, 1)
        self.filters = nn.ModuleList(
            nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(depth)
        )
        self.updates = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.SiLU()) for _ in range(depth)
        )

    def forward(self, kinds: Tensor, vectors: Tensor, pairs: Tensor) -> Tensor:
        distances = (vectors.square().sum(-1) + 1e-4).sqrt()
        centers = torch.linspace(0, 3, 16, device=distances.device)
        waves = (-4 * (distances[:, None] - centers).square()).exp()
        x = self.embed(kinds)
        for filter_of, update in zip(self.filters, self.updates, strict=True):
            sent = x.index_select(0, pairs[1]) * filter_of(waves)
            x = x + update(torch.zeros_like(x).index_add(0, pairs[0], sent))
        return self.head(x).sum() / len(x)


def atoms(count: int, near: int, sizes: Sizes) -> tuple[Tensor, Tensor, Tensor]:
    """Kinds, places, and pairs of atoms that are near."""
    kinds, places, others = seeded(
        lambda: (
            torch.randint(0, 10, (count,)),
            torch.rand(count, 3) * 2,
            torch.randint(0, count, (count * near,)),
        ),
        sizes,
    )
    own = torch.arange(count, device=sizes.device).repeat_interleave(near)
    return kinds, places, torch.stack((own, others))


def forces_not_read(flawed: bool, sizes: Sizes) -> Step:
    count, near, width, depth = sizes.of((12_000, 24, 128, 4), (5, 2, 4, 1))
    model = seeded(lambda: Potential(10, width, depth), sizes).requires_grad_(False)
    kinds, places, pairs = atoms(count, near, sizes)

    def predicted(with_forces: bool) -> dict[str, Tensor]:
        own = places.detach().requires_grad_(with_forces)
        vectors = own.index_select(0, pairs[0]) - own.index_select(0, pairs[1])
        found = {"energy": model(kinds, vectors, pairs)}
        if with_forces:
            (slope,) = torch.autograd.grad(found["energy"], own)  # flaw: forces_not_read
            found["forces"] = -slope
        return found

    def step() -> Tensor:
        return predicted(flawed)["energy"].detach()  # flaw: forces_not_read

    return Step(step)


def stress_by_second_backward(flawed: bool, sizes: Sizes) -> Step:
    count, near, width, depth = sizes.of((6000, 24, 128, 3), (5, 2, 4, 1))
    model = seeded(lambda: Potential(10, width, depth), sizes)
    kinds, places, pairs = atoms(count, near, sizes)

    def loss() -> Tensor:
        own = places.detach().requires_grad_()
        strain = torch.zeros(3, 3, device=own.device, requires_grad=True)
        moved = own + own @ (strain + strain.T) / 2
        vectors = moved.index_select(0, pairs[0]) - moved.index_select(0, pairs[1])
        energy = model(kinds, vectors, pairs)
        if flawed:
            # flaw in the next line: stress_by_second_backward
            (slope,) = torch.autograd.grad(energy, own, create_graph=True)
            # flaw in the next line: stress_by_second_backward
            (stress,) = torch.autograd.grad(energy, strain, create_graph=True)
        else:
            slope, stress = torch.autograd.grad(energy, (own, strain), create_graph=True)
        error = (count * slope + 0.1).square().mean() + (stress - 0.1).square().mean()
        return error + (energy - 1).square()

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


def references_by_one_hot(flawed: bool, sizes: Sizes) -> Step:
    count, crystals, kinds, width = sizes.of((400_000, 2000, 95, 128), (9, 3, 5, 4))
    model = seeded(
        lambda: nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)), sizes
    )
    features, kind, offsets, wanted = seeded(
        lambda: (
            torch.randn(count, width),
            torch.randint(0, kinds, (count,)),
            torch.randn(kinds),
            torch.randn(crystals),
        ),
        sizes,
    )
    crystal = torch.arange(count, device=sizes.device) * crystals // count
    one = torch.eye(kinds, device=sizes.device)

    def loss() -> Tensor:
        own = model(features).squeeze(1).float()
        if flawed:
            rows = one[kind]  # flaw: references_by_one_hot
            every = offsets.repeat(count, 1)  # flaw: references_by_one_hot
            reference = (rows * every).sum(1)  # flaw: references_by_one_hot
        else:
            reference = offsets[kind]
        summed = torch.zeros_like(wanted).index_add(0, crystal, own + reference)
        return F.mse_loss(summed * crystals / count, wanted)

    return Step(training(loss, fused_adamw(model), sizes))


def covariances(x: Tensor, y: Tensor) -> Tensor:
    """A smooth kernel of points."""
    # flaw in the next line: covariance_of_all_points, kernel_factored_per_draw
    squares = x.square().sum(-1)[:, None] + y.square().sum(-1) - 2 * x @ y.T
    # flaw in the next line: covariance_of_all_points, kernel_factored_per_draw
    distances = (squares.clamp(min=0) + 1e-6).sqrt() * 5**0.5
    # flaw in the next line: covariance_of_all_points, kernel_factored_per_draw
    return (1 + distances + distances.square() / 3) * (-distances).exp()


def kernel_factored_per_draw(flawed: bool, sizes: Sizes) -> Step:
    seen, asked, inputs, draws = sizes.of((2048, 512, 8, 6), (6, 3, 2, 3))
    x, values, new = seeded(
        lambda: (torch.randn(seen, inputs), torch.randn(seen, 1), torch.randn(asked, inputs)),
        sizes,
    )

    def factored() -> Tensor:
        noise = 0.1 * torch.eye(seen, device=x.device)
        return torch.linalg.cholesky(covariances(x, x) + noise)  # flaw: kernel_factored_per_draw

    def drawn(factor: Tensor) -> Tensor:
        cross = torch.linalg.solve_triangular(factor, covariances(x, new), upper=False)
        mean = cross.T @ torch.linalg.solve_triangular(factor, values, upper=False)
        spread = covariances(new, new) - cross.T @ cross
        root = torch.linalg.cholesky(spread + 1e-2 * torch.eye(asked, device=x.device))
        return mean + root @ torch.randn(asked, 1, device=x.device)

    @torch.inference_mode()
    def step() -> Tensor:
        if flawed:
            found = [drawn(factored()) for _ in range(draws)]  # flaw: kernel_factored_per_draw
        else:
            factor = factored()
            found = [drawn(factor) for _ in range(draws)]
        return torch.stack(found).square().mean()

    return Step(step)


def covariance_of_all_points(flawed: bool, sizes: Sizes) -> Step:
    seen, asked, inputs = sizes.of((1024, 12_000, 8), (6, 5, 2))
    x, values, new = seeded(
        lambda: (torch.randn(seen, inputs), torch.randn(seen, 1), torch.randn(asked, inputs)),
        sizes,
    )

    @torch.inference_mode()
    def step() -> Tensor:
        if flawed:
            every = torch.cat((x, new))
            full = covariances(every, every)  # flaw: covariance_of_all_points
            own, cross = full[:seen, :seen], full[:seen, seen:]
            alone = full.diagonal()[seen:]
        else:
            own, cross = covariances(x, x), covariances(x, new)
            alone = torch.ones(asked, device=x.device)
        factor = torch.linalg.cholesky(own + 0.1 * torch.eye(seen, device=x.device))
        solved = torch.linalg.solve_triangular(factor, cross, upper=False)
        mean = solved.T @ torch.linalg.solve_triangular(factor, values, upper=False)
        return mean.square().mean() + (alone - solved.square().sum(0)).mean()

    return Step(step)
