"""Flaws of losses of detectors and of segmentation, and of what encodes and scans pictures."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import Config
from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "focal_targets_from_host",
    "images_encoded_one_by_one",
    "lovasz_per_class",
    "matching_per_set",
    "pyramid_pools_adaptive",
    "windows_few_at_a_time",
]


def overlaps(anchors: Tensor, boxes: Tensor) -> Tensor:
    """Intersection over union of anchors (n, 4) and boxes (m, 4), of corners."""
    low = torch.maximum(anchors[:, None, :2], boxes[:, :2])
    high = torch.minimum(anchors[:, None, 2:], boxes[:, 2:])
    shared = (high - low).clamp(min=0).prod(2)
    areas = [(each[:, 2:] - each[:, :2]).prod(1) for each in (anchors, boxes)]
    return shared / (areas[0][:, None] + areas[1] - shared)


class FocalLoss(nn.Module):
    """The focal loss of the classes of all anchors, image by image."""

    def __init__(self, from_host: bool, alpha: float = 0.25, gamma: float = 2.0) -> None:
        super().__init__()
        self.from_host, self.alpha, self.gamma = from_host, alpha, gamma

    def filled(self, like: Tensor, value: float) -> Tensor:
        if self.from_host:
            full = torch.ones(like.shape) * value  # flaw: focal_targets_from_host
            return full.to(like.device)  # flaw: focal_targets_from_host
        return torch.full_like(like, value)

    def of_image(self, scores: Tensor, anchors: Tensor, boxes: Tensor, kinds: Tensor) -> Tensor:
        p = scores.float().sigmoid().clamp(1e-4, 1 - 1e-4)
        overlap, best = overlaps(anchors, boxes).max(1)
        is_positive = overlap >= 0.5
        hot = F.one_hot(kinds[best], p.shape[1]).to(p.dtype)
        targets = self.filled(p, -1.0)  # flaw: focal_targets_from_host
        targets = torch.where((overlap < 0.4)[:, None], 0.0, targets)
        targets = torch.where(is_positive[:, None], hot, targets)
        alpha = self.filled(p, self.alpha)  # flaw: focal_targets_from_host
        alpha = torch.where(targets == 1, alpha, 1 - alpha)
        weight = alpha * torch.where(targets == 1, 1 - p, p).pow(self.gamma)
        loss = -weight * (targets * p.log() + (1 - targets) * (1 - p).log())
        zeros = self.filled(p, 0.0)  # flaw: focal_targets_from_host
        loss = torch.where(targets == -1, zeros, loss)
        return loss.sum() / is_positive.sum().clamp(min=1)

    def forward(self, scores: Tensor, anchors: Tensor, boxes: Tensor, kinds: Tensor) -> Tensor:
        each = zip(scores, boxes, kinds, strict=True)
        return torch.stack([self.of_image(a, anchors, b, c) for a, b, c in each]).mean()


class Detector(nn.Module):
    """Convolutions to a stride of 8, five levels, and a head for the classes of their anchors."""

    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 4, 3), nn.SiLU(), nn.Conv2d(width, width, 3, 2, 1), nn.SiLU()
        )
        self.body = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.down = nn.ModuleList(nn.Conv2d(width, width, 3, 2, 1) for _ in range(4))
        self.tower = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.head = nn.Conv2d(width, 9 * classes, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for conv in self.body:
            x = x + F.silu(conv(x))
        levels = [x]
        for conv in self.down:
            levels.append(F.silu(conv(levels[-1])))
        scores = []
        for y in levels:
            for conv in self.tower:
                y = F.silu(conv(y))
            scores.append(self.head(y).permute(0, 2, 3, 1).reshape(len(y), -1, self.classes))
        return torch.cat(scores, 1)


def corners(centres: Tensor, sides: Tensor) -> Tensor:
    """Boxes by their corners."""
    return torch.cat((centres - sides / 2, centres + sides / 2), -1)


def focal_targets_from_host(flawed: bool, sizes: Sizes) -> Step:
    width, depth, classes, batch, side = sizes.of((128, 12, 80, 3, 512), (8, 1, 5, 2, 128))
    model = seeded(lambda: Detector(width, depth, classes), sizes)
    model = model.to(memory_format=torch.channels_last)
    count = sum((side // step) ** 2 * 9 for step in (8, 16, 32, 64, 128))
    images, anchors, boxes, kinds = seeded(
        lambda: (
            torch.randn(batch, 3, side, side),
            corners(torch.rand(count, 2), torch.rand(count, 2) * 0.2 + 0.02),
            corners(torch.rand(batch, 12, 2), torch.rand(batch, 12, 2) * 0.2 + 0.05),
            torch.randint(0, classes, (batch, 12)),
        ),
        sizes,
    )
    images = images.contiguous(memory_format=torch.channels_last)
    criterion = FocalLoss(flawed)

    def loss() -> Tensor:
        return criterion(model(images), anchors, boxes, kinds)

    return Step(training(loss, fused_adamw(model), sizes))


class SetPredictor(nn.Module):
    """A decoder whose layers each predict classes and boxes of several groups of queries."""

    def __init__(self, width: int, layers: int, groups: int, queries: int, classes: int) -> None:
        super().__init__()
        self.groups = groups
        self.stem = nn.Conv2d(3, width, 16, 16)
        encoder = nn.TransformerEncoderLayer(
            width, 8, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(encoder, 4, enable_nested_tensor=False)
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(width, 8, 4 * width, 0.0, F.gelu, batch_first=True)
            for _ in range(layers)
        )
        self.queries = nn.Parameter(torch.randn(groups * queries, width))
        self.kinds, self.boxes = nn.Linear(width, classes), nn.Linear(width, 4)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The logits (sets, batch, queries, classes) and boxes of all layers and groups."""
        seen = self.encoder(self.stem(images).flatten(2).transpose(1, 2))
        x = self.queries.expand(len(images), -1, -1)
        kinds, boxes = [], []
        for layer in self.layers:
            x = layer(x, seen)
            kinds += self.kinds(x).float().chunk(self.groups, 1)
            boxes += self.boxes(x).float().sigmoid().chunk(self.groups, 1)
        return torch.stack(kinds), torch.stack(boxes)


