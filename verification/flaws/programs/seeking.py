"""Flaws of detectors and segmenters, of their losses and their data, and of convolutions."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from .host import Forever
from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "box_costs_by_cdist",
    "boxes_scanned_in_dataset",
    "camera_features_permuted",
    "global_attention_by_hand",
    "large_kernels_depthwise",
    "targets_packed_per_image",
    "weights_standardized_by_means",
]


class QueryLayer(nn.Module):
    """Queries look at an image, and change."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.queries = nn.LayerNorm(width), nn.Linear(width, width)
        self.keys_values, self.out = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, image: Tensor) -> Tensor:
        q = self.queries(self.norm(x)).unflatten(2, (self.heads, -1)).transpose(1, 2)
        both = self.keys_values(image).unflatten(2, (2, self.heads, -1))
        k, v = both.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(x)))


class QueryDetector(nn.Module):
    """Scores and boxes of queries, after each layer."""

    def __init__(self, width: int, heads: int, layers: int, queries: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.queries = nn.Parameter(torch.randn(queries, width))
        self.layers = nn.ModuleList(QueryLayer(width, heads) for _ in range(layers))
        self.scores, self.boxes = nn.Linear(width, classes), nn.Linear(width, 4)

    def forward(self, images: Tensor) -> list[tuple[Tensor, Tensor]]:
        seen = self.patches(images).flatten(2).transpose(1, 2)
        x = self.queries.expand(len(images), -1, -1)
        found = []
        for layer in self.layers:
            x = layer(x, seen)
            found.append((self.scores(x).float(), self.boxes(x).float().sigmoid()))
        return found


def l1_costs(boxes: Tensor, wanted: Tensor) -> Tensor:
    """Distances of all boxes from all wanted ones."""
    return torch.cdist(boxes, wanted, p=1)  # flaw: box_costs_by_cdist


def l1_costs_by_sum(boxes: Tensor, wanted: Tensor) -> Tensor:
    """The same, coordinate by coordinate."""
    costs = (boxes[:, None, 0] - wanted[:, 0]).abs()
    for at in range(1, 4):
        costs += (boxes[:, None, at] - wanted[:, at]).abs()
    return costs


def box_costs_by_cdist(flawed: bool, sizes: Sizes) -> Step:
    width, heads, layers, queries, classes = sizes.of((256, 8, 5, 1800, 80), (8, 2, 2, 6, 3))
    batch, side, objects = sizes.of((16, 512, 20), (2, 32, 2))
    model = seeded(lambda: QueryDetector(width, heads, layers, queries, classes), sizes)
    images, labels, wanted = seeded(
        lambda: (
            torch.randn(batch, 3, side, side),
            torch.randint(0, classes, (batch * objects,)),
            torch.rand(batch * objects, 4),
        ),
        sizes,
    )
    image = torch.arange(batch, device=sizes.device)
    own = image.repeat_interleave(queries)[:, None] == image.repeat_interleave(objects)
    costs_of = l1_costs if flawed else l1_costs_by_sum

    @torch.no_grad()
    def matched(scores: Tensor, boxes: Tensor) -> Tensor:
        costs = 5 * costs_of(boxes, wanted)  # flaw: box_costs_by_cdist
        costs = costs - scores.sigmoid()[:, labels]
        return costs.masked_fill(~own, float("inf")).argmin(0)

    def loss() -> Tensor:
        total = torch.zeros((), device=sizes.device)
        for scores, boxes in model(images):
            scores, boxes = scores.flatten(0, 1), boxes.flatten(0, 1)
            best = matched(scores, boxes)  # flaw: box_costs_by_cdist
            total = total + F.l1_loss(boxes.index_select(0, best), wanted)
            total = total + F.cross_entropy(scores.index_select(0, best), labels)
        return total

    return Step(training(loss, fused_adamw(model), sizes))


def packed_per_image(targets: Tensor, batch: int, most: int, side: int) -> Tensor:
    """The objects (image, class, box) of each image, as rows of the length of the longest."""
    image = targets[:, 0]
    _, counts = image.unique(return_counts=True)  # flaw: targets_packed_per_image
    longest = int(counts.max())  # flaw: targets_packed_per_image
    packed = torch.zeros(batch, longest, 5, device=targets.device)
    for at in range(batch):
        same = image == at  # flaw: targets_packed_per_image
        if count := int(same.sum()):  # flaw: targets_packed_per_image
            packed[at, :count] = targets[same, 1:]  # flaw: targets_packed_per_image
    packed[..., 1:] *= side
    return F.pad(packed, (0, 0, 0, most - longest))


def packed_at_once(targets: Tensor, batch: int, most: int, side: int) -> Tensor:
    """The same for all images, of which the loader knows how many objects they have at most."""
    image = targets[:, 0].long()
    ones = torch.ones(len(image), dtype=torch.long, device=image.device)
    counts = torch.zeros(batch, dtype=torch.long, device=image.device).index_add(0, image, ones)
    first = counts.cumsum(0) - counts
    within = torch.arange(len(image), device=image.device) - first.index_select(0, image)
    packed = torch.zeros(batch * most, 5, device=image.device)
    packed.index_copy_(0, image * most + within, targets[:, 1:])
    packed = packed.view(batch, most, 5)
    packed[..., 1:] *= side
    return packed


class GridDetector(nn.Module):
    """Scores of classes and a box in each cell of a grid."""

    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 16, 16)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.head = nn.Conv2d(width, classes + 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for conv in self.convs:
            x = x + F.silu(conv(x))
        return self.head(x).flatten(2).transpose(1, 2).float()


def targets_packed_per_image(flawed: bool, sizes: Sizes) -> Step:
    batch, side, width, depth, classes = sizes.of((64, 448, 192, 12, 20), (3, 64, 4, 1, 3))
    objects = sizes.of(800, 8)
    model = seeded(lambda: GridDetector(width, depth, classes), sizes)
    model = model.to(memory_format=torch.channels_last)
    images, image, kinds, places = seeded(
        lambda: (
            torch.randn(batch, 3, side, side),
            torch.randint(0, batch, (objects,)).sort().values,
            torch.randint(0, classes, (objects,)),
            torch.rand(objects, 4) * 0.9,
        ),
        sizes,
    )
    images = images.contiguous(memory_format=torch.channels_last)
    targets = torch.cat((image[:, None], kinds[:, None], places), 1)
    most, cells = int(image.bincount().max()), side // 16
    pack = packed_per_image if flawed else packed_at_once

    def loss() -> Tensor:
        packed = pack(targets, batch, most, side)  # flaw: targets_packed_per_image
        found, boxes = model(images), packed[..., 1:]
        cell = (boxes[..., :2] / 16).long()
        cell = (cell[..., 1] * cells + cell[..., 0])[..., None]
        own = found.gather(1, cell.expand(-1, -1, found.shape[2]))
        is_there = (boxes.sum(-1) > 0).float()
        errors = F.l1_loss(own[..., -4:], boxes / side, reduction="none").sum(-1)
        kinds = packed[..., 0].long().flatten()
        wrong = F.cross_entropy(own[..., :-4].flatten(0, 1), kinds, reduction="none")
        return ((errors.flatten() + wrong) * is_there.flatten()).sum() / objects

    return Step(training(loss, fused_adamw(model), sizes))


class CameraLayer(nn.Module):
    """Places of a map seen from above look up points in the images of all cameras."""

    def __init__(self, width: int, points: int, permutes: bool) -> None:
        super().__init__()
        self.points, self.permutes = points, permutes
        self.values, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.norm, self.offsets = nn.LayerNorm(width), nn.Linear(width, 2 * points)

    def forward(self, x: Tensor, seen: Tensor, places: Tensor, shape: tuple[int, int]) -> Tensor:
        """Places (samples, n, width) and features (cameras, pixels, samples, width)."""
        cameras = seen.shape[0]
        if self.permutes:
            # flaw in the next line: camera_features_permuted
            seen = seen.permute(2, 0, 1, 3).reshape(-1, seen.shape[1], seen.shape[3])
        else:
            cameras = len(seen) // len(x)
        values = self.values(seen).transpose(1, 2).unflatten(2, shape)
        y = self.norm(x)
        offsets = self.offsets(y).tanh().unflatten(2, (self.points, 2)).float()
        grid = (places[:, :, None] + 0.1 * offsets).repeat_interleave(cameras, 0)
        looked = F.grid_sample(values, grid.to(values.dtype), align_corners=False)
        looked = looked.mean(3).unflatten(0, (-1, cameras)).mean(1)
        return x + self.out(looked.transpose(1, 2))


def camera_features_permuted(flawed: bool, sizes: Sizes) -> Step:
    samples, cameras, height, width_px = sizes.of((4, 6, 80, 140), (2, 2, 4, 6))
    width, count, points, layers = sizes.of((256, 1200, 4, 6), (8, 5, 2, 2))
    neck = seeded(lambda: nn.Linear(width, width), sizes)
    encoder = seeded(
        lambda: nn.ModuleList(CameraLayer(width, points, flawed) for _ in range(layers)), sizes
    )
    features, x, places, wanted = seeded(
        lambda: (
            torch.randn(cameras, height * width_px, samples, width),
            torch.randn(samples, count, width),
            torch.rand(samples, count, 2) * 2 - 1,
            torch.randn(samples, count, width),
        ),
        sizes,
    )
    model = nn.ModuleList((neck, encoder)).bfloat16()
    features, x, wanted = features.bfloat16(), x.bfloat16(), wanted.bfloat16()

    def loss() -> Tensor:
        seen, y = neck(features), x
        if not flawed:
            seen = seen.permute(2, 0, 1, 3).reshape(-1, seen.shape[1], seen.shape[3])
        for layer in encoder:
            y = layer(y, seen, places, (height, width_px))  # flaw: camera_features_permuted
        return F.mse_loss(y.float(), wanted.float())

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


class LargeKernel(nn.Module):
    """Each channel is convolved with a kernel of 31 x 31, and channels are mixed."""

    def __init__(self, width: int, kernel: int, by_fft: bool) -> None:
        super().__init__()
        self.kernel, self.by_fft = kernel, by_fft
        self.weight = nn.Parameter(torch.randn(width, 1, kernel, kernel) / kernel)
        self.norm = nn.BatchNorm2d(width)
        self.up, self.down = nn.Conv2d(width, 4 * width, 1), nn.Conv2d(4 * width, width, 1)

    def convolved(self, x: Tensor) -> Tensor:
        half = self.kernel // 2
        if not self.by_fft:
            # flaw in the next line: large_kernels_depthwise
            return F.conv2d(x, self.weight, padding=half, groups=x.shape[1])
        side = x.shape[-1]
        size = (side + half + 7) // 8 * 8
        weight = torch.fft.rfft2(self.weight.squeeze(1), (size, size))
        y = torch.fft.irfft2(torch.fft.rfft2(x.float(), (size, size)) * weight.conj())
        return y.roll((half, half), (2, 3))[:, :, :side, :side]

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.convolved(x))  # flaw: large_kernels_depthwise
        return x + self.down(F.gelu(self.up(y)))


