"""Flaws of networks that find, outline and measure what stands in images."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import Config
from .language import EncoderBlock
from .program import Sizes, Step, fused_adamw, seeded, training
from .vision import UNet

__all__ = [
    "anchors_on_cpu",
    "bilinear_in_bfloat16",
    "cudnn_disabled",
    "mask_loss_per_image",
    "positions_per_shape",
    "quantile_normalization",
]

LEVELS = range(3, 8)
SHAPES = [(scale * aspect, scale / aspect) for scale in (3, 4, 5) for aspect in (0.7, 1, 1.4)]


def anchors_of(side: int, device: str) -> Tensor:
    """Boxes around each place of each level, of three sizes and three shapes."""
    found = []
    for level in LEVELS:
        stride = 1 << level
        places = (np.arange(side // stride) + 0.5) * stride
        x, y = (each.ravel() for each in np.meshgrid(places, places))
        half = stride * np.array(SHAPES) / 2  # flaw: anchors_on_cpu
        shifts = np.stack((x, y, x, y), 1)  # flaw: anchors_on_cpu
        boxes = shifts[:, None] + np.concatenate((-half, half), 1)  # flaw: anchors_on_cpu
        found.append(boxes.reshape(-1, 4))  # flaw: anchors_on_cpu
    every = np.concatenate(found).astype(np.float32)  # flaw: anchors_on_cpu
    return torch.from_numpy(every).to(device)  # flaw: anchors_on_cpu


def overlaps(anchors: Tensor, boxes: Tensor) -> Tensor:
    """Intersection over union of anchors (n, 4) with the boxes (images, m, 4) of each image."""
    left, right = anchors[:, None], boxes[:, None]
    size = torch.minimum(left[..., 2:], right[..., 2:]) - torch.maximum(
        left[..., :2], right[..., :2]
    )
    shared = size.clamp(min=0).prod(-1)
    areas = [(each[..., 2:] - each[..., :2]).prod(-1) for each in (left, right)]
    return shared / (areas[0] + areas[1] - shared)


class RetinaNet(nn.Module):
    """Levels of features, and heads that they share."""

    def __init__(self, width: int, classes: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 4, 3), nn.ReLU())
        self.downs = nn.ModuleList(nn.Conv2d(width, width, 3, 2, 1) for _ in LEVELS)
        self.sides = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in LEVELS)
        self.classes, self.boxes = (self.head(width, depth, count) for count in (classes, 4))

    def head(self, width: int, depth: int, outputs: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for _ in range(depth):
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
        return nn.Sequential(*layers, nn.Conv2d(width, len(SHAPES) * outputs, 3, padding=1))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (images, anchors, classes) and boxes (images, anchors, 4)."""
        x = self.stem(images)
        scores: list[Tensor] = []
        boxes: list[Tensor] = []
        for down, side in zip(self.downs, self.sides, strict=True):
            x = F.relu(down(x))
            seen = side(x)
            for head, found in ((self.classes, scores), (self.boxes, boxes)):
                raw = head(seen).permute(0, 2, 3, 1)
                found.append(raw.unflatten(-1, (len(SHAPES), -1)).flatten(1, 3))
        return torch.cat(scores, 1).float(), torch.cat(boxes, 1).float()


def anchors_on_cpu(flawed: bool, sizes: Sizes) -> Step:
    width, classes, depth, batch, side = sizes.of((256, 20, 4, 2, 768), (4, 3, 1, 2, 128))
    model = seeded(lambda: RetinaNet(width, classes, depth), sizes)
    images, corners = seeded(
        lambda: (torch.rand(batch, 3, side, side), torch.rand(batch, 8, 2) * side / 2), sizes
    )
    truth = torch.cat((corners, corners + side / 4), 2)
    once = anchors_of(side, sizes.device)

    def loss() -> Tensor:
        scores, offsets = model(images)
        anchors = anchors_of(side, sizes.device) if flawed else once  # flaw: anchors_on_cpu
        with torch.no_grad():
            best, which = overlaps(anchors, truth).max(-1)
            found = best > 0.5
            nearest = truth.gather(1, which[..., None].expand(-1, -1, 4))
            kinds = F.one_hot(which % classes, classes) * found[..., None]
        near = F.smooth_l1_loss(offsets, (nearest - anchors) / 32, reduction="none").mean(-1)
        named = F.binary_cross_entropy_with_logits(scores, kinds.float())
        return named + (near * found).sum() / (found.sum() + 1)

    return Step(training(loss, fused_adamw(model), sizes))