def costs_of(logits: Tensor, boxes: Tensor, kinds: Tensor, found: Tensor) -> Tensor:
    """What it costs (..., queries, targets) to match a query with a target of its image."""
    wanted = kinds[..., None, :].expand(*logits.shape[:-1], -1)
    cost_kind = -logits.sigmoid().gather(-1, wanted)  # flaw: matching_per_set
    apart = (boxes[..., :, None, :] - found[..., None, :, :]).abs()  # flaw: matching_per_set
    return cost_kind + 5 * apart.sum(-1)  # flaw: matching_per_set


def matched(cost: np.ndarray) -> list[int]:
    """A query for each target, the cheapest that is left."""
    taken = []
    for column in cost.T.copy():
        column[taken] = np.inf
        taken.append(int(column.argmin()))
    return taken


def loss_of_matches(
    logits: Tensor, boxes: Tensor, best: Tensor, kinds: Tensor, found: Tensor
) -> Tensor:
    """The loss of matched queries (..., targets), as a sum."""
    rows = best[..., None]
    wide = rows.expand(*rows.shape[:-1], logits.shape[-1])
    hot = torch.zeros_like(logits).scatter(-2, wide, 0.1)  # flaw: matching_per_set
    picked = logits.gather(-2, wide).log_softmax(-1)  # flaw: matching_per_set
    of_kinds = -picked.gather(-1, kinds[..., None]).sum()  # flaw: matching_per_set
    near = boxes.gather(-2, rows.expand(*rows.shape[:-1], 4))  # flaw: matching_per_set
    of_boxes = (near - found).abs().sum()  # flaw: matching_per_set
    # flaw in the next line: matching_per_set
    of_all = F.binary_cross_entropy_with_logits(logits, hot, reduction="sum")
    return of_all + of_kinds + of_boxes  # flaw: matching_per_set


def loss_set_by_set(logits: Tensor, boxes: Tensor, kinds: Tensor, found: Tensor) -> Tensor:
    """The loss of all sets of predictions, one after the other."""
    total = logits.new_zeros(())
    for each_logits, each_boxes in zip(logits, boxes, strict=True):
        with torch.no_grad():
            costs = costs_of(each_logits, each_boxes, kinds, found)  # flaw: matching_per_set
        best = []
        for cost in costs:
            rows = matched(cost.cpu().numpy())  # flaw: matching_per_set
            best.append(torch.tensor(rows, device=logits.device))  # flaw: matching_per_set
        # flaw in the next line: matching_per_set
        loss = loss_of_matches(each_logits, each_boxes, torch.stack(best), kinds, found)
        total = total + loss  # flaw: matching_per_set
    return total


