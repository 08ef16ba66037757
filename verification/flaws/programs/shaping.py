"""Flaws of networks for clouds of points, views, masks and videos."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "basis_of_fixed_cloud",
    "frequencies_from_cpu",
    "mask_losses_outside_boxes",
    "neighbours_per_layer",
    "poses_inverted_checked",
    "text_mask_all_true",
]


def nearest(points: Tensor, count: int) -> Tensor:
    """The rows of the nearest points of each cloud."""
    squares = points.square().sum(-1)
    # flaw in the next line: neighbours_per_layer
    apart = squares[:, :, None] + squares[:, None] - 2 * points @ points.mT
    places = apart.topk(count, largest=False).indices  # flaw: neighbours_per_layer
    first = torch.arange(len(points), device=points.device)[:, None, None] * points.shape[1]
    return (places + first).flatten()


class EdgeLayer(nn.Module):
    """The most of what the edges of each point say."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.own, self.other = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)

    def forward(self, x: Tensor, places: Tensor, count: int) -> Tensor:
        y = self.other(x).flatten(0, 1).index_select(0, places)
        y = y.view(*x.shape[:2], count, -1)
        return F.leaky_relu(self.own(x) + y.amax(2), 0.2)


def neighbours_per_layer(flawed: bool, sizes: Sizes) -> Step:
    batch, points, count, width, depth = sizes.of((16, 1024, 16, 64, 4), (2, 6, 2, 4, 2))
    layers = seeded(
        lambda: nn.ModuleList(EdgeLayer(width if at else 3, width) for at in range(depth)), sizes
    )
    head = seeded(lambda: nn.Linear(width, 40), sizes)
    cloud = seeded(lambda: torch.randn(batch, points, 3), sizes)
    labels = torch.arange(batch, device=sizes.device) % 40

    def loss() -> Tensor:
        x, kept = cloud, None if flawed else nearest(cloud, count)
        for layer in layers:
            places = nearest(cloud, count) if kept is None else kept  # flaw: neighbours_per_layer
            x = layer(x, places, count)
        return F.cross_entropy(head(x.amax(1)), labels)

    modules = nn.ModuleList((layers, head))
    return Step(training(loss, fused_adamw(modules), sizes, is_mixed=False))


def poses_inverted_checked(flawed: bool, sizes: Sizes) -> Step:
    views, rays, width = sizes.of((48, 8192, 128), (3, 4, 4))
    model = seeded(
        lambda: nn.Sequential(
            nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3),
        ),
        sizes,
    )  # fmt: skip
    model = model.eval().bfloat16()
    turns, shifts, pixels = seeded(
        lambda: (
            torch.linalg.qr(torch.randn(views, 3, 3))[0],
            torch.randn(views, 3),
            torch.rand(rays, 2) - 0.5,
        ),
        sizes,
    )
    poses = torch.eye(4, device=sizes.device).repeat(views, 1, 1)
    poses[:, :3, :3], poses[:, :3, 3] = turns, shifts

    @torch.inference_mode()
    def step() -> Tensor:
        total = torch.zeros((), device=poses.device)
        for pose in poses:
            # flaw in the next line: poses_inverted_checked
            to_world = torch.linalg.inv(pose) if flawed else torch.linalg.inv_ex(pose).inverse
            ways = F.pad(pixels, (0, 1), value=1.0) @ to_world[:3, :3].T
            rays_of = torch.cat((F.normalize(ways, dim=-1), to_world[:3, 3].expand_as(ways)), 1)
            total = total + model(rays_of.bfloat16()).float().sigmoid().mean()
        return total / views

    return Step(step)


