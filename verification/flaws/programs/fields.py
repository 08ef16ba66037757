"""Flaws of scenes, volumes, atoms, motion and equations: fields that a network or a grid holds."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .control import captured
from .program import Sizes, Step, autocast, fused_adamw, seeded, training

__all__ = [
    "anomalies_in_radiance_field",
    "context_in_each_refinement",
    "equations_in_small_kernels",
    "neighbours_found_on_cpu",
    "radiographs_in_double",
    "rays_made_on_cpu",
]


class Field(nn.Module):
    """Colour and density at points of a scene."""

    def __init__(self, width: int, depth: int, octaves: int) -> None:
        super().__init__()
        self.octaves = octaves
        self.into = nn.Linear(6 * octaves, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, 4)

    def forward(self, points: Tensor) -> Tensor:
        scales = 2.0 ** torch.arange(self.octaves, device=points.device)
        waves = (points[..., None] * scales).flatten(-2)
        x = F.relu(self.into(torch.cat((waves.sin(), waves.cos()), -1)))
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.out(x)


def rendered(field: nn.Module, origins: Tensor, directions: Tensor, samples: int) -> Tensor:
    """The colours of rays, from samples along them."""
    depths = torch.linspace(0.5, 3.0, samples, device=origins.device)
    points = origins[:, None] + directions[:, None] * depths[:, None]
    found = field(points).float()
    density = F.softplus(found[..., 3]) * (2.5 / samples)
    left = torch.exp(density - density.cumsum(1))
    weights = (1 - torch.exp(-density)) * left
    return (weights[..., None] * found[..., :3].sigmoid()).sum(1)


def camera_rays(pose: Tensor, side: int, device: str) -> tuple[Tensor, Tensor]:
    """Origins and directions of the rays of all pixels of a camera."""
    at = torch.arange(side, device=device) + 0.5  # flaw: rays_made_on_cpu
    rows, columns = torch.meshgrid(at, at, indexing="ij")
    # flaw in the next line: rays_made_on_cpu
    x, y = (columns - side / 2) / side, (rows - side / 2) / side
    seen = torch.stack((x, -y, -torch.ones_like(x)), -1)  # flaw: rays_made_on_cpu
    seen = (seen[..., None, :] * pose[:, :3]).sum(-1)  # flaw: rays_made_on_cpu
    seen = F.normalize(seen, dim=-1).view(-1, 3)  # flaw: rays_made_on_cpu
    return pose[:, 3].expand_as(seen).contiguous(), seen  # flaw: rays_made_on_cpu


def poses_of(count: int) -> Tensor:
    """Cameras on a circle, which look at its centre."""
    angles = torch.linspace(0, 1, count)
    poses = torch.zeros(count, 3, 4)
    poses[:, 0, 0], poses[:, 0, 2] = angles.cos(), angles.sin()
    poses[:, 2, 0], poses[:, 2, 2] = -angles.sin(), angles.cos()
    poses[:, 1, 1] = 1
    poses[:, :, 3] = 2 * poses[:, :, 2]
    return poses


def rays_made_on_cpu(flawed: bool, sizes: Sizes) -> Step:
    frames, side, samples, width, depth = sizes.of((3, 400, 24, 64, 3), (2, 6, 4, 8, 1))
    field = seeded(lambda: Field(width, depth, 6), sizes).eval()
    poses = poses_of(frames)
    moved = poses.to(sizes.device)

    @torch.inference_mode()
    def step() -> Tensor:
        total = torch.zeros((), device=sizes.device)
        for at in range(frames):
            if flawed:
                origins, directions = camera_rays(poses[at], side, "cpu")  # flaw: rays_made_on_cpu
                origins = origins.to(sizes.device)  # flaw: rays_made_on_cpu
                directions = directions.to(sizes.device)  # flaw: rays_made_on_cpu
            else:
                origins, directions = camera_rays(moved[at], side, sizes.device)
            with autocast(sizes):
                total += rendered(field, origins, directions, samples).mean()
        return total / frames

    return Step(step)


def anomalies_in_radiance_field(flawed: bool, sizes: Sizes) -> Step:
    rays, samples, width, depth = sizes.of((4096, 64, 256, 8), (6, 4, 8, 2))
    coarse, fine = (seeded(lambda: Field(width, depth, 10), sizes) for _ in range(2))
    pixels, colours = seeded(lambda: (torch.randn(rays, 3), torch.rand(rays, 3)), sizes)
    origins, directions = torch.zeros_like(pixels), F.normalize(pixels, dim=1)

    def loss() -> Tensor:
        first = rendered(coarse, origins, directions, samples)
        second = rendered(fine, origins, directions, samples)
        return F.mse_loss(first, colours) + F.mse_loss(second, colours)

    step = training(loss, fused_adamw(nn.ModuleList((coarse, fine))), sizes)
    return Step(step, lambda: torch.autograd.set_detect_anomaly(flawed))


def rotations(angles: Tensor) -> Tensor:
    """Turns around two axes."""
    (a, b), zero = angles.unbind(1), torch.zeros_like(angles[:, 0])
    one = torch.ones_like(zero)
    first = torch.stack((a.cos(), -a.sin(), zero, a.sin(), a.cos(), zero, zero, zero, one), 1)
    second = torch.stack((b.cos(), zero, b.sin(), zero, one, zero, -b.sin(), zero, b.cos()), 1)
    return first.view(-1, 3, 3) @ second.view(-1, 3, 3)


class Radiograph(nn.Module):
    """What a volume lets through, seen from poses that are sought."""

    def __init__(self, poses: int, side: int, volume: int, samples: int) -> None:
        super().__init__()
        self.register_buffer("volume", torch.rand(1, 1, volume, volume, volume))
        at = torch.linspace(-0.6, 0.6, side)
        rows, columns = torch.meshgrid(at, at, indexing="ij")
        self.register_buffer("plane", torch.stack((columns, rows, torch.ones_like(rows)), -1))
        self.register_buffer("depths", torch.linspace(-1, 1, samples))
        self.angles = nn.Parameter(torch.randn(poses, 2) * 0.1)
        self.shifts = nn.Parameter(torch.randn(poses, 3) * 0.05)

    def forward(self) -> Tensor:
        turned = torch.einsum("pij,rcj->prci", rotations(self.angles), self.plane)
        points = turned[:, None] * self.depths[:, None, None, None]
        points = points + self.shifts[:, None, None, None]
        volume = self.volume.expand(len(points), -1, -1, -1, -1)
        values = F.grid_sample(volume, points, align_corners=True)
        return values.squeeze(1).sum(1) * (2 / len(self.depths))


def radiographs_in_double(flawed: bool, sizes: Sizes) -> Step:
    poses, side, volume, samples = sizes.of((4, 160, 256, 192), (2, 4, 8, 6))
    model = seeded(lambda: Radiograph(poses, side, volume, samples), sizes)
    wanted = seeded(lambda: torch.rand(poses, side, side), sizes)
    if flawed:
        model, wanted = model.double(), wanted.double()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def normalized(image: Tensor) -> Tensor:
        centred = image.flatten(1) - image.flatten(1).mean(1, keepdim=True)
        return F.normalize(centred, dim=1)

    def loss() -> Tensor:
        same = (normalized(model()) * normalized(wanted)).sum(1)
        return 1 - same.mean()

    return Step(training(loss, optimizer, sizes, is_mixed=False))


def pairs_by_numpy(places: Tensor, box: float, cutoff: float) -> tuple[Tensor, Tensor]:
    """The pairs of near atoms, and how many boxes lie between them, found on the CPU."""
    at = places.detach().cpu().numpy()  # flaw: neighbours_found_on_cpu
    apart = at[None] - at[:, None]  # flaw: neighbours_found_on_cpu
    boxes = np.round(apart / box)  # flaw: neighbours_found_on_cpu
    apart = apart - boxes * box  # flaw: neighbours_found_on_cpu
    near = (apart**2).sum(-1) < cutoff**2  # flaw: neighbours_found_on_cpu
    np.fill_diagonal(near, False)
    ends = np.stack(np.nonzero(near))  # flaw: neighbours_found_on_cpu
    shifts = torch.from_numpy(boxes[near])  # flaw: neighbours_found_on_cpu
    device = places.device
    # flaw in the next line: neighbours_found_on_cpu
    return torch.from_numpy(ends).to(device), shifts.to(device)


def pairs_on_device(places: Tensor, box: float, cutoff: float) -> tuple[Tensor, Tensor]:
    """The same where the atoms are."""
    at = places.detach()
    apart = at[None] - at[:, None]
    boxes = torch.round(apart / box)
    near = (apart - boxes * box).square().sum(-1) < cutoff**2
    ends = near.fill_diagonal_(False).nonzero().T
    return ends, boxes[ends[0], ends[1]]


class Potential(nn.Module):
    """The energy of atoms, from messages between near ones."""

    def __init__(self, width: int, layers: int, cutoff: float) -> None:
        super().__init__()
        self.kinds = nn.Embedding(3, width)
        self.register_buffer("centres", torch.linspace(0, cutoff, 16))
        self.filters = nn.ModuleList(nn.Linear(16, width) for _ in range(layers))
        self.updates = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.out = nn.Linear(width, 1)

    def forward(self, kinds: Tensor, vectors: Tensor, ends: Tensor) -> Tensor:
        lengths = (vectors.square().sum(1, keepdim=True) + 1e-9).sqrt()
        basis = torch.exp(-4 * (lengths - self.centres).square())
        x, (targets, sources) = self.kinds(kinds), ends
        for weight, update in zip(self.filters, self.updates, strict=True):
            sent = x.index_select(0, sources) * weight(basis)
            x = x + F.silu(update(torch.zeros_like(x).index_add(0, targets, sent)))
        return self.out(x).sum()


def neighbours_found_on_cpu(flawed: bool, sizes: Sizes) -> Step:
    atoms, width, layers, box, cutoff = sizes.of((1080, 128, 3, 22.0, 5.0), (12, 8, 2, 4.0, 1.9))
    model = seeded(lambda: Potential(width, layers, cutoff), sizes).requires_grad_(False)
    places, kinds = seeded(
        lambda: (torch.rand(atoms, 3) * box, torch.randint(0, 3, (atoms,))), sizes
    )
    places.requires_grad_()
    pairs_of = pairs_by_numpy if flawed else pairs_on_device

    def step() -> Tensor:
        ends, boxes = pairs_of(places, box, cutoff)  # flaw: neighbours_found_on_cpu
        vectors = places.index_select(0, ends[1]) - places.index_select(0, ends[0]) - boxes * box
        energy = model(kinds, vectors, ends)
        (slope,) = torch.autograd.grad(energy, places)
        return (energy.detach() + slope.abs().sum()) / atoms

    return Step(step)


class Flow(nn.Module):
    """Where a state goes at a time."""

    def __init__(self, states: int, width: int) -> None:
        super().__init__()
        self.into, self.middle = nn.Linear(states + 1, width), nn.Linear(width, width)
        self.out = nn.Linear(width, states)

    def forward(self, at: float, state: Tensor) -> Tensor:
        time = torch.full_like(state[:, :1], at)  # flaw: equations_in_small_kernels
        x = torch.cat((state, time), 1)  # flaw: equations_in_small_kernels
        x = torch.tanh(self.into(x))  # flaw: equations_in_small_kernels
        x = torch.tanh(self.middle(x))  # flaw: equations_in_small_kernels
        return self.out(x)  # flaw: equations_in_small_kernels


def solved(flow: nn.Module, state: Tensor, steps: int) -> Tensor:
    """The state after a unit of time, by the method of Runge and Kutta."""
    by = 1 / steps
    for step in range(steps):
        at = step * by
        a = flow(at, state)  # flaw: equations_in_small_kernels
        b = flow(at + by / 2, state + by / 2 * a)  # flaw: equations_in_small_kernels
        c = flow(at + by / 2, state + by / 2 * b)  # flaw: equations_in_small_kernels
        d = flow(at + by, state + by * c)  # flaw: equations_in_small_kernels
        state = state + by / 6 * (a + 2 * b + 2 * c + d)  # flaw: equations_in_small_kernels
    return state


def equations_in_small_kernels(flawed: bool, sizes: Sizes) -> Step:
    batch, states, width, steps = sizes.of((512, 8, 128, 16), (4, 2, 8, 3))
    flow = seeded(lambda: Flow(states, width), sizes)
    given, wanted = seeded(lambda: torch.randn(2, batch, states), sizes)
    optimizer = fused_adamw(flow)

    def learn() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(solved(flow, given, steps), wanted)
        loss.backward()  # flaw: equations_in_small_kernels
        return loss.detach()

    run = learn if flawed or sizes.is_tiny else captured(learn)

    def step() -> Tensor:
        loss = run()
        optimizer.step()
        return loss

    return Step(step)


class FrameEncoder(nn.Module):
    """Features of a frame at an eighth of its size."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, 4, 3)
        self.down = nn.Conv2d(width, width, 3, 2, 1)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))  # flaw: context_in_each_refinement
        x = F.relu(self.down(x))  # flaw: context_in_each_refinement
        for conv in self.convs:
            x = x + F.relu(conv(x))  # flaw: context_in_each_refinement
        return x