def loss_of_sets(logits: Tensor, boxes: Tensor, kinds: Tensor, found: Tensor) -> Tensor:
    """The same with one copy of all costs to the CPU and one back."""
    kinds, found = (each.expand(len(logits), *each.shape) for each in (kinds, found))
    with torch.no_grad():
        costs = costs_of(logits, boxes, kinds, found).cpu().numpy()
    best = torch.tensor([[matched(cost) for cost in each] for each in costs], device=logits.device)
    return loss_of_matches(logits, boxes, best, kinds, found)


def matching_per_set(flawed: bool, sizes: Sizes) -> Step:
    width, layers, groups, queries, classes = sizes.of((256, 3, 13, 100, 11), (16, 2, 2, 6, 3))
    batch, side, targets = sizes.of((4, 512, 6), (2, 32, 2))
    model = seeded(lambda: SetPredictor(width, layers, groups, queries, classes), sizes)
    images, kinds, found = seeded(
        lambda: (
            torch.randn(batch, 3, side, side),
            torch.randint(0, classes, (batch, targets)),
            torch.rand(batch, targets, 4),
        ),
        sizes,
    )
    loss_of = loss_set_by_set if flawed else loss_of_sets

    def loss() -> Tensor:
        logits, boxes = model(images)
        return loss_of(logits, boxes, kinds, found) / (len(logits) * batch * targets)

    return Step(training(loss, fused_adamw(model), sizes))


def lovasz_gradient(sorted_truth: Tensor) -> Tensor:
    """How the Jaccard index changes with each error, of truth in the order of the errors."""
    count = sorted_truth.sum(-1, keepdim=True)  # flaw: lovasz_per_class
    shared = count - sorted_truth.cumsum(-1)  # flaw: lovasz_per_class
    union = count + (1 - sorted_truth).cumsum(-1)  # flaw: lovasz_per_class
    jaccard = 1 - shared / union  # flaw: lovasz_per_class
    steps = jaccard[..., 1:] - jaccard[..., :-1]  # flaw: lovasz_per_class
    return torch.cat((jaccard[..., :1], steps), -1)  # flaw: lovasz_per_class


def lovasz_by_class(shares: Tensor, labels: Tensor) -> Tensor:
    """The Lovasz softmax loss of the shares (classes, pixels), class by class."""
    losses = []
    for kind in range(len(shares)):
        truth = (labels == kind).to(shares.dtype)  # flaw: lovasz_per_class
        errors = (truth - shares[kind]).abs()  # flaw: lovasz_per_class
        errors, order = errors.sort(0, descending=True)  # flaw: lovasz_per_class
        gradient = lovasz_gradient(truth[order])  # flaw: lovasz_per_class
        losses.append(torch.dot(errors, gradient))  # flaw: lovasz_per_class
    return torch.stack(losses).mean()


def lovasz(shares: Tensor, labels: Tensor) -> Tensor:
    """The same for all classes at once."""
    kinds = torch.arange(len(shares), device=shares.device)
    truth = (labels == kinds[:, None]).to(shares.dtype)
    errors, order = (truth - shares).abs().sort(1, descending=True)
    return (errors * lovasz_gradient(truth.gather(1, order))).sum(1).mean()


class Segmenter(nn.Module):
    """Convolutions at a quarter of the size, and the scores of each pixel."""

    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1)
        )
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(depth))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + F.relu(norm(conv(x)))
        return self.head(x)