class VideoLayer(nn.Module):
    """Patches of a video and words of a text attend to each other."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm_1, self.norm_2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = self.qkv(self.norm_1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        # flaw in the next line: text_mask_all_true
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def text_mask_all_true(flawed: bool, sizes: Sizes) -> Step:
    batch, patches, words, width, heads, depth = sizes.of(
        (2, 6144, 256, 1536, 12, 4), (2, 6, 2, 8, 2, 1)
    )
    layers = seeded(lambda: nn.ModuleList(VideoLayer(width, heads) for _ in range(depth)), sizes)
    layers = layers.eval().bfloat16()
    video, text = seeded(
        lambda: (torch.randn(batch, patches, width), torch.randn(batch, words, width)), sizes
    )
    first = torch.cat((video, text), 1).bfloat16()
    is_text = torch.ones(batch, words, dtype=torch.bool, device=sizes.device)

    @torch.inference_mode()
    def step() -> Tensor:
        mask = None
        if flawed:
            is_there = F.pad(is_text, (patches, 0), value=True)
            mask = (is_there[:, :, None] & is_there[:, None])[:, None]  # flaw: text_mask_all_true
        x = first
        for layer in layers:
            x = layer(x, mask)  # flaw: text_mask_all_true
        return x.float().square().mean()

    return Step(step)


def mask_losses_outside_boxes(flawed: bool, sizes: Sizes) -> Step:
    objects, side, span, width = sizes.of((1600, 160, 32, 64), (3, 8, 3, 4))
    model = seeded(lambda: nn.Conv2d(3, width, 3, padding=1), sizes)
    image, weights, corners = seeded(
        lambda: (
            torch.randn(1, 3, side, side),
            nn.Parameter(torch.randn(objects, width) * 0.1),
            torch.randint(0, side - span, (objects, 2)),
        ),
        sizes,
    )
    wanted = seeded(lambda: (torch.rand(objects, side * side) > 0.5).float(), sizes)
    along = torch.arange(side, device=sizes.device)
    inside = (along >= corners[..., None]) & (along < corners[..., None] + span)
    crops = (inside[:, 0, :, None] & inside[:, 1, None]).flatten(1).float()
    spot = torch.arange(span, device=sizes.device)
    places = (corners[:, :1, None] + spot[:, None]) * side + corners[:, 1:, None] + spot
    places = places.flatten(1)
    optimizer = torch.optim.AdamW([*model.parameters(), weights], lr=1e-4, fused=True)

    def loss() -> Tensor:
        masks = (weights @ F.silu(model(image)).flatten(2)[0]).float()
        if flawed:
            # flaw in the next line: mask_losses_outside_boxes
            errors = F.binary_cross_entropy_with_logits(masks, wanted, reduction="none")
            errors = errors * crops  # flaw: mask_losses_outside_boxes
        else:
            own, aims = masks.gather(1, places), wanted.gather(1, places)
            errors = F.binary_cross_entropy_with_logits(own, aims, reduction="none")
        return errors.sum() / (objects * span * span)  # flaw: mask_losses_outside_boxes

    return Step(training(loss, optimizer, sizes))


class Denoiser(nn.Module):
    """A small network of convolutions that knows the time."""

    def __init__(self, width: int, depth: int, from_cpu: bool) -> None:
        super().__init__()
        self.width, self.from_cpu = width, from_cpu
        self.into, self.out = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.times = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))

    def embedded(self, times: Tensor) -> Tensor:
        """Waves of the time."""
        half = self.width // 2
        if self.from_cpu:
            steps = torch.arange(0, half, dtype=torch.float32)  # flaw: frequencies_from_cpu
            # flaw in the next line: frequencies_from_cpu
            rates = torch.exp(-math.log(10_000) * steps / half)
            rates = rates.to(device=times.device)  # flaw: frequencies_from_cpu
        else:
            steps = torch.arange(0, half, dtype=torch.float32, device=times.device)
            rates = torch.exp(-math.log(10_000) * steps / half)
        angles = times[:, None].float() * rates
        return torch.cat((angles.cos(), angles.sin()), -1)

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        known = self.embedded(times).to(x.dtype)  # flaw: frequencies_from_cpu
        y = self.into(x)
        for time, conv in zip(self.times, self.convs, strict=True):
            y = y + conv(F.silu(y + time(known)[:, :, None, None]))
        return self.out(y)


def frequencies_from_cpu(flawed: bool, sizes: Sizes) -> Step:
    batch, side, width, depth, turns = sizes.of((4, 32, 320, 12, 20), (2, 4, 4, 1, 3))
    model = seeded(lambda: Denoiser(width, depth, flawed), sizes).eval().bfloat16()
    model = model.to(memory_format=torch.channels_last)
    first = seeded(lambda: torch.randn(batch, 4, side, side), sizes).bfloat16()
    times = torch.linspace(999, 0, turns, device=sizes.device)

    @torch.inference_mode()
    def step() -> Tensor:
        x = first
        for time in times:
            x = x - model(x, time.expand(batch)) / turns  # flaw: frequencies_from_cpu
        return x.float().square().mean()

    return Step(step)


def harmonics(vectors: Tensor) -> Tensor:
    """Real spherical harmonics of up to the third degree, not normalized."""
    x, y, z = F.normalize(vectors, dim=-1).unbind(-1)
    return torch.stack(
        (
            torch.ones_like(x), x, y, z, x * y, y * z, x * z, x * x - y * y, 3 * z * z - 1,
            y * (3 * x * x - y * y), x * y * z, y * (5 * z * z - 1), z * (5 * z * z - 3),
            x * (5 * z * z - 1), z * (x * x - y * y), x * (x * x - 3 * y * y),
        ),
        -1,
    )  # fmt: skip


def basis_of_fixed_cloud(flawed: bool, sizes: Sizes) -> Step:
    points, near, width = sizes.of((20_000, 32, 32), (6, 2, 4))
    radial = seeded(lambda: nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 16)), sizes)
    head = seeded(lambda: nn.Linear(16 * width, 4), sizes)
    cloud, features, places, wanted = seeded(
        lambda: (
            torch.randn(points, 3),
            torch.randn(points, width),
            torch.randint(0, points, (points * near,)),
            torch.randn(points, 4),
        ),
        sizes,
    )
    centers = torch.linspace(0, 3, 8, device=sizes.device)

    def basis() -> tuple[Tensor, Tensor]:
        # flaw in the next line: basis_of_fixed_cloud
        vectors = cloud.index_select(0, places).view(points, near, 3) - cloud[:, None]
        distances = vectors.norm(dim=-1, keepdim=True)  # flaw: basis_of_fixed_cloud
        waves = (-2 * (distances - centers).square()).exp()  # flaw: basis_of_fixed_cloud
        return harmonics(vectors), waves  # flaw: basis_of_fixed_cloud

    kept = basis()

    def loss() -> Tensor:
        angular, waves = basis() if flawed else kept  # flaw: basis_of_fixed_cloud
        weights = radial(waves) * angular
        sent = features.index_select(0, places).view(points, near, width)
        return F.mse_loss(head((weights.mT @ sent).flatten(1)), wanted)

    modules = nn.ModuleList((radial, head))
    return Step(training(loss, fused_adamw(modules), sizes, is_mixed=False))