class Segmenter(nn.Module):
    """Convolutions at a quarter of the side, whose scores are enlarged."""

    def __init__(self, width: int, depth: int, classes: int, in_bfloat16: bool) -> None:
        super().__init__()
        self.in_bfloat16 = in_bfloat16
        self.stem = nn.Conv2d(3, width, 7, 4, 3)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for conv in self.convs:
            x = x + F.relu(conv(x))
        scores = self.out(x) if self.in_bfloat16 else self.out(x).float()
        # flaw in the next line: bilinear_in_bfloat16
        return F.interpolate(scores, scale_factor=4, mode="bilinear")


def bilinear_in_bfloat16(flawed: bool, sizes: Sizes) -> Step:
    width, depth, classes, batch, side = sizes.of((128, 4, 64, 8, 512), (4, 1, 3, 2, 16))
    model = seeded(lambda: Segmenter(width, depth, classes, flawed), sizes)
    images, labels = seeded(
        lambda: (
            torch.rand(batch, 3, side, side),
            torch.randint(0, classes, (batch, side, side)),
        ),
        sizes,
    )
    optimizer = fused_adamw(model)
    return Step(training(lambda: F.cross_entropy(model(images), labels), optimizer, sizes))


class AtrousNet(nn.Module):
    """DeepLab: batch-normed convolutions, the later ones dilated, and scores of places."""

    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, 8, 3)
        self.convs = nn.ModuleList(
            nn.Conv2d(width, width, 3, padding=1 + at % 4, dilation=1 + at % 4, bias=False)
            for at in range(depth)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(depth))
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + F.relu(norm(conv(x)))
        return self.out(x)