def lovasz_per_class(flawed: bool, sizes: Sizes) -> Step:
    width, depth, classes, batch, side = sizes.of((256, 16, 150, 8, 256), (8, 2, 4, 2, 32))
    model = seeded(lambda: Segmenter(width, depth, classes), sizes)
    model = model.to(memory_format=torch.channels_last)
    images, labels = seeded(
        lambda: (
            torch.randn(batch, 3, side, side),
            torch.randint(0, classes, (batch, side // 4, side // 4)),
        ),
        sizes,
    )
    images = images.contiguous(memory_format=torch.channels_last)
    loss_of = lovasz_by_class if flawed else lovasz

    def loss() -> Tensor:
        logits = model(images).float()
        shares = logits.softmax(1).transpose(0, 1).flatten(1)
        return F.cross_entropy(logits, labels) + loss_of(shares, labels.flatten())

    return Step(training(loss, fused_adamw(model), sizes))


def means(x: Tensor, bins: int) -> Tensor:
    """The mean in each of bins x bins cells of the same size."""
    return x.unflatten(3, (bins, -1)).unflatten(2, (bins, -1)).mean((3, 5))


class PyramidPooling(nn.Module):
    """PSPNet's head: means over cells of four sizes, beside the features that they are of."""

    def __init__(self, channels: int, width: int, classes: int, is_adaptive: bool) -> None:
        super().__init__()
        self.is_adaptive = is_adaptive
        self.bins = (1, 2, 3, 6)
        self.convs = nn.ModuleList(nn.Conv2d(channels, width, 1) for _ in self.bins)
        self.mix = nn.Conv2d(channels + 4 * width, width, 3, padding=1)
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        levels = [x]
        for bins, conv in zip(self.bins, self.convs, strict=True):
            # flaw in the next line: pyramid_pools_adaptive
            pooled = F.adaptive_avg_pool2d(x, bins) if self.is_adaptive else means(x, bins)
            levels.append(F.interpolate(F.relu(conv(pooled)), x.shape[2:], mode="nearest"))
        return self.out(F.relu(self.mix(torch.cat(levels, 1))))


class PSPNet(nn.Module):
    """Residual blocks at an eighth of the size, and the head."""

    def __init__(self, channels: int, depth: int, classes: int, is_adaptive: bool) -> None:
        super().__init__()
        inner = channels // 4
        self.stem = nn.Conv2d(3, channels, 8, 8)
        self.into = nn.ModuleList(nn.Conv2d(channels, inner, 1) for _ in range(depth))
        self.middle = nn.ModuleList(
            nn.Conv2d(inner, inner, 3, padding=2, dilation=2) for _ in range(depth)
        )
        self.back = nn.ModuleList(nn.Conv2d(inner, channels, 1) for _ in range(depth))
        self.head = PyramidPooling(channels, channels // 8, classes, is_adaptive)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for into, middle, back in zip(self.into, self.middle, self.back, strict=True):
            x = x + back(F.relu(middle(F.relu(into(x)))))
        return self.head(x)  # flaw: pyramid_pools_adaptive


def pyramid_pools_adaptive(flawed: bool, sizes: Sizes) -> Step:
    channels, depth, classes, batch, side = sizes.of((2048, 2, 19, 8, 480), (8, 1, 3, 2, 48))
    model = seeded(lambda: PSPNet(channels, depth, classes, flawed), sizes)
    images, labels = seeded(
        lambda: (
            torch.randn(batch, 3, side, side),
            torch.randint(0, classes, (batch, side // 8, side // 8)),
        ),
        sizes,
    )

    def loss() -> Tensor:
        return F.cross_entropy(model(images).float(), labels)

    return Step(training(loss, fused_adamw(model), sizes))


class TowerBlock(nn.Module):
    """A block of a vision transformer."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, inner = config.width, config.mlp_width
        self.heads = config.heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm_1(x)).chunk(3, -1)  # flaw: images_encoded_one_by_one
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v)  # flaw: images_encoded_one_by_one
        x = x + self.out(y.transpose(1, 2).flatten(2))  # flaw: images_encoded_one_by_one
        y = F.gelu(self.up(self.norm_2(x)))  # flaw: images_encoded_one_by_one
        return x + self.down(y)  # flaw: images_encoded_one_by_one


class VisionTower(nn.Module):
    """A ViT that turns an image into tokens for a language model."""

    def __init__(self, config: Config, patch: int, side: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, config.width, patch, patch)
        self.positions = nn.Parameter(torch.randn((side // patch) ** 2, config.width) * 0.02)
        self.blocks = nn.Sequential(*(TowerBlock(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)  # flaw: images_encoded_one_by_one
        return self.norm(self.blocks(x + self.positions))  # flaw: images_encoded_one_by_one


class ImageAnswerer(nn.Module):
    """A tower, a projector, and a language model that reads images before its text."""

    def __init__(self, config: Config, patch: int, side: int, one_by_one: bool) -> None:
        super().__init__()
        self.one_by_one = one_by_one
        self.tower = VisionTower(config, patch, side)
        self.project = nn.Linear(config.width, config.width)
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.Sequential(*(gpt.Block(config) for _ in range(config.layers)))
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def image_features(self, images: Tensor) -> Tensor:
        if self.one_by_one:
            found = []
            for image in images:
                found.append(self.tower(image[None]))  # flaw: images_encoded_one_by_one
            features = torch.cat(found)  # flaw: images_encoded_one_by_one
        else:
            features = self.tower(images)
        return self.project(features)

    def forward(self, images: Tensor, text: Tensor) -> Tensor:
        seen = self.image_features(images)  # flaw: images_encoded_one_by_one
        x = self.blocks(torch.cat((seen, self.words(text)), 1))
        return self.head(x[:, -1])


def images_encoded_one_by_one(flawed: bool, sizes: Sizes) -> Step:
    config = sizes.of(Config(layers=12, width=768, heads=12, mlp_width=3072), gpt.TINY)
    patch, side, batch, words = sizes.of((16, 224, 24, 64), (8, 16, 3, 5))
    model = seeded(lambda: ImageAnswerer(config, patch, side, flawed), sizes).eval().bfloat16()
    images, text = seeded(
        lambda: (
            torch.randn(batch, 3, side, side),
            torch.randint(0, config.vocabulary, (batch, words)),
        ),
        sizes,
    )
    images = images.bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        return model(images, text).float().square().mean()

    return Step(step)


class Unit(nn.Sequential):
    """Two 3D convolutions with a norm and an activation behind each."""

    def __init__(self, wide: int, out: int, stride: int = 1) -> None:
        super().__init__(
            nn.Conv3d(wide, out, 3, stride, 1),
            nn.BatchNorm3d(out),
            nn.PReLU(),
            nn.Conv3d(out, out, 3, 1, 1),
            nn.BatchNorm3d(out),
            nn.PReLU(),
        )


class SmallUNet(nn.Module):
    """Convolutions of volumes at four scales."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [width * 2**at for at in range(4)]
        self.top = Unit(1, width)
        self.down = nn.ModuleList(Unit(a, b, 2) for a, b in pairwise(widths))
        self.up = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, 2) for a, b in pairwise(widths))
        self.back = nn.ModuleList(Unit(2 * a, a) for a in widths[:-1])
        self.out = nn.Conv3d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        levels = [self.top(x)]
        for unit in self.down:
            levels.append(unit(levels[-1]))
        x = levels.pop()
        for up, back in zip(reversed(self.up), reversed(self.back), strict=True):
            x = back(torch.cat((up(x), levels.pop()), 1))
        return self.out(x)


def cuts_of(shape: tuple[int, ...], side: int, step: int) -> list[tuple[slice, ...]]:
    """The windows of a volume."""
    starts = [range(0, size - side + 1, step) for size in shape]
    places = [(z, y, x) for z in starts[0] for y in starts[1] for x in starts[2]]
    return [tuple(slice(a, a + side) for a in place) for place in places]


def scanned(
    model: nn.Module, volume: Tensor, cuts: list[tuple[slice, ...]], at_once: int
) -> Tensor:
    """The sum of the predictions of all windows, so many of which run at once."""
    total = volume.new_zeros(1, 2, *volume.shape[2:])
    for at in range(0, len(cuts), at_once):
        some = cuts[at : at + at_once]
        windows = torch.cat([volume[(..., *cut)] for cut in some])
        for cut, predicted in zip(some, model(windows), strict=True):
            total[(..., *cut)].add_(predicted)
    return total


def windows_few_at_a_time(flawed: bool, sizes: Sizes) -> Step:
    width, shape, side = sizes.of((16, (48, 64, 64), 16), (2, (12, 12, 12), 8))
    at_once = sizes.of(4, 2) if flawed else 256
    model = seeded(lambda: SmallUNet(width), sizes).eval().bfloat16()
    volume = seeded(lambda: torch.randn(1, 1, *shape), sizes).bfloat16()
    cuts = cuts_of(shape, side, side // 2)
    counts = torch.zeros(shape, device=sizes.device)
    for cut in cuts:
        counts[cut] += 1

    @torch.inference_mode()
    def step() -> Tensor:
        total = scanned(model, volume, cuts, at_once)
        return (total.float() / counts).square().mean()

    return Step(step)
