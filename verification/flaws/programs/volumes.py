"""Flaws of models that see: volumes, defects, patches, codes of images, and boxes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, compiled, copied, fused_adamw, seeded, training

__all__ = [
    "blobs_one_by_one",
    "blur_in_two_dimensions",
    "codes_by_one_hot",
    "giou_mask_breaks",
    "instance_norm_layout",
    "patches_permuted_per_image",
]


class Segmenter3d(nn.Module):
    """A residual stack of convolutions over a volume, without a norm."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.into, self.out = nn.Conv3d(1, width, 3, padding=1), nn.Conv3d(width, 1, 1)
        self.convs = nn.ModuleList(nn.Conv3d(width, width, 3, padding=1) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        for conv in self.convs:
            x = x + F.leaky_relu(conv(x))
        return self.out(x).float().sigmoid().flatten(1)


def blob_loss_in_loop(found: Tensor, blobs: Tensor) -> Tensor:
    """The Dice loss of each blob of each volume, with all others masked out."""
    total, count = found.new_zeros(()), 0
    for own, labels in zip(found, blobs, strict=True):
        for label in labels.unique():
            if label == 0:  # flaw: blobs_one_by_one
                continue
            others = (labels != 0) & (labels != label)  # flaw: blobs_one_by_one
            kept = own * ~others  # flaw: blobs_one_by_one
            truth = (labels == label).to(own.dtype)  # flaw: blobs_one_by_one
            shared = (kept * truth).sum()  # flaw: blobs_one_by_one
            dice = 2 * shared / (kept.sum() + truth.sum())  # flaw: blobs_one_by_one
            total, count = total + 1 - dice, count + 1
    return total / count


def blob_loss(found: Tensor, blobs: Tensor, most: int) -> Tensor:
    """The same from the sums over each label, of which there are `most` and the background."""
    labels = torch.arange(most + 1, device=found.device)[:, None]
    is_own = (blobs[:, None] == labels).to(found.dtype)
    inside = (is_own @ found[..., None]).squeeze(2)
    sizes = is_own.sum(2)
    dice = 2 * inside[:, 1:] / (inside[:, :1] + inside[:, 1:] + sizes[:, 1:])
    return (1 - dice).mean()


def blobs_in(batch: int, side: int, across: int) -> Tensor:
    """Labels of cubes on a grid of across x across x 1 cells in each volume."""
    places = torch.arange(side)
    cell, inside = places * across // side, (places * across * 2 // side) % 2 == 1
    plane = cell[:, None] * across + cell + 1
    plane = plane * (inside[:, None] & inside)
    return (plane[..., None] * inside).expand(batch, -1, -1, -1).flatten(1).contiguous()


def blobs_one_by_one(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, side, across = sizes.of((32, 4, 2, 96, 4), (4, 1, 2, 8, 2))
    model = seeded(lambda: Segmenter3d(width, depth), sizes)
    model = model.to(memory_format=torch.channels_last_3d)
    volumes = seeded(lambda: torch.randn(batch, 1, side, side, side), sizes)
    blobs = seeded(lambda: blobs_in(batch, side, across), sizes)

    def loss() -> Tensor:
        found = model(volumes)
        if flawed:
            return blob_loss_in_loop(found, blobs)  # flaw: blobs_one_by_one
        return blob_loss(found, blobs, across**2)

    return Step(training(loss, fused_adamw(model), sizes))


class Residual3d(nn.Module):
    """Two convolutions over a volume with instance norms."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv3d(width, width, 3, padding=1, bias=False) for _ in range(2)
        )
        self.norm_1, self.norm_2 = (nn.InstanceNorm3d(width, affine=True) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = F.leaky_relu(self.norm_1(self.first(x)))  # flaw: instance_norm_layout
        return F.leaky_relu(x + self.norm_2(self.second(y)))  # flaw: instance_norm_layout


class UNet3d(nn.Module):
    """A small residual U-Net for volumes."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.into, self.down = nn.Conv3d(1, width, 3, padding=1), nn.Conv3d(width, 2 * width, 2, 2)
        self.fine, self.coarse = Residual3d(width), Residual3d(2 * width)
        self.up = nn.ConvTranspose3d(2 * width, width, 2, 2)
        self.last, self.out = Residual3d(width), nn.Conv3d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.fine(self.into(x))
        x = fine + self.up(self.coarse(self.down(fine)))
        return self.out(self.last(x))


def instance_norm_layout(flawed: bool, sizes: Sizes) -> Step:
    width, classes, batch, side = sizes.of((32, 4, 2, 96), (4, 3, 2, 8))
    model = seeded(lambda: UNet3d(width, classes), sizes)
    volumes = seeded(lambda: torch.randn(batch, 1, side, side, side), sizes)
    labels = seeded(lambda: torch.randint(0, classes, (batch, side, side, side)), sizes)
    if flawed:
        model = model.to(memory_format=torch.channels_last_3d)  # flaw: instance_norm_layout
        # flaw in the next line: instance_norm_layout
        volumes = volumes.to(memory_format=torch.channels_last_3d)
    run = training(
        lambda: F.cross_entropy(model(volumes), labels), fused_adamw(model), sizes, is_mixed=False
    )
    return Step(run)


def gauss(sigma: float, radius: int, like: Tensor) -> Tensor:
    """The weights of a Gaussian window."""
    places = torch.arange(-radius, radius + 1, device=like.device, dtype=like.dtype)
    weights = torch.exp(-((places / sigma) ** 2) / 2)
    return weights / weights.sum()


def blurred_at_once(x: Tensor, sigma: float) -> Tensor:
    """Images blurred by a square window."""
    radius = int(4 * sigma + 0.5)
    row = gauss(sigma, radius, x)
    window = row[:, None] * row
    padded = F.pad(x, (radius,) * 4, mode="reflect")
    return F.conv2d(padded, window[None, None])  # flaw: blur_in_two_dimensions


def blurred(x: Tensor, sigma: float) -> Tensor:
    """The same by rows and then by columns."""
    radius = int(4 * sigma + 0.5)
    row = gauss(sigma, radius, x)[None, None, None]
    padded = F.pad(x, (radius,) * 4, mode="reflect")
    return F.conv2d(F.conv2d(padded, row), row.transpose(2, 3))


class Defects(nn.Module):
    """Features of each place, and how far they are from those of good pieces there."""

    def __init__(self, width: int, depth: int, places: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.register_buffer("mean", torch.randn(places, places, width) * 0.1)
        self.register_buffer("whitening", torch.randn(places, width, width) * width**-0.5)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for conv in self.convs:
            x = x + F.relu(conv(x))
        off = x.permute(0, 2, 3, 1) - self.mean
        return torch.einsum("bhwi,hij->bhwj", off, self.whitening).float().square().mean(3).sqrt()


def blur_in_two_dimensions(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, side, sigma = sizes.of((128, 8, 32, 320, 4.0), (4, 1, 2, 24, 0.5))
    model = seeded(lambda: Defects(width, depth, side // 4), sizes).eval().bfloat16()
    model = model.to(memory_format=torch.channels_last)
    images = seeded(lambda: torch.randn(batch, 3, side, side), sizes).bfloat16()
    images = images.to(memory_format=torch.channels_last)
    smooth = blurred_at_once if flawed else blurred

    @torch.inference_mode()
    def step() -> Tensor:
        distances = F.interpolate(model(images)[:, None], size=(side, side), mode="bilinear")
        return smooth(distances, sigma).amax((1, 2, 3)).mean()  # flaw: blur_in_two_dimensions

    return Step(step)


def orders_in_loop(batch: int, patches: int, device: str) -> Tensor:
    """A random order of the patches of each image."""
    rows = []
    for _ in range(batch):
        rows.append(torch.randperm(patches, device=device))  # flaw: patches_permuted_per_image
    return torch.stack(rows)  # flaw: patches_permuted_per_image


def orders(batch: int, patches: int, device: str) -> Tensor:
    """The same for all images at once."""
    return torch.rand(batch, patches, device=device).argsort(1)


class Masked(nn.Module):
    """A masked autoencoder: a quarter of the patches tells the others."""

    def __init__(self, channels: int, patches: int, width: int, depth: int) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(channels, width), nn.Linear(width, channels)
        self.places = nn.Parameter(torch.randn(patches, width) * 0.02)
        self.hidden = nn.Parameter(torch.randn(width) * 0.02)
        kinds = {"batch_first": True, "norm_first": True, "activation": "gelu"}
        self.encoder, self.decoder = (
            nn.ModuleList(
                nn.TransformerEncoderLayer(width, 8, 4 * width, 0.0, **kinds) for _ in range(count)
            )
            for count in (depth, 2)
        )

    def forward(self, patches: Tensor, order: Tensor) -> Tensor:
        shown = order[:, : order.shape[1] // 4, None]
        x = self.into(patches.gather(1, shown.expand(-1, -1, patches.shape[2])))
        x = x + self.places[shown.squeeze(2)]
        for layer in self.encoder:
            x = layer(x)
        full = self.hidden.to(x.dtype).expand(len(x), order.shape[1], -1)
        x = full.scatter(1, shown.expand(-1, -1, x.shape[2]), x) + self.places
        for layer in self.decoder:
            x = layer(x)
        return self.out(x)


def patches_permuted_per_image(flawed: bool, sizes: Sizes) -> Step:
    batch, patches, channels = sizes.of((256, 196, 768), (4, 8, 6))
    width, depth = sizes.of((512, 8), (16, 1))
    model = seeded(lambda: Masked(channels, patches, width, depth), sizes)
    images = seeded(lambda: torch.randn(batch, patches, channels), sizes)
    draw = orders_in_loop if flawed else orders

    def loss() -> Tensor:
        order = draw(batch, patches, sizes.device)  # flaw: patches_permuted_per_image
        return F.mse_loss(model(images, order).float(), images)

    return Step(training(loss, fused_adamw(model), sizes))


class Codebook(nn.Module):
    """The nearest of its vectors for each place of an image."""

    def __init__(self, codes: int, width: int, by_one_hot: bool) -> None:
        super().__init__()
        self.by_one_hot = by_one_hot
        self.codes = nn.Embedding(codes, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, table = x.float(), self.codes.weight
        with torch.no_grad():
            norms = rows.square().sum(1, keepdim=True) + table.square().sum(1)
            nearest = (norms - 2 * rows @ table.T).argmin(1, keepdim=True)
        if self.by_one_hot:
            chosen = torch.zeros(len(rows), len(table), device=x.device)  # flaw: codes_by_one_hot
            chosen.scatter_(1, nearest, 1)  # flaw: codes_by_one_hot
            return torch.matmul(chosen, table)  # flaw: codes_by_one_hot
        return self.codes(nearest.squeeze(1))


class Coder(nn.Module):
    """Images to codes and back, as a VQ-VAE does it."""

    def __init__(self, width: int, depth: int, codes: int, by_one_hot: bool) -> None:
        super().__init__()
        self.into, self.out = nn.Conv2d(3, width, 8, 8), nn.ConvTranspose2d(width, 3, 8, 8)
        self.before, self.after = (
            nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
            for _ in range(2)
        )
        self.codebook = Codebook(codes, width, by_one_hot)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.into(images)
        for conv in self.before:
            x = x + F.silu(conv(x))
        rows = x.permute(0, 2, 3, 1)
        found = self.codebook(rows.flatten(0, 2)).unflatten(0, rows.shape[:3]).float()
        rows = rows.float()
        x = (rows + (found - rows).detach()).permute(0, 3, 1, 2)
        for conv in self.after:
            x = x + F.silu(conv(x))
        return self.out(x), rows, found


def codes_by_one_hot(flawed: bool, sizes: Sizes) -> Step:
    width, depth, codes, batch, side = sizes.of((256, 4, 8192, 16, 256), (8, 1, 6, 2, 16))
    model = seeded(lambda: Coder(width, depth, codes, flawed), sizes)
    model = model.to(memory_format=torch.channels_last)
    images = seeded(lambda: torch.rand(batch, 3, side, side), sizes)
    images = images.to(memory_format=torch.channels_last)

    def loss() -> Tensor:
        made, rows, found = model(images)
        off = F.mse_loss(found, rows.detach()) + 0.25 * F.mse_loss(rows, found.detach())
        return F.mse_loss(made.float(), images) + 0.1 * off

    return Step(training(loss, fused_adamw(model), sizes))


def shared_by_mask(left: Tensor, right: Tensor) -> Tensor:
    """The area that boxes (left, top, right, bottom) share, pair by pair."""
    low, high = torch.maximum(left[:, :2], right[:, :2]), torch.minimum(left[:, 2:], right[:, 2:])
    shared = torch.zeros_like(left[:, 0])
    meet = (high > low).all(1)
    shared[meet] = (high - low)[meet].prod(1)  # flaw: giou_mask_breaks
    return shared


def shared_by_clamp(left: Tensor, right: Tensor) -> Tensor:
    """The same without a mask."""
    low, high = torch.maximum(left[:, :2], right[:, :2]), torch.minimum(left[:, 2:], right[:, 2:])
    across, down = (high - low).clamp(min=0).unbind(1)
    return across * down


def giou_loss(found: Tensor, truth: Tensor, is_object: Tensor, by_mask: bool) -> Tensor:
    """One minus the generalized overlap of boxes, averaged over those with an object."""
    shared = shared_by_mask(found, truth) if by_mask else shared_by_clamp(found, truth)
    areas = [(each[:, 2] - each[:, 0]) * (each[:, 3] - each[:, 1]) for each in (found, truth)]
    union = areas[0] + areas[1] - shared
    low, high = torch.minimum(found, truth)[:, :2], torch.maximum(found, truth)[:, 2:]
    across, down = (high - low).unbind(1)
    hull = across * down
    overlap = shared / union.clamp(min=1e-7) - (hull - union) / hull.clamp(min=1e-7)
    return ((1 - overlap) * is_object).sum() / is_object.sum().clamp(min=1)


class Boxes(nn.Module):
    """Distances of each place to the sides of its box, again after each convolution."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 8, 8)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.sides = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, images: Tensor) -> list[Tensor]:
        x, stages = self.stem(images), []
        for conv in self.convs:
            x = x + F.relu(conv(x))
            stages.append(F.softplus(self.sides(x).float()).permute(0, 2, 3, 1).reshape(-1, 4))
        return stages


def giou_mask_breaks(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, side = sizes.of((128, 6, 16, 512), (4, 2, 2, 32))
    model = seeded(lambda: Boxes(width, depth), sizes).to(memory_format=torch.channels_last)
    images = seeded(lambda: torch.randn(batch, 3, side, side), sizes)
    images = images.to(memory_format=torch.channels_last)
    count = batch * (side // 8) ** 2
    corners, spans, chance = seeded(
        lambda: (torch.rand(count, 2) * 4 - 2, torch.rand(count, 2) * 2, torch.rand(count)), sizes
    )
    truth, is_object = torch.cat((corners, corners + spans + 0.1), 1), (chance < 0.3).float()
    signs = torch.tensor([-1.0, -1.0, 1.0, 1.0], device=sizes.device)

    def losses(stages: list[Tensor]) -> Tensor:
        total = torch.zeros((), device=signs.device)
        for sides in stages:
            # flaw in the next line: giou_mask_breaks
            total = total + giou_loss(sides * signs, truth, is_object, flawed)
        return total / len(stages)

    run = compiled(copied(losses), sizes)

    def loss() -> Tensor:
        return run(model(images))  # flaw: giou_mask_breaks

    return Step(training(loss, fused_adamw(model), sizes), warm_up=8)
