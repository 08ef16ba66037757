"""Detectors, a classifier and a model of lane graphs, as public threads describe them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "efficientdet_assigns_by_image",
    "lane_graph_costs_to_host",
    "rfdetr_foreign_costs_copied",
    "transfer_resnet_without_benchmark",
    "yolov4_loader_without_workers",
]


def convolution(into: int, out: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    """A convolution with its norm and activation."""
    layer = nn.Conv2d(into, out, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(out), nn.SiLU())


class Pyramid(nn.Module):
    """A backbone, a feature pyramid, and heads of classes and boxes for each level."""

    def __init__(self, width: int, classes: int, shapes: int) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 4 * width, 4 * width]
        self.stem = nn.Sequential(convolution(3, width, 3, 2), convolution(width, width, 3, 2))
        self.stages = nn.ModuleList(
            nn.Sequential(convolution(a, b, 3, 2), convolution(b, b), convolution(b, b))
            for a, b in pairwise([width, *widths])
        )
        self.lateral = nn.ModuleList(convolution(each, 2 * width, 1) for each in widths)
        self.tower = nn.Sequential(*(convolution(2 * width, 2 * width) for _ in range(3)))
        self.classes = nn.Conv2d(2 * width, shapes * classes, 3, padding=1)
        self.boxes = nn.Conv2d(2 * width, shapes * 4, 3, padding=1)
        self.per_box = (classes, 4)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        x, levels = self.stem(images), []
        for stage, lateral in zip(self.stages, self.lateral, strict=True):
            x = stage(x)
            levels.append(lateral(x))
        for i in reversed(range(len(levels) - 1)):
            levels[i] = levels[i] + F.interpolate(levels[i + 1], levels[i].shape[-2:])
        towers = [self.tower(level) for level in levels]
        outputs = [
            torch.cat(
                [head(t).permute(0, 2, 3, 1).flatten(1).unflatten(1, (-1, n)) for t in towers], 1
            )
            for head, n in zip((self.classes, self.boxes), self.per_box, strict=True)
        ]
        return outputs[0].float(), outputs[1].float()


def anchors_of(size: int, shapes: int) -> Tensor:
    """Corners of the anchors of all levels."""
    anchors = []
    for stride in (8, 16, 32, 64, 128):
        place = (torch.arange(-(-size // stride)) + 0.5) * stride
        centre = torch.stack(torch.meshgrid(place, place, indexing="ij"), -1).view(-1, 1, 2)
        half = stride * 2.0 ** torch.linspace(0.5, 1.5, shapes).view(1, -1, 1)
        anchors.append(torch.cat([centre - half, centre + half], -1).view(-1, 4))
    return torch.cat(anchors)


def overlap(anchors: Tensor, boxes: Tensor) -> Tensor:
    """Intersection over union of (..., boxes, 4) with all anchors."""
    boxes = boxes.unsqueeze(-2)
    low = torch.maximum(anchors[:, :2], boxes[..., :2])  # flaw: efficientdet_assigns_by_image
    high = torch.minimum(anchors[:, 2:], boxes[..., 2:])  # flaw: efficientdet_assigns_by_image
    common = (high - low).clamp(min=0).prod(-1)  # flaw: efficientdet_assigns_by_image
    # flaw in the next line: efficientdet_assigns_by_image
    areas = [(each[..., 2:] - each[..., :2]).prod(-1) for each in (anchors, boxes)]
    return common / (areas[0] + areas[1] - common)  # flaw: efficientdet_assigns_by_image


def encoded(boxes: Tensor, anchors: Tensor) -> Tensor:
    """Boxes as they lie in their anchors."""
    size = anchors[:, 2:] - anchors[:, :2]  # flaw: efficientdet_assigns_by_image
    # flaw in the next line: efficientdet_assigns_by_image
    shift = (boxes[..., :2] + boxes[..., 2:] - anchors[:, :2] - anchors[:, 2:]) / 2 / size
    # flaw in the next line: efficientdet_assigns_by_image
    scale = ((boxes[..., 2:] - boxes[..., :2]) / size).log()
    return torch.cat([shift, scale], -1)  # flaw: efficientdet_assigns_by_image


def assigned(anchors: Tensor, boxes: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Of each anchor the class, or -1, and the box that it has to give."""
    value, match = overlap(anchors, boxes).max(-2)  # flaw: efficientdet_assigns_by_image
    # flaw in the next line: efficientdet_assigns_by_image
    label = torch.where(value >= 0.5, labels.gather(-1, match), -1)
    # flaw in the next line: efficientdet_assigns_by_image
    own = boxes.gather(-2, match.unsqueeze(-1).expand(*match.shape, 4))
    return label, encoded(own, anchors)  # flaw: efficientdet_assigns_by_image