def large_kernels_depthwise(flawed: bool, sizes: Sizes) -> Step:
    batch, side, width, depth, kernel = sizes.of((16, 56, 96, 2, 31), (2, 8, 4, 2, 5))
    stem = seeded(lambda: nn.Conv2d(3, width, 4, 4), sizes)
    blocks = seeded(
        lambda: nn.Sequential(*(LargeKernel(width, kernel, not flawed) for _ in range(depth))),
        sizes,
    )
    head = seeded(lambda: nn.Linear(width, 1000), sizes)
    images = seeded(lambda: torch.randn(batch, 3, 4 * side, 4 * side), sizes)
    labels = torch.arange(batch, device=sizes.device)

    def loss() -> Tensor:
        x = blocks(stem(images))  # flaw: large_kernels_depthwise
        return F.cross_entropy(head(x.mean((2, 3))), labels)

    modules = nn.ModuleList((stem, blocks, head))
    return Step(training(loss, fused_adamw(modules), sizes))


class PromptedMasks(Dataset):
    """Images that were encoded, the masks of their organs, and boxes around these."""

    def __init__(self, count: int, channels: int, side: int, scans: bool) -> None:
        chance = torch.Generator().manual_seed(8)
        self.encoded = torch.randn(count, channels, 16, 16, generator=chance)
        self.masks = np.zeros((count, side, side), np.uint8)
        for at, corner in enumerate(torch.randint(0, side // 2, (count, 2), generator=chance)):
            top, left = corner.tolist()
            self.masks[at, top : top + side // 3, left : left + side // 4] = 1
        self.boxes = None if scans else [self.box_of(at) for at in range(count)]

    def box_of(self, at: int) -> Tensor:
        rows, columns = np.where(self.masks[at] > 0)  # flaw: boxes_scanned_in_dataset
        left, right = columns.min(), columns.max()  # flaw: boxes_scanned_in_dataset
        top, bottom = rows.min(), rows.max()  # flaw: boxes_scanned_in_dataset
        return torch.tensor([left, top, right, bottom]).float() / self.masks.shape[1]

    def __len__(self) -> int:
        return len(self.masks)

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor, Tensor]:
        # flaw in the next line: boxes_scanned_in_dataset
        box = self.box_of(at) if self.boxes is None else self.boxes[at]
        return self.encoded[at], torch.from_numpy(self.masks[at]), box


class MaskDecoder(nn.Module):
    """A mask of what a box holds."""

    def __init__(self, channels: int, depth: int) -> None:
        super().__init__()
        self.box = nn.Linear(4, channels)
        make = partial(nn.Conv2d, channels, channels, 3, padding=1)
        self.convs = nn.ModuleList(make() for _ in range(depth))
        self.out = nn.Conv2d(channels, 1, 1)

    def forward(self, encoded: Tensor, box: Tensor, side: int) -> Tensor:
        x = encoded + self.box(box)[:, :, None, None]
        for conv in self.convs:
            x = x + F.gelu(conv(x))
        return F.interpolate(self.out(x).float(), (side, side), mode="bilinear")


def boxes_scanned_in_dataset(flawed: bool, sizes: Sizes) -> Step:
    count, batch, channels, side, depth = sizes.of((128, 16, 256, 1024, 12), (6, 3, 8, 32, 1))
    model = seeded(lambda: MaskDecoder(channels, depth), sizes)
    data = PromptedMasks(count, channels, side, flawed)
    loader = DataLoader(
        data, batch_size=batch, sampler=Forever(count), pin_memory=not sizes.is_tiny
    )
    batches = iter(loader)

    def loss() -> Tensor:
        some = next(batches)  # flaw: boxes_scanned_in_dataset
        encoded, masks, boxes = (each.to(sizes.device, non_blocking=True) for each in some)
        found = model(encoded, boxes, side).squeeze(1)
        return F.binary_cross_entropy_with_logits(found, masks.float())

    return Step(training(loss, fused_adamw(model), sizes))


class GlobalAttention(nn.Module):
    """Each patch sees all others, with a bias for the rows and one for the columns between them."""

    def __init__(self, width: int, heads: int, side: int, by_hand: bool) -> None:
        super().__init__()
        self.heads, self.side, self.by_hand = heads, side, by_hand
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        ends = 2 * side - 1
        self.rows = nn.Parameter(torch.randn(ends, width // heads) * 0.1)
        self.columns = nn.Parameter(torch.randn(ends, width // heads) * 0.1)
        at = torch.arange(side)
        self.register_buffer("apart", at[:, None] - at + side - 1)

    def biases(self, q: Tensor) -> tuple[Tensor, Tensor]:
        grid = q.unflatten(2, (self.side, self.side))
        rows = torch.einsum("nhrcd,rkd->nhrck", grid, self.rows[self.apart])
        columns = torch.einsum("nhrcd,ckd->nhrck", grid, self.columns[self.apart])
        return rows.flatten(2, 3), columns.flatten(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        rows, columns = self.biases(q)
        if self.by_hand:
            scores = (q * q.shape[-1] ** -0.5) @ k.mT  # flaw: global_attention_by_hand
            scores = scores.unflatten(3, (self.side, self.side))
            scores = scores + rows[..., None]  # flaw: global_attention_by_hand
            scores = scores + columns[..., None, :]  # flaw: global_attention_by_hand
            weights = scores.flatten(3).softmax(-1)  # flaw: global_attention_by_hand
            y = weights @ v  # flaw: global_attention_by_hand
        else:
            bias = (rows[..., None] + columns[..., None, :]).flatten(3)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.out(y.transpose(1, 2).flatten(2))


class PatchBlock(nn.Module):
    """A block of a ViT for segmentation."""

    def __init__(self, width: int, heads: int, side: int, by_hand: bool) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = GlobalAttention(width, heads, side, by_hand)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x))  # flaw: global_attention_by_hand
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def global_attention_by_hand(flawed: bool, sizes: Sizes) -> Step:
    batch, side, width, heads, layers = sizes.of((1, 64, 1024, 16, 6), (2, 4, 16, 2, 2))
    model = seeded(
        lambda: nn.Sequential(*(PatchBlock(width, heads, side, flawed) for _ in range(layers))),
        sizes,
    )
    model = model.eval().bfloat16()
    patches = seeded(lambda: torch.randn(batch, side * side, width), sizes).bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        return model(patches).float().square().mean()  # flaw: global_attention_by_hand

    return Step(step)


class StandardizedConv(nn.Conv2d):
    """A convolution whose weights have mean 0 and deviation 1 in each channel."""

    by_means = True

    def standardized(self) -> Tensor:
        weight = self.weight
        if not self.by_means:
            # as a batch norm of one sample
            row = weight.reshape(1, len(weight), -1)
            row = F.batch_norm(row, None, None, training=True, momentum=0.0, eps=1e-10)
            return row.view_as(weight)
        mean = weight.mean(1, keepdim=True)  # flaw: weights_standardized_by_means
        mean = mean.mean(2, keepdim=True)  # flaw: weights_standardized_by_means
        mean = mean.mean(3, keepdim=True)  # flaw: weights_standardized_by_means
        weight = weight - mean  # flaw: weights_standardized_by_means
        # flaw in the next line: weights_standardized_by_means
        std = weight.view(len(weight), -1).std(1, correction=0).view(-1, 1, 1, 1) + 1e-5
        return weight / std.expand_as(weight)  # flaw: weights_standardized_by_means

    def forward(self, x: Tensor) -> Tensor:
        weight = self.standardized()  # flaw: weights_standardized_by_means
        return F.conv2d(x, weight, self.bias, self.stride, self.padding)


class StandardizedBlock(nn.Module):
    """Two convolutions with group norms, and a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv_1 = StandardizedConv(inputs, width, 3, stride, 1, bias=False)
        self.conv_2 = StandardizedConv(width, width, 3, 1, 1, bias=False)
        self.shortcut = StandardizedConv(inputs, width, 1, stride, bias=False)
        self.norm_1, self.norm_2 = nn.GroupNorm(groups, width), nn.GroupNorm(groups, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv_1(x)  # flaw: weights_standardized_by_means
        y = self.conv_2(F.relu(self.norm_1(y)))  # flaw: weights_standardized_by_means
        shortcut = self.shortcut(x)  # flaw: weights_standardized_by_means
        return F.relu(self.norm_2(y) + shortcut)


def weights_standardized_by_means(flawed: bool, sizes: Sizes) -> Step:
    batch, side, width, groups, depths = sizes.of(
        (32, 160, 64, 32, (2, 3, 4, 2)), (2, 16, 4, 2, (1, 1))
    )

    def make() -> nn.Sequential:
        layers, inputs = [nn.Conv2d(3, width, 4, 4)], width
        for at, depth in enumerate(depths):
            for block in range(depth):
                stride = 2 if at and not block else 1
                layers.append(StandardizedBlock(inputs, width << at, stride, groups))
                inputs = width << at
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(100))

    model = seeded(make, sizes)
    images = seeded(lambda: torch.randn(batch, 3, side, side), sizes)
    images = images.contiguous(memory_format=torch.channels_last)
    for module in model.modules():
        if isinstance(module, StandardizedConv):
            module.by_means = flawed
    labels = torch.arange(batch, device=sizes.device)
    with torch.no_grad():
        model(images)

    def loss() -> Tensor:
        scores = model(images)  # flaw: weights_standardized_by_means
        return F.cross_entropy(scores.float(), labels)

    return Step(training(loss, fused_adamw(model), sizes))