class Refiner(nn.Module):
    """A flow between two frames, which is refined in turns."""

    def __init__(self, width: int, depth: int, levels: int, is_repeated: bool) -> None:
        super().__init__()
        self.levels, self.is_repeated = levels, is_repeated
        self.features, self.context = (FrameEncoder(width, depth) for _ in range(2))
        self.mix = nn.Conv2d(2 * width + levels + 2, width, 3, padding=1)
        self.out = nn.Conv2d(width, 2, 3, padding=1)

    def looked_up(self, costs: list[Tensor], flow: Tensor) -> Tensor:
        at = flow.permute(0, 2, 3, 1).reshape(-1, 1, 1, 2)
        found = [F.grid_sample(cost, at, align_corners=True) for cost in costs]
        return torch.cat(found, 1).view(*flow.shape[:1], *flow.shape[2:], -1).permute(0, 3, 1, 2)

    def forward(self, first: Tensor, second: Tensor, turns: int) -> Tensor:
        a, b = self.features(torch.cat((first, second))).chunk(2)
        height, width = a.shape[2:]
        cost = torch.einsum("nchw,ncij->nhwij", a, b) * a.shape[1] ** -0.5
        costs = [cost.reshape(-1, 1, height, width)]
        for _ in range(self.levels - 1):
            costs.append(F.avg_pool2d(costs[-1], 2))
        flow = torch.zeros_like(a[:, :2])
        hidden, context = torch.zeros_like(a), self.context(first)
        for turn in range(turns):
            if self.is_repeated and turn:
                context = self.context(first)  # flaw: context_in_each_refinement
            seen = torch.cat((hidden, context, self.looked_up(costs, flow), flow), 1)
            hidden = torch.tanh(self.mix(seen))
            flow = flow + 0.1 * self.out(hidden)
        return flow


def context_in_each_refinement(flawed: bool, sizes: Sizes) -> Step:
    height, width, channels, depth, levels, turns = sizes.of(
        (384, 768, 128, 6, 3, 12), (32, 48, 8, 1, 2, 2)
    )
    model = seeded(lambda: Refiner(channels, depth, levels, flawed), sizes).eval()
    model = model.bfloat16().to(memory_format=torch.channels_last)
    frames = seeded(lambda: torch.randn(2, 1, height, width, 3), sizes).bfloat16()
    first, second = frames.permute(0, 1, 4, 2, 3)

    @torch.inference_mode()
    def step() -> Tensor:
        flow = model(first, second, turns)  # flaw: context_in_each_refinement
        return flow.float().abs().mean()

    return Step(step)