def by_image(anchors: Tensor, boxes: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The same for each image, and each level of it, by itself."""
    all_labels, all_targets = [], []
    # flaw in the next line: efficientdet_assigns_by_image
    for own_boxes, own_labels in zip(boxes, labels, strict=True):
        pieces = [
            assigned(level, own_boxes, own_labels)  # flaw: efficientdet_assigns_by_image
            for level in anchors.tensor_split(5)
        ]
        all_labels.append(torch.cat([label for label, _ in pieces]))
        all_targets.append(torch.cat([target for _, target in pieces]))
    return torch.stack(all_labels), torch.stack(all_targets)


def boxes_of(batch: int, count: int, size: int) -> Tensor:
    """Random boxes."""
    low = torch.rand(batch, count, 2) * size * 0.6
    return torch.cat([low, low + (0.1 + 0.3 * torch.rand(batch, count, 2)) * size], -1)


def efficientdet_assigns_by_image(flawed: bool, sizes: Sizes) -> Step:
    classes, shapes, size, batch = (
        sizes.of(90, 4),
        sizes.of(9, 2),
        sizes.of(512, 64),
        sizes.of(16, 2),
    )
    model = seeded(lambda: Pyramid(sizes.of(64, 8), classes, shapes), sizes)
    anchors = seeded(lambda: anchors_of(size, shapes), sizes)
    images = seeded(lambda: torch.randn(batch, 3, size, size), sizes)
    boxes = seeded(lambda: boxes_of(batch, sizes.of(20, 3), size), sizes)
    labels = seeded(lambda: torch.randint(0, classes, boxes.shape[:2]), sizes)
    assign = by_image if flawed else assigned

    def loss_of() -> Tensor:
        scores, offsets = model(images)
        label, target = assign(anchors, boxes, labels)  # flaw: efficientdet_assigns_by_image
        is_object = (label >= 0).float()
        truth = torch.zeros_like(scores).scatter_(
            2, label.clamp(min=0)[..., None], is_object[..., None]
        )
        entropy = F.binary_cross_entropy_with_logits(scores, truth, reduction="none")
        focal = (entropy * (truth - scores.sigmoid()) ** 2).sum()
        huber = F.smooth_l1_loss(offsets, target, reduction="none").sum(-1)
        return (focal + 50 * (huber * is_object).sum()) / is_object.sum().clamp(min=1)

    return Step(training(loss_of, fused_adamw(model), sizes))


def matched_on_host(costs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Of (problems, queries, targets) the query of each target, the cheapest that is left."""
    costs, rows = costs.copy(), np.arange(len(costs))
    chosen = []
    for target in range(costs.shape[-1]):
        chosen.append(costs[..., target].argmin(-1))
        costs[rows, chosen[-1]] = np.inf
    return np.stack(chosen, -1)


def matched_on_device(costs: Tensor) -> Tensor:
    """The same where the costs are."""
    chosen: list[Tensor] = []
    for target in range(costs.shape[-1]):
        chosen.append(costs[..., target].argmin(-1))
        costs = costs.scatter(
            1, chosen[-1].view(-1, 1, 1).expand(-1, 1, costs.shape[-1]), torch.inf
        )
    return torch.stack(chosen, -1)


class DecoderLayer(nn.Module):
    """Attention among queries of a group and to the image, and an MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.q, self.kv, self.qkv = (nn.Linear(width, n * width) for n in (1, 2, 3))
        self.out, self.out_2 = nn.Linear(width, width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def attend(self, *parts: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    def forward(self, x: Tensor, memory: Tensor, groups: int) -> Tensor:
        batch = x.shape[0]
        own = x.reshape(batch * groups, -1, x.shape[-1])
        own = own + self.out(self.attend(*self.qkv(self.norms[0](own)).chunk(3, -1)))
        x = own.view_as(x)
        y = self.attend(self.q(self.norms[1](x)), *self.kv(memory).chunk(2, -1))
        x = x + self.out_2(y)
        return x + self.mlp(self.norms[2](x))


class QueryDetector(nn.Module):
    """Patches through an encoder, queries through a decoder; outputs of each decoder layer."""

    def __init__(self, width: int, depths: tuple[int, int], queries: int, out: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 14, 14)
        heads = max(1, width // 64)
        layer = partial(nn.TransformerEncoderLayer, width, heads, 4 * width, 0.0, F.gelu)
        self.encoder = nn.ModuleList(
            layer(batch_first=True, norm_first=True) for _ in range(depths[0])
        )
        self.queries = nn.Parameter(torch.randn(queries, width))
        self.decoder = nn.ModuleList(DecoderLayer(width, heads) for _ in range(depths[1]))
        self.classes, self.places = nn.Linear(width, 1), nn.Linear(width, out)

    def forward(self, images: Tensor, groups: int = 1) -> list[tuple[Tensor, Tensor]]:
        memory = self.patches(images).flatten(2).transpose(1, 2)
        for layer in self.encoder:
            memory = layer(memory)
        x, outputs = self.queries.expand(len(images), -1, -1), []
        for layer in self.decoder:
            x = layer(x, memory, groups)
            outputs.append((self.classes(x).float(), self.places(x).float().sigmoid()))
        return outputs


def set_loss(score: Tensor, place: Tensor, match: Tensor, target: Tensor) -> Tensor:
    """The loss of an output whose queries are matched with targets."""
    truth = torch.zeros_like(score).scatter_(1, match.unsqueeze(-1), 1.0)
    chosen = place.gather(1, match.unsqueeze(-1).expand(*match.shape, place.shape[-1]))
    objects = F.binary_cross_entropy_with_logits(score, truth)
    return objects + 5 * F.l1_loss(chosen, target)


def rfdetr_foreign_costs_copied(flawed: bool, sizes: Sizes) -> Step:
    batch, count, size = sizes.of(16, 2), sizes.of(20, 3), sizes.of(448, 28)
    groups, queries = sizes.of(3, 2), sizes.of(900, 12)
    model = seeded(
        lambda: QueryDetector(sizes.of(384, 16), sizes.of((12, 3), (1, 2)), queries, 4), sizes
    )
    images = seeded(lambda: torch.randn(batch, 3, size, size), sizes)
    targets = seeded(lambda: torch.rand(batch, count, 4), sizes)

    def match_of(score: Tensor, place: Tensor) -> Tensor:
        """Of (batch, groups * targets) the matched queries."""
        cost = torch.cdist(place.flatten(0, 1), targets.flatten(0, 1), p=1) - score.flatten(0, 1)
        cost = cost.view(batch, queries, batch * count)
        if flawed:
            pieces = cost.cpu().split(count, -1)  # flaw: rfdetr_foreign_costs_copied
            own = torch.stack([piece[i] for i, piece in enumerate(pieces)])
        else:
            pieces = cost.split(count, -1)
            own = torch.stack([piece[i] for i, piece in enumerate(pieces)]).cpu()
        chosen = matched_on_host(own.view(batch * groups, -1, count).numpy())
        chosen = chosen.reshape(batch, groups, count) + np.arange(groups)[:, None] * (
            queries // groups
        )
        return torch.from_numpy(chosen.reshape(batch, -1)).to(sizes.device)

    def loss_of() -> Tensor:
        losses = []
        for score, place in model(images, groups):
            with torch.no_grad():
                match = match_of(score, place)
            losses.append(set_loss(score, place, match, targets.repeat(1, groups, 1)))
        return torch.stack(losses).sum()

    return Step(training(loss_of, fused_adamw(model), sizes))


def lane_graph_costs_to_host(flawed: bool, sizes: Sizes) -> Step:
    batch, count, queries, points = sizes.of(32, 2), sizes.of(15, 3), sizes.of(100, 6), 6
    model = seeded(
        lambda: QueryDetector(sizes.of(256, 16), sizes.of((4, 6), (1, 2)), queries, points), sizes
    )
    size = sizes.of(448, 28)
    images = seeded(lambda: torch.randn(batch, 3, size, size), sizes)
    targets = seeded(lambda: torch.rand(batch, count, points), sizes)

    def costs_of(score: Tensor, place: Tensor) -> Tensor:
        return torch.cdist(place, targets, p=1) - score.sigmoid()

    def on_host(outputs: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        matches = []
        for score, place in outputs:
            costs = costs_of(score, place).cpu()  # flaw: lane_graph_costs_to_host
            match = torch.from_numpy(matched_on_host(costs.numpy()))
            matches.append(match.to(sizes.device))  # flaw: lane_graph_costs_to_host
        return matches

    def on_device(outputs: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        costs = torch.cat([costs_of(score, place) for score, place in outputs])
        return list(matched_on_device(costs).chunk(len(outputs)))

    def loss_of() -> Tensor:
        outputs = model(images)
        with torch.no_grad():
            matches = on_host(outputs) if flawed else on_device(outputs)
        losses = [
            set_loss(score, place, match, targets)
            for (score, place), match in zip(outputs, matches, strict=True)
        ]
        return torch.stack(losses).sum()

    return Step(training(loss_of, fused_adamw(model), sizes))


class Basic(nn.Module):
    """A residual block of ResNet-18."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(into, out, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.short: nn.Module = nn.Identity()
        if stride != 1 or into != out:
            self.short = nn.Sequential(
                nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.short(x))


def resnet_18(width: int, classes: int) -> nn.Sequential:
    """ResNet-18, or a narrower one."""
    widths = [width, width, 2 * width, 4 * width, 8 * width]
    blocks: list[nn.Module] = []
    for stage, (into, out) in enumerate(pairwise(widths)):
        blocks += [Basic(into, out, 1 if stage == 0 else 2), Basic(out, out, 1)]
    stem = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes)]
    return nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1), *blocks, *pool)