def cudnn_disabled(flawed: bool, sizes: Sizes) -> Step:
    width, depth, classes, batch, side = sizes.of((256, 8, 21, 8, 320), (4, 2, 3, 2, 32))
    model = seeded(lambda: AtrousNet(width, depth, classes), sizes)
    images = seeded(lambda: torch.rand(batch, 3, side, side), sizes)
    labels = seeded(lambda: torch.randint(0, classes, (batch, side // 8, side // 8)), sizes)
    optimizer = fused_adamw(model)
    run = training(lambda: F.cross_entropy(model(images), labels), optimizer, sizes, is_mixed=False)
    return Step(run, lambda: torch.backends.cudnn.flags(enabled=not flawed))


class Prototypes(nn.Module):
    """Masks that all instances of an image share, and how much each instance has of each."""

    def __init__(self, width: int, depth: int, instances: int, masks: int) -> None:
        super().__init__()
        self.instances = instances
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.masks = nn.Conv2d(width, masks, 1)
        self.shares = nn.Linear(width, instances * masks)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(images)
        for conv in self.convs:
            x = x + F.silu(conv(x))
        shares = self.shares(x.mean((2, 3)))
        return self.masks(x), shares.view(len(images) * self.instances, -1)


def masks_in_loop(masks: Tensor, shares: Tensor, truth: Tensor, of: Tensor, ids: Tensor) -> Tensor:
    """The loss of the instances of each image, image by image, as YOLOv5 had it."""
    total = masks.new_zeros(())
    for image in of.unique():  # flaw: mask_loss_per_image
        own = of == image
        # flaw in the next line: mask_loss_per_image
        aims = (truth[image] == ids[own][:, None, None]).float()
        made = shares[own] @ masks[image].flatten(1)  # flaw: mask_loss_per_image
        # flaw in the next line: mask_loss_per_image
        each = F.binary_cross_entropy_with_logits(made.float(), aims.flatten(1))
        total = total + each
    return total / len(masks)


def masks_at_once(masks: Tensor, shares: Tensor, truth: Tensor, ids: Tensor) -> Tensor:
    """The same of all images, which have as many instances each."""
    shape = (len(masks), -1)
    aims = (truth[:, None] == ids.unflatten(0, shape)[..., None, None]).float()
    made = shares.unflatten(0, shape) @ masks.flatten(2)
    return F.binary_cross_entropy_with_logits(made.float(), aims.flatten(2))


def mask_loss_per_image(flawed: bool, sizes: Sizes) -> Step:
    width, depth, instances, count = sizes.of((64, 3, 12, 32), (4, 1, 3, 4))
    batch, side = sizes.of((48, 256), (2, 16))
    model = seeded(lambda: Prototypes(width, depth, instances, count), sizes)
    images = seeded(lambda: torch.rand(batch, 3, side, side), sizes)
    half = (batch, side // 2, side // 2)
    truth = seeded(lambda: torch.randint(0, instances + 1, half), sizes)
    numbers = torch.arange(batch * instances, device=sizes.device)
    of, ids = numbers // instances, numbers % instances + 1

    def loss() -> Tensor:
        masks, shares = model(images)
        if flawed:
            return masks_in_loop(masks, shares, truth, of, ids)
        return masks_at_once(masks, shares, truth, ids)

    return Step(training(loss, fused_adamw(model), sizes))


class AnyShapeViT(nn.Module):
    """A ViT whose images have grids of their own, to which it resizes its positions."""

    def __init__(self, config: Config, grid: int, loops: bool) -> None:
        super().__init__()
        self.loops = loops
        self.patches = nn.Linear(768, config.width)
        self.positions = nn.Parameter(torch.randn(1, config.width, grid, grid) * 0.1)
        self.blocks = nn.Sequential(*(EncoderBlock(config) for _ in range(config.layers)))
        self.head = nn.Linear(config.width, 100)

    def resized(self, grids: list[tuple[int, int]], length: int) -> Tensor:
        """Positions of the patches of each image, resized grid by grid."""
        found = []
        for grid in grids:
            # flaw in the next line: positions_per_shape
            own = F.interpolate(self.positions, grid, mode="bilinear").flatten(2)
            found.append(F.pad(own, (0, length - own.shape[2])))  # flaw: positions_per_shape
        return torch.cat(found).transpose(1, 2)  # flaw: positions_per_shape

    def sampled(self, places: Tensor, there: Tensor) -> Tensor:
        """The same, sampled at all places (1, images, length, 2) at once."""
        found = F.grid_sample(
            self.positions, places, padding_mode="border", align_corners=False
        ).squeeze(0)
        return found.permute(1, 2, 0) * there[..., None]

    def forward(
        self, x: Tensor, grids: list[tuple[int, int]], places: Tensor, there: Tensor
    ) -> Tensor:
        length = x.shape[1]
        positions = self.resized(grids, length) if self.loops else self.sampled(places, there)
        y = self.blocks(self.patches(x) + positions.to(x.dtype))
        return self.head((y * there[..., None]).sum(1) / there.sum(1, keepdim=True))


def places_of(grids: list[tuple[int, int]], length: int) -> tuple[Tensor, Tensor]:
    """Where the patches of each grid lie from -1 to 1, and which patches there are."""
    places, there = torch.zeros(1, len(grids), length, 2), torch.zeros(len(grids), length)
    for at, (rows, columns) in enumerate(grids):
        y, x = ((torch.arange(count) * 2 + 1) / count - 1 for count in (rows, columns))
        own = torch.stack((x.expand(rows, -1), y[:, None].expand(-1, columns)), -1)
        places[0, at, : rows * columns] = own.flatten(0, 1)
        there[at, : rows * columns] = 1
    return places, there


def positions_per_shape(flawed: bool, sizes: Sizes) -> Step:
    large = Config(layers=8, width=384, heads=6, mlp_width=1536, context=256, batch=128)
    config = gpt.TINY if sizes.is_tiny else large
    model = seeded(lambda: AnyShapeViT(config, sizes.of(16, 4), flawed), sizes)
    most = int(config.context**0.5)
    grids = [(most - at % 8, most - at // 8 % 8) for at in range(config.batch)]
    places, there = (each.to(sizes.device) for each in places_of(grids, config.context))
    x = seeded(lambda: torch.randn(config.batch, config.context, 768), sizes)
    labels = torch.arange(config.batch, device=sizes.device) % 100

    def loss() -> Tensor:
        return F.cross_entropy(model(x, grids, places, there), labels)

    return Step(training(loss, fused_adamw(model), sizes))


def limits_in_loop(images: Tensor, shares: Tensor) -> Tensor:
    """Percentiles of each channel of each image."""
    found = []
    for channel in images.flatten(0, 1):
        found.append(torch.quantile(channel.flatten(), shares))  # flaw: quantile_normalization
    return torch.stack(found, 1).unflatten(1, images.shape[:2])[..., None, None]


def limits_of_sample(images: Tensor, shares: Tensor) -> Tensor:
    """The same of every 64th pixel, at once."""
    some = images[:, :, ::8, ::8].flatten(2)
    return torch.quantile(some, shares, 2)[..., None, None]


def quantile_normalization(flawed: bool, sizes: Sizes) -> Step:
    width, batch, side = sizes.of((48, 4, 1024), (4, 2, 32))
    model = seeded(lambda: UNet(4, width, 8), sizes).eval().bfloat16()
    model = model.to(memory_format=torch.channels_last)
    images = seeded(lambda: torch.rand(batch, 4, side, side), sizes)
    shares = torch.tensor([0.001, 0.999], device=sizes.device)
    limits = limits_in_loop if flawed else limits_of_sample

    @torch.inference_mode()
    def step() -> Tensor:
        low, high = limits(images, shares)
        x = ((images - low) / (high - low)).bfloat16()
        return model(x.to(memory_format=torch.channels_last)).float().square().mean()

    return Step(step)
