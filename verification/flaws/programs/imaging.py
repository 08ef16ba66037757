"""Flaws of what is done to images before, in and behind a network, and of how it is measured."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import Config
from .language import EncoderBlock
from .program import Sizes, Step, fused_adamw, seeded, training
from .vision import ResNet

__all__ = [
    "antialias_downscaling",
    "classes_compared_to_count",
    "coreset_by_item",
    "hue_by_gather",
    "pixels_counted_by_numpy",
]


def hsv_of_stacked(image: Tensor) -> Tensor:
    """Hue, saturation and value of images (n, 3, h, w): each hue is computed, one is taken."""
    value, which = image.max(-3)  # flaw: hue_by_gather
    spread = value - image.amin(-3)  # flaw: hue_by_gather
    saturation = spread / (value + 1e-8)  # flaw: hue_by_gather
    spread = torch.where(spread == 0, torch.ones_like(spread), spread)  # flaw: hue_by_gather
    # flaw in the next line: hue_by_gather
    red, green, blue = torch.unbind(value.unsqueeze(-3) - image, -3)
    # flaw in the next line: hue_by_gather
    hues = torch.stack((blue - green, red - blue + 2 * spread, green - red + 4 * spread), -3)
    hues = hues / spread.unsqueeze(-3)  # flaw: hue_by_gather
    hue = hues.gather(-3, which.unsqueeze(-3)).squeeze(-3)  # flaw: hue_by_gather
    return torch.stack((hue / 6 % 1, saturation, value), -3)  # flaw: hue_by_gather


def rgb_of_stacked(image: Tensor) -> Tensor:
    """The colours back, one of eighteen planes in each place."""
    hue, s, v = image.unbind(-3)  # flaw: hue_by_gather
    sector = torch.floor(hue * 6) % 6  # flaw: hue_by_gather
    f = hue * 6 % 6 - sector  # flaw: hue_by_gather
    p, q, t = v * (1 - s), v * (1 - f * s), v * (1 - (1 - f) * s)  # flaw: hue_by_gather
    at = sector.long()  # flaw: hue_by_gather
    which = torch.stack((at, at + 6, at + 12), -3)  # flaw: hue_by_gather
    planes = (v, q, p, p, t, v, t, v, v, q, p, p, p, p, t, v, v, q)
    return torch.stack(planes, -3).gather(-3, which)  # flaw: hue_by_gather


def hsv_of_chosen(image: Tensor) -> Tensor:
    """The same, where the hue is chosen by where."""
    red, green, blue = image.unbind(-3)
    value = torch.maximum(torch.maximum(red, green), blue)
    spread = value - torch.minimum(torch.minimum(red, green), blue)
    saturation = spread / (value + 1e-8)
    spread = torch.where(spread == 0, 1.0, spread)
    other = torch.where(green == value, (blue - red) / spread + 2, (red - green) / spread + 4)
    hue = torch.where(red == value, (green - blue) / spread, other)
    return torch.stack((hue / 6 % 1, saturation, value), -3)


def rgb_of_chosen(image: Tensor) -> Tensor:
    """The colours back by a formula that has no branches."""
    hue, s, v = image.unbind(-3)
    planes = []
    for shift in (5, 3, 1):
        k = (hue * 6 + shift) % 6
        planes.append(v - v * s * torch.minimum(k, 4 - k).clamp(0, 1))
    return torch.stack(planes, -3)


def hue_by_gather(flawed: bool, sizes: Sizes) -> Step:
    batch, side = sizes.of((256, 224), (2, 32))
    model = seeded(lambda: ResNet((2, 2, 2, 2), 32) if side > 32 else ResNet((1,), 4), sizes)
    model = model.to(memory_format=torch.channels_last)
    images, shifts, labels = seeded(
        lambda: (
            torch.rand(batch, 3, side, side),
            torch.rand(batch, 1, 1) * 0.2 - 0.1,
            torch.randint(0, 1000, (batch,)),
        ),
        sizes,
    )
    to_hsv, to_rgb = (hsv_of_stacked, rgb_of_stacked) if flawed else (hsv_of_chosen, rgb_of_chosen)

    def loss() -> Tensor:
        with torch.no_grad():
            hue, saturation, value = to_hsv(images).unbind(1)  # flaw: hue_by_gather
            jittered = torch.stack(((hue + shifts) % 1, saturation, value), 1)
            x = to_rgb(jittered)  # flaw: hue_by_gather
        x = x.contiguous(memory_format=torch.channels_last)
        return F.cross_entropy(model(x).float(), labels)

    return Step(training(loss, fused_adamw(model), sizes))


class Downscale(nn.Module):
    """Half the size of feature maps, without aliases."""

    def __init__(self, side: int, by_interpolation: bool) -> None:
        super().__init__()
        self.by_interpolation = by_interpolation
        eye = torch.eye(side)[None, None]
        rows = F.interpolate(eye, (side // 2, side), mode="bilinear", antialias=True)
        self.register_buffer("rows", rows[0, 0])

    def forward(self, x: Tensor) -> Tensor:
        if self.by_interpolation:
            # flaw in the next line: antialias_downscaling
            return F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True)
        return self.rows @ (x @ self.rows.T)


class Pyramid(nn.Module):
    """A discriminator whose blocks end in half the size."""

    def __init__(self, width: int, side: int, blocks: int, by_interpolation: bool) -> None:
        super().__init__()
        self.into = nn.Conv2d(3, width, 1)
        self.convs = nn.ModuleList(
            nn.Conv2d(width << at, width << (at + 1), 3, padding=1) for at in range(blocks)
        )
        self.downs = nn.ModuleList(Downscale(side >> at, by_interpolation) for at in range(blocks))
        self.head = nn.Linear(width << blocks, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        for conv, down in zip(self.convs, self.downs, strict=True):
            x = down(F.leaky_relu(conv(x), 0.2))  # flaw: antialias_downscaling
        return self.head(x.mean((2, 3)))


def antialias_downscaling(flawed: bool, sizes: Sizes) -> Step:
    batch, side, width, blocks = sizes.of((16, 256, 32, 4), (2, 16, 4, 2))
    model = seeded(lambda: Pyramid(width, side, blocks, flawed), sizes)
    images = seeded(lambda: torch.randn(batch, 3, side, side), sizes)

    def loss() -> Tensor:
        return F.softplus(model(images).float()).mean()

    # a CPU has no such kernel for bfloat16
    mixed = not sizes.is_tiny
    return Step(training(loss, fused_adamw(model), sizes, is_mixed=mixed))


class PatchFeatures(nn.Module):
    """Features of the patches of images, projected to few channels."""

    def __init__(self, width: int, depth: int, out: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 8, 8)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.project = nn.Conv2d(width, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for conv in self.convs:
            x = x + F.relu(conv(x))
        return self.project(x).permute(0, 2, 3, 1).flatten(0, 2).float()


class KCenterGreedy:
    """Picks features that lie far from all that were picked before."""

    def __init__(self, features: Tensor) -> None:
        self.features = features
        self.least = torch.full((len(features),), math.inf, device=features.device)

    def select_by_item(self, count: int) -> Tensor:
        """The distances of all features to the picked ones, which are numbers of Python."""
        picked = [0]
        for _ in range(count):
            centre = self.features[[picked[-1]]]  # flaw: coreset_by_item
            found = F.pairwise_distance(self.features, centre)  # flaw: coreset_by_item
            self.least = torch.minimum(self.least, found)  # flaw: coreset_by_item
            at = int(self.least.argmax().item())  # flaw: coreset_by_item
            self.least[at] = 0  # flaw: coreset_by_item
            picked.append(at)
        return self.least

    def select(self, count: int) -> Tensor:
        """The same, and the picked ones stay on the device."""
        at = torch.zeros(1, dtype=torch.long, device=self.features.device)
        for _ in range(count):
            centre = self.features.index_select(0, at)
            found = torch.linalg.vector_norm(self.features - centre + 1e-6, dim=1)
            self.least = torch.minimum(self.least, found)
            at = self.least.argmax(0, keepdim=True)
            self.least.index_fill_(0, at, 0)
        return self.least


def coreset_by_item(flawed: bool, sizes: Sizes) -> Step:
    batch, side, width, depth = sizes.of((16, 256, 128, 6), (2, 32, 8, 1))
    out, count = sizes.of((64, 256), (4, 5))
    model = seeded(lambda: PatchFeatures(width, depth, out), sizes).eval().bfloat16()
    images = seeded(lambda: torch.randn(batch, 3, side, side), sizes).bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        sampler = KCenterGreedy(model(images))
        if flawed:
            return sampler.select_by_item(count).mean()  # flaw: coreset_by_item
        return sampler.select(count).mean()

    return Step(step)


class Classifier(nn.Module):
    """A class of each text, from a small transformer."""

    def __init__(self, config: Config, classes: int) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.Sequential(*(EncoderBlock(config) for _ in range(config.layers)))
        self.head = nn.Linear(config.width, classes)

    def forward(self, text: Tensor) -> Tensor:
        return self.head(self.blocks(self.words(text)).mean(1))


def matrix_by_comparing(found: Tensor, wanted: Tensor, classes: int) -> Tensor:
    """How often each class was taken for each other."""
    each = torch.arange(classes, device=found.device)
    is_found = found == each[:, None]
    is_wanted = wanted == each[:, None, None]
    both = is_found & is_wanted  # flaw: classes_compared_to_count
    return both.sum(2, dtype=torch.float32)  # flaw: classes_compared_to_count


def matrix_by_adding(found: Tensor, wanted: Tensor, classes: int) -> Tensor:
    """The same by adding ones at the places of the matrix."""
    flat = torch.zeros(classes * classes, device=found.device)
    flat.index_add_(0, wanted * classes + found, torch.ones_like(found, dtype=torch.float32))
    return flat.view(classes, classes)


def classes_compared_to_count(flawed: bool, sizes: Sizes) -> Step:
    config = Config(layers=6, width=512, heads=8, mlp_width=2048, vocabulary=30528, context=64)
    if sizes.is_tiny:
        config = gpt.TINY
    batch, classes = sizes.of((256, 3000), (6, 5))
    model = seeded(lambda: Classifier(config, classes), sizes).eval().bfloat16()
    text, wanted = seeded(
        lambda: (
            torch.randint(0, config.vocabulary, (batch, config.context)),
            torch.randint(0, classes, (batch,)),
        ),
        sizes,
    )
    matrix = torch.zeros(classes, classes, device=sizes.device)
    count = matrix_by_comparing if flawed else matrix_by_adding

    @torch.inference_mode()
    def step() -> Tensor:
        scores = model(text).float()
        matrix.add_(count(scores.argmax(1), wanted, classes))  # flaw: classes_compared_to_count
        return F.cross_entropy(scores, wanted) + matrix.diagonal().sum() / matrix.sum()

    return Step(step)


class Segmenter(nn.Module):
    """The scores of the classes of each pixel."""

    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for conv in self.convs:
            x = x + F.relu(conv(x))
        return F.interpolate(self.head(x).float(), scale_factor=4, mode="bilinear")


def counted_by_numpy(labels: Tensor, scores: Tensor) -> Tensor:
    """The matrix of confusion of an image, as HRNet counts it."""
    classes = scores.shape[1]
    output = scores.cpu().numpy().transpose(0, 2, 3, 1)  # flaw: pixels_counted_by_numpy
    found = np.asarray(np.argmax(output, 3), np.uint8)  # flaw: pixels_counted_by_numpy
    wanted = labels.cpu().numpy()  # flaw: pixels_counted_by_numpy
    seen = wanted != 255  # flaw: pixels_counted_by_numpy
    pairs = wanted[seen].astype(np.int64) * classes + found[seen]  # flaw: pixels_counted_by_numpy
    counts = np.bincount(pairs, minlength=classes**2)  # flaw: pixels_counted_by_numpy
    return torch.from_numpy(counts.reshape(classes, classes))


def counted_on_device(labels: Tensor, scores: Tensor) -> Tensor:
    """The same where the scores are; what is not to be seen is counted behind the others."""
    classes = scores.shape[1]
    pairs = torch.where(labels == 255, classes**2, labels * classes + scores.argmax(1))
    counts = torch.histc(pairs.float(), classes**2 + 1, 0, classes**2 + 1)
    return counts[:-1].view(classes, classes)


def pixels_counted_by_numpy(flawed: bool, sizes: Sizes) -> Step:
    height, width, channels, depth, classes = sizes.of((256, 512, 256, 12, 19), (8, 16, 8, 1, 3))
    model = seeded(lambda: Segmenter(channels, depth, classes), sizes).eval().bfloat16()
    image, labels, ignored = seeded(
        lambda: (
            torch.randn(1, 3, height, width),
            torch.randint(0, classes, (1, height, width)),
            torch.rand(1, height, width) < 0.1,
        ),
        sizes,
    )
    image, labels = image.bfloat16(), labels.masked_fill(ignored, 255)
    count = counted_by_numpy if flawed else counted_on_device

    @torch.inference_mode()
    def step() -> Tensor:
        matrix = count(labels, model(image))  # flaw: pixels_counted_by_numpy
        return matrix.diagonal().sum() / matrix.sum()

    return Step(step)