@contextmanager
def benchmarking(is_on: bool) -> Iterator[None]:
    """Whether cuDNN tries its algorithms."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = is_on
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def transfer_resnet_without_benchmark(flawed: bool, sizes: Sizes) -> Step:
    batch, size = sizes.of(128, 2), sizes.of(224, 32)
    model = seeded(lambda: resnet_18(sizes.of(64, 4), 2), sizes)
    images = seeded(lambda: torch.randn(batch, 3, size, size), sizes)
    labels = seeded(lambda: torch.randint(0, 2, (batch,)), sizes)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def loss_of() -> Tensor:
        # flaw in the next line: transfer_resnet_without_benchmark
        return F.cross_entropy(model(images), labels)

    step = training(loss_of, optimizer, sizes, is_mixed=False)
    return Step(step, lambda: benchmarking(not flawed), warm_up=6)


class Pictures(Dataset[tuple[Tensor, Tensor]]):
    """Pictures of any size, cropped, flipped, coloured and scaled, with their grid of objects."""

    def __init__(self, size: int, raw: int) -> None:
        self.size, self.raw = size, raw

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        chance = torch.Generator().manual_seed(index)
        raw = torch.randint(0, 256, (3, self.raw, self.raw), generator=chance, dtype=torch.uint8)
        edge = int(torch.randint(self.raw // 2, self.raw, (1,), generator=chance))
        image = raw[None, :, :edge, :edge].float() / 255
        image = F.interpolate(image, (self.size, self.size), mode="bilinear", antialias=True)[0]
        if torch.rand(1, generator=chance) < 0.5:
            image = image.flip(-1)
        image = (image * (0.7 + 0.6 * torch.rand(3, 1, 1, generator=chance))).clamp(0, 1)
        cells = -(-self.size // 32)
        grid = torch.rand(5, cells, cells, generator=chance)
        return image, torch.cat([(grid[:1] > 0.9).float(), grid[1:]])


def endless(loader: DataLoader[tuple[Tensor, Tensor]]) -> Callable[[], tuple[Tensor, Tensor]]:
    """The next batch at each call."""
    return iter(loader).__next__


def darknet(width: int) -> nn.Sequential:
    """A plain backbone and the outputs of each cell: an object, and its box."""
    steps: list[nn.Module] = [convolution(3, width)]
    for level in range(5):
        into = width << level
        steps += [convolution(into, 2 * into, 3, 2), convolution(2 * into, into, 1)]
        steps.append(convolution(into, 2 * into))
    return nn.Sequential(*steps, nn.Conv2d(32 * width, 5, 1))


def yolov4_loader_without_workers(flawed: bool, sizes: Sizes) -> Step:
    size = sizes.of(416, 64)
    model = seeded(lambda: darknet(sizes.of(32, 4)), sizes)
    loader = DataLoader(  # flaw: yolov4_loader_without_workers
        Pictures(size, sizes.of(512, 80)),
        batch_size=sizes.of(8, 2),
        num_workers=0 if flawed else sizes.of(8, 1),  # flaw: yolov4_loader_without_workers
        pin_memory=sizes.device != "cpu",
    )
    take = endless(loader)

    def loss_of() -> Tensor:
        images, grid = take()  # flaw: yolov4_loader_without_workers
        images = images.to(sizes.device, non_blocking=True)
        grid = grid.to(sizes.device, non_blocking=True)
        output = model(images).float()
        objects = F.binary_cross_entropy_with_logits(output[:, 0], grid[:, 0])
        off = ((output[:, 1:] - grid[:, 1:]) ** 2).sum(1)
        return objects + (grid[:, 0] * off).mean()

    return Step(training(loss_of, fused_adamw(model), sizes))
