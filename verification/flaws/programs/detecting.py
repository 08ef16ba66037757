"""Flaws of networks that find objects and classes in pictures, and that describe them."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "candidates_per_object",
    "classes_one_by_one",
    "costs_of_whole_batch",
    "hard_pixels_on_cpu",
    "heads_run_for_shape",
    "image_encoded_per_caption",
]


class Detector(nn.Module):
    """Boxes and scores of anchors at maps of several sizes."""

    def __init__(self, widths: tuple[int, ...], anchors: int, classes: int, doubled: bool) -> None:
        super().__init__()
        self.classes, self.doubled = classes, doubled
        before = (3, *widths)
        self.stages = nn.ModuleList(
            nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)
            for inputs, outputs in zip(before[:-1], widths, strict=True)
        )
        self.loc = nn.ModuleList(nn.Conv2d(w, anchors * 4, 3, padding=1) for w in widths[2:])
        self.conf = nn.ModuleList(nn.Conv2d(w, anchors * classes, 3, padding=1) for w in widths[2:])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        sources, boxes, scores = [], [], []
        for stage in self.stages:
            x = F.relu(stage(x))
            sources.append(x)
        for y, loc, conf in zip(sources[2:], self.loc, self.conf, strict=True):
            if self.doubled:
                # flaw in the next line: heads_run_for_shape
                boxes.append(loc(y).permute(0, 2, 3, 1).reshape(loc(y).size(0), -1, 4))
                score = conf(y).permute(0, 2, 3, 1)
                # flaw in the next line: heads_run_for_shape
                scores.append(score.reshape(conf(y).size(0), -1, self.classes))
            else:
                boxes.append(loc(y).permute(0, 2, 3, 1).reshape(y.size(0), -1, 4))
                score = conf(y).permute(0, 2, 3, 1)
                scores.append(score.reshape(y.size(0), -1, self.classes))
        return torch.cat(boxes, 1), torch.cat(scores, 1)


def heads_run_for_shape(flawed: bool, sizes: Sizes) -> Step:
    batch, side, widths, anchors, classes = sizes.of(
        (32, 304, (64, 256, 512, 512, 256), 6, 81), (2, 32, (4, 4, 6, 6), 2, 3)
    )
    model = seeded(lambda: Detector(widths, anchors, classes, flawed), sizes)
    images = seeded(lambda: torch.randn(batch, 3, side, side), sizes)

    def loss() -> Tensor:
        boxes, scores = model(images)  # flaw: heads_run_for_shape
        labels = torch.arange(scores.shape[1], device=scores.device) % classes
        labels = labels.expand(batch, -1)
        error = F.cross_entropy(scores.flatten(0, 1).float(), labels.flatten())
        return error + F.smooth_l1_loss(boxes.float(), torch.ones_like(boxes, dtype=torch.float))

    return Step(training(loss, fused_adamw(model), sizes))


def hard_labels_by_numpy(scores: Tensor, labels: Tensor, least: float, kept: int) -> Tensor:
    """Labels of hard pixels; the others are ignored."""
    # flaw in the next line: hard_pixels_on_cpu
    chances = F.softmax(scores.detach().float(), 1).cpu().numpy()
    chances = np.rollaxis(chances, 1).reshape(scores.shape[1], -1)  # flaw: hard_pixels_on_cpu
    wanted = labels.flatten().cpu().numpy()  # flaw: hard_pixels_on_cpu
    found = chances[wanted, np.arange(len(wanted))]  # flaw: hard_pixels_on_cpu
    limit = max(least, float(np.sort(found)[kept - 1]))  # flaw: hard_pixels_on_cpu
    chosen = np.where(found <= limit, wanted, -100)  # flaw: hard_pixels_on_cpu
    # flaw in the next line: hard_pixels_on_cpu
    return torch.from_numpy(chosen).to(labels.device).view_as(labels)


def hard_labels(scores: Tensor, labels: Tensor, least: float, kept: int) -> Tensor:
    """The same on the device."""
    chances = F.softmax(scores.detach().float(), 1)
    found = chances.gather(1, labels[:, None]).squeeze(1)
    limit = found.flatten().sort().values[kept - 1].clamp(min=least)
    return torch.where(found <= limit, labels, -100)


def hard_pixels_on_cpu(flawed: bool, sizes: Sizes) -> Step:
    batch, height, width, channels, classes = sizes.of((4, 256, 512, 128, 19), (2, 8, 8, 4, 3))
    model = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(3, channels, 3, stride=2, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
            nn.Conv2d(channels, classes, 1),
        ),
        sizes,
    )  # fmt: skip
    images, labels = seeded(
        lambda: (
            torch.randn(batch, 3, height, width),
            torch.randint(0, classes, (batch, height, width)),
        ),
        sizes,
    )
    kept = labels.numel() // 4
    choose = hard_labels_by_numpy if flawed else hard_labels

    def loss() -> Tensor:
        scores = F.interpolate(model(images).float(), size=(height, width), mode="bilinear")
        chosen = choose(scores, labels, 0.05, kept)  # flaw: hard_pixels_on_cpu
        return F.cross_entropy(scores, chosen)

    return Step(training(loss, fused_adamw(model), sizes))


def overlaps(x: Tensor, y: Tensor) -> Tensor:
    """How far boxes, given by corners, overlap."""
    low = torch.maximum(x[..., :2], y[..., :2])
    high = torch.minimum(x[..., 2:], y[..., 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    areas = (x[..., 2:] - x[..., :2]).prod(-1) + (y[..., 2:] - y[..., :2]).prod(-1)
    return shared / (areas - shared + 1e-6)


def matched_one_by_one(costs: Tensor, counts: Tensor) -> Tensor:
    """Which anchors each object takes, which are so many of the least costs."""
    matching = torch.zeros_like(costs, dtype=torch.bool)
    for image in range(costs.shape[0]):
        for at in range(costs.shape[1]):
            count = int(counts[image, at])  # flaw: candidates_per_object
            # flaw in the next line: candidates_per_object
            _, places = torch.topk(costs[image, at], k=count, largest=False)
            matching[image, at, places] = True  # flaw: candidates_per_object
    return matching


def matched_at_once(costs: Tensor, counts: Tensor) -> Tensor:
    """The same for all objects."""
    most = min(10, costs.shape[2])
    _, places = torch.topk(costs, k=most, largest=False)
    is_taken = torch.arange(most, device=costs.device) < counts[..., None]
    return torch.zeros_like(costs, dtype=torch.bool).scatter(2, places, is_taken)


def candidates_per_object(flawed: bool, sizes: Sizes) -> Step:
    batch, side, width, objects = sizes.of((16, 320, 256, 16), (2, 32, 4, 3))
    model = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(3, width, 4, stride=4), nn.SiLU(), nn.Conv2d(width, width, 2, stride=2),
            nn.SiLU(), nn.Conv2d(width, width, 3, padding=1), nn.SiLU(), nn.Conv2d(width, 5, 1),
        ),
        sizes,
    )  # fmt: skip
    images, corners, spans = seeded(
        lambda: (
            torch.randn(batch, 3, side, side),
            torch.rand(batch, objects, 2) * 0.6,
            0.1 + torch.rand(batch, objects, 2) * 0.3,
        ),
        sizes,
    )
    boxes = torch.cat((corners, corners + spans), -1)
    matched = matched_one_by_one if flawed else matched_at_once

    def loss() -> Tensor:
        found = model(images).float().flatten(2).mT
        anchors = torch.linspace(0.1, 0.9, found.shape[1], device=found.device)[:, None]
        low = anchors + 0.1 * found[..., :2].tanh()
        own = torch.cat((low, low + found[..., 2:4].sigmoid()), -1)
        with torch.no_grad():
            shared = overlaps(boxes[:, :, None], own[:, None])
            costs = 3 * (1 - shared) - F.logsigmoid(found[:, None, :, 4])
            most = min(10, own.shape[1])
            counts = shared.topk(most).values.sum(-1).long().clamp(1, most)
            matching = matched(costs, counts).float()  # flaw: candidates_per_object
        errors = (own[:, None] - boxes[:, :, None]).abs().sum(-1)
        error = (errors * matching).sum() / matching.sum()
        return error + F.binary_cross_entropy_with_logits(found[..., 4], matching.amax(1))

    return Step(training(loss, fused_adamw(model), sizes))


def costs_of_all(scores: Tensor, boxes: Tensor, labels: Tensor, wanted: Tensor) -> Tensor:
    """Costs of each query of an image for the objects of this image."""
    batch, queries, classes = scores.shape
    objects = labels.shape[1]
    chances = scores.sigmoid().view(-1, classes)
    every, targets = boxes.view(-1, 1, 4), wanted.view(1, -1, 4)
    classed = -chances.index_select(1, labels.flatten())  # flaw: costs_of_whole_batch
    apart = (every - targets).abs().sum(-1)  # flaw: costs_of_whole_batch
    shared = overlaps(every, targets)  # flaw: costs_of_whole_batch
    costs = 2 * classed + 5 * apart - 2 * shared  # flaw: costs_of_whole_batch
    costs = costs.view(batch, queries, batch, objects)
    # flaw in the next line: costs_of_whole_batch
    return torch.stack([costs[at, :, at] for at in range(batch)])


def costs_of_own(scores: Tensor, boxes: Tensor, labels: Tensor, wanted: Tensor) -> Tensor:
    """The same, where objects of other images are left out."""
    places = labels[:, None].expand(-1, scores.shape[1], -1)
    classed = -scores.sigmoid().gather(2, places)
    apart = (boxes[:, :, None] - wanted[:, None]).abs().sum(-1)
    return 2 * classed + 5 * apart - 2 * overlaps(boxes[:, :, None], wanted[:, None])


def costs_of_whole_batch(flawed: bool, sizes: Sizes) -> Step:
    batch, queries, width, depth, classes, objects = sizes.of(
        (16, 2600, 256, 3, 91, 24), (2, 6, 8, 2, 3, 2)
    )
    layers = seeded(
        lambda: nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
            for _ in range(depth)
        ),
        sizes,
    )
    head = seeded(lambda: nn.Linear(width, classes + 4), sizes)
    first = seeded(lambda: torch.randn(batch, queries, width), sizes)
    labels = seeded(lambda: torch.randint(0, classes, (batch, objects)), sizes)
    corners = seeded(lambda: torch.rand(batch, objects, 2) * 0.5, sizes)
    wanted = torch.cat((corners, corners + 0.3), -1)

    def loss() -> Tensor:
        x, total = first, first.new_zeros(())
        for layer in layers:
            x = x + layer(x)
            scores, found = head(x).float().split((classes, 4), -1)
            low = found[..., :2].sigmoid()
            boxes = torch.cat((low, low + found[..., 2:].sigmoid()), -1)
            with torch.no_grad():
                costs_of = costs_of_all if flawed else costs_of_own
                # flaw in the next line: costs_of_whole_batch
                best = costs_of(scores, boxes, labels, wanted).argmin(1)
            own = boxes.gather(1, best[..., None].expand(-1, -1, 4))
            aims = torch.zeros_like(scores)
            aims[torch.arange(batch, device=aims.device)[:, None], best, labels] = 1
            total = total + F.l1_loss(own, wanted)
            total = total + F.binary_cross_entropy_with_logits(scores, aims)
        return total

    return Step(training(loss, fused_adamw(nn.ModuleList((layers, head))), sizes))


class Encoder(nn.Module):
    """Layers of attention over tokens."""

    def __init__(self, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleList(
                (
                    nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width),
                    nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width),
                )
            )
            for _ in range(depth)
        )  # fmt: skip
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        for norm_1, qkv, out, norm_2, up, down in self.layers:  # type: ignore[misc]
            q, k, v = qkv(norm_1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v)
            x = x + out(y.transpose(1, 2).flatten(2))
            x = x + down(F.gelu(up(norm_2(x))))
        return x


def classes_one_by_one(flawed: bool, sizes: Sizes) -> Step:
    classes, templates, words, width, heads, depth = sizes.of(
        (48, 8, 77, 512, 8, 8), (3, 2, 4, 8, 2, 1)
    )
    embed = seeded(lambda: nn.Embedding(1000, width), sizes).bfloat16()
    encoder = seeded(lambda: Encoder(width, heads, depth), sizes).eval().bfloat16()
    texts, images = seeded(
        lambda: (
            torch.randint(0, 1000, (classes, templates, words)),
            torch.randn(256, width),
        ),
        sizes,
    )

    def encoded(tokens: Tensor) -> Tensor:
        return F.normalize(encoder(embed(tokens))[:, -1].float(), dim=-1)

    @torch.inference_mode()
    def step() -> Tensor:
        if flawed:
            rows = []
            for of_class in texts:
                # flaw in the next line: classes_one_by_one
                rows.append(F.normalize(encoded(of_class).mean(0), dim=-1))
            weights = torch.stack(rows)  # flaw: classes_one_by_one
        else:
            every = encoded(texts.flatten(0, 1)).view(classes, templates, -1)
            weights = F.normalize(every.mean(1), dim=-1)
        return (F.normalize(images, dim=-1) @ weights.T).amax(1).mean()

    return Step(step)


class Words(nn.Module):
    """Words of a caption look at what is known of the image."""

    def __init__(self, width: int, heads: int, words: int) -> None:
        super().__init__()
        self.heads, self.embed = heads, nn.Embedding(words, width)
        self.queries, self.pairs = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, tokens: Tensor, seen: Tensor) -> Tensor:
        x = self.embed(tokens)
        k, v = self.pairs(seen).unflatten(2, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q = self.queries(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.out(self.norm(x + y))


def image_encoded_per_caption(flawed: bool, sizes: Sizes) -> Step:
    images, captions, regions, words, width, heads, depth, known = sizes.of(
        (40, 5, 196, 16, 512, 8, 4, 9488), (2, 3, 4, 3, 8, 2, 1, 10)
    )
    encoder = seeded(lambda: Encoder(width, heads, depth), sizes)
    decoder = seeded(lambda: Words(width, heads, known), sizes)
    features, tokens = seeded(
        lambda: (
            torch.randn(images, regions, width),
            torch.randint(0, known, (images * captions, words + 1)),
        ),
        sizes,
    )

    def loss() -> Tensor:
        if flawed:
            every = features.repeat_interleave(captions, 0)  # flaw: image_encoded_per_caption
            seen = encoder(every)  # flaw: image_encoded_per_caption
        else:
            seen = encoder(features).repeat_interleave(captions, 0)
        scores = decoder(tokens[:, :-1], seen)
        return F.cross_entropy(scores.flatten(0, 1).float(), tokens[:, 1:].flatten())

    return Step(training(loss, fused_adamw(nn.ModuleList((encoder, decoder))), sizes))
