"""Flaws of detectors in images and points, and of models that segment images and volumes."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, compiled, fused_adamw, seeded, training

__all__ = [
    "erosions_in_numpy",
    "ghm_bins_by_item",
    "pillars_scattered_per_sample",
    "pseudo_labels_by_unique",
    "shifted_windows_by_hand",
    "target_masks_grid_sampled",
]


class ConvNet(nn.Module):
    """Convolutions of one width behind a stem that makes the image smaller."""

    def __init__(self, channels: int, width: int, depth: int, stride: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, stride, stride)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for conv in self.convs:
            x = x + F.relu(conv(x))
        return x


class GHMLoss(nn.Module):
    """Binary cross entropy, where examples count less if many have a gradient like theirs."""

    def __init__(self, bins: int, by_item: bool) -> None:
        super().__init__()
        self.bins, self.by_item = bins, by_item
        edges = torch.arange(bins + 1) / bins
        edges[-1] += 1e-6
        self.register_buffer("edges", edges)

    def weights_of_bins(self, g: Tensor, valid: Tensor) -> tuple[Tensor, float]:
        weights = torch.zeros_like(g)
        total = max(valid.float().sum().item(), 1.0)  # flaw: ghm_bins_by_item
        filled = 0
        for at in range(self.bins):
            # flaw in the next line: ghm_bins_by_item
            inside = (g >= self.edges[at]) & (g < self.edges[at + 1]) & valid
            count = inside.sum().item()  # flaw: ghm_bins_by_item
            if count > 0:
                weights[inside] = total / count  # flaw: ghm_bins_by_item
                filled += 1
        return weights / max(filled, 1), total

    def weights_of_histogram(self, g: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        counts = torch.histc(torch.where(valid, g, -1.0), self.bins, 0, 1)
        total = counts.sum().clamp(min=1)
        each = total / counts.clamp(min=1) / (counts > 0).sum()
        at = (g * self.bins).long().clamp(max=self.bins - 1)
        return torch.where(valid, each.gather(0, at.flatten()).view_as(g), 0.0), total

    def forward(self, scores: Tensor, targets: Tensor, valid: Tensor) -> Tensor:
        g = (scores.detach().sigmoid() - targets).abs()
        find = self.weights_of_bins if self.by_item else self.weights_of_histogram
        weights, total = find(g, valid)  # flaw: ghm_bins_by_item
        found = F.binary_cross_entropy_with_logits(scores, targets, weights, reduction="sum")
        return found / total


def ghm_bins_by_item(flawed: bool, sizes: Sizes) -> Step:
    batch, side, width, depth, classes = sizes.of((8, 768, 256, 6, 20), (1, 32, 8, 1, 3))
    anchors, bins = sizes.of((9, 30), (2, 5))
    model = seeded(lambda: ConvNet(3, width, depth, 8), sizes)
    head = seeded(lambda: nn.Conv2d(width, anchors * classes, 3, padding=1), sizes)
    criterion = GHMLoss(bins, flawed).to(sizes.device)
    images, chance = seeded(
        lambda: (
            torch.randn(batch, 3, side, side),
            torch.rand(batch, anchors * classes, side // 8, side // 8),
        ),
        sizes,
    )
    targets, valid = (chance < 0.01).float(), chance < 0.95

    def loss() -> Tensor:
        scores = head(model(images)).float()
        return criterion(scores, targets, valid)  # flaw: ghm_bins_by_item

    return Step(training(loss, fused_adamw(nn.ModuleList((model, head))), sizes))


class MaskHead(nn.Module):
    """A mask of each query, as products of pixels and queries."""

    def __init__(self, width: int, depth: int, queries: int) -> None:
        super().__init__()
        self.backbone = ConvNet(3, width, depth, 8)
        self.queries = nn.Parameter(torch.randn(queries, width))
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, images: Tensor) -> Tensor:
        pixels = self.backbone(images)
        return torch.einsum("qc,bchw->bqhw", self.mlp(self.queries), pixels) / 16


def point_sample(masks: Tensor, points: Tensor, mode: str) -> Tensor:
    """The values of masks (n, height, width) at points (n, p, 2) between 0 and 1."""
    # flaw in the next line: target_masks_grid_sampled
    found = F.grid_sample(masks[:, None], 2 * points[:, :, None] - 1, mode, align_corners=False)
    return found[:, 0, :, 0]


def masks_sampled_by_grid(masks: list[Tensor], order: Tensor, points: Tensor) -> Tensor:
    # flaw in the next line: target_masks_grid_sampled
    matched = torch.cat([each[at] for each, at in zip(masks, order, strict=True)])
    # flaw in the next line: target_masks_grid_sampled
    return point_sample(matched.float(), points, "nearest")


def masks_sampled_by_index(masks: list[Tensor], order: Tensor, points: Tensor) -> Tensor:
    height, width = masks[0].shape[1:]
    scaled = torch.stack((points[..., 0] * width, points[..., 1] * height), -1) - 0.5
    at = scaled.round().long().clamp(min=0)
    flat = at[..., 1].clamp(max=height - 1) * width + at[..., 0].clamp(max=width - 1)
    rows = zip(masks, order, flat.split(order.shape[1]), strict=True)
    return torch.cat([each.flatten(1)[at[:, None], places] for each, at, places in rows]).float()


def target_masks_grid_sampled(flawed: bool, sizes: Sizes) -> Step:
    batch, queries, side, width, depth = sizes.of((12, 100, 800, 256, 5), (2, 4, 16, 8, 1))
    matched, count = sizes.of((60, 4096), (3, 10))
    model = seeded(lambda: MaskHead(width, depth, queries), sizes)
    run = compiled(model, sizes)
    images, points, order = seeded(
        lambda: (
            torch.randn(batch, 3, side, side),
            torch.rand(batch * matched, count, 2),
            torch.rand(batch, matched).argsort(1),
        ),
        sizes,
    )
    masks = [
        seeded(lambda: torch.randint(0, 2, (matched, side, side), dtype=torch.uint8), sizes).bool()
        for _ in range(batch)
    ]
    sampled = masks_sampled_by_grid if flawed else masks_sampled_by_index

    def loss() -> Tensor:
        found = run(images)[:, :matched].flatten(0, 1).float()
        scores = F.grid_sample(found[:, None], 2 * points[:, :, None] - 1, align_corners=False)
        with torch.no_grad():
            wanted = sampled(masks, order, points)  # flaw: target_masks_grid_sampled
        return F.binary_cross_entropy_with_logits(scores[:, 0, :, 0], wanted)

    return Step(training(loss, fused_adamw(model), sizes))


class PillarScatter(nn.Module):
    """Puts the features of pillars to their places in a map seen from above."""

    def __init__(self, side: int, per_sample: bool) -> None:
        super().__init__()
        self.side, self.per_sample = side, per_sample

    def by_sample(self, pillars: Tensor, coords: Tensor) -> Tensor:
        batch = int(coords[:, 0].max().item()) + 1  # flaw: pillars_scattered_per_sample
        maps = []
        for at in range(batch):
            # flaw in the next line: pillars_scattered_per_sample
            empty = pillars.new_zeros(pillars.shape[1], self.side**2)
            mine = coords[:, 0] == at  # flaw: pillars_scattered_per_sample
            places = coords[mine]  # flaw: pillars_scattered_per_sample
            # flaw in the next line: pillars_scattered_per_sample
            index = places[:, 1] * self.side + places[:, 2]
            empty[:, index] = pillars[mine].t()  # flaw: pillars_scattered_per_sample
            maps.append(empty)
        stacked = torch.stack(maps)  # flaw: pillars_scattered_per_sample
        return stacked.unflatten(2, (self.side, self.side))

    def at_once(self, pillars: Tensor, coords: Tensor, batch: int) -> Tensor:
        index = (coords[:, 0] * self.side + coords[:, 1]) * self.side + coords[:, 2]
        empty = pillars.new_zeros(batch * self.side**2, pillars.shape[1])
        maps = empty.index_copy(0, index, pillars)
        return maps.view(batch, self.side, self.side, -1).permute(0, 3, 1, 2)

    def forward(self, pillars: Tensor, coords: Tensor, batch: int) -> Tensor:
        if self.per_sample:
            return self.by_sample(pillars, coords)  # flaw: pillars_scattered_per_sample
        return self.at_once(pillars, coords, batch)


def pillars_scattered_per_sample(flawed: bool, sizes: Sizes) -> Step:
    batch, side, count, points, width = sizes.of((32, 256, 4000, 16, 64), (3, 8, 10, 4, 8))
    encoder = seeded(lambda: nn.Sequential(nn.Linear(9, width), nn.ReLU()), sizes)
    scatter = PillarScatter(side, flawed)
    model = seeded(lambda: ConvNet(width, 2 * width, 4, 2), sizes)
    head = seeded(lambda: nn.Conv2d(2 * width, 14, 1), sizes)
    clouds, cells = seeded(
        lambda: (
            torch.randn(batch * count, points, 9),
            torch.rand(batch, side * side).argsort(1)[:, :count],
        ),
        sizes,
    )
    samples = torch.arange(batch, device=sizes.device).repeat_interleave(count)
    flat = cells.flatten()
    coords = torch.stack((samples, flat // side, flat % side), 1)

    def loss() -> Tensor:
        pillars = encoder(clouds).amax(1)
        seen = scatter(pillars, coords, batch)  # flaw: pillars_scattered_per_sample
        return head(model(seen)).float().square().mean()

    modules = nn.ModuleList((encoder, model, head))
    return Step(training(loss, fused_adamw(modules), sizes))


def eroded_by_numpy(errors: Tensor, rounds: int) -> Tensor:
    """How deep in an area of errors each pixel lies, by erosions, as a Hausdorff loss weighs it."""
    bounds = errors.cpu().numpy()  # flaw: erosions_in_numpy
    total = np.zeros_like(bounds)
    for at, bound in enumerate(bounds):
        for k in range(rounds):
            wide = np.pad(bound, 1)  # flaw: erosions_in_numpy
            # flaw in the next line: erosions_in_numpy
            cross = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
            eroded = np.maximum(0.2 * (cross + bound) - 0.5, 0)  # flaw: erosions_in_numpy
            spread = np.ptp(eroded)  # flaw: erosions_in_numpy
            # flaw in the next line: erosions_in_numpy
            bound = (eroded - eroded.min()) / spread if spread else eroded
            total[at] += bound * (k + 1) ** 2  # flaw: erosions_in_numpy
    return torch.from_numpy(total).to(errors.device)  # flaw: erosions_in_numpy


def eroded_by_convolution(errors: Tensor, rounds: int) -> Tensor:
    """The same for all images at once where they are."""
    bound, total = errors[:, None], torch.zeros_like(errors[:, None])
    kernel = F.pad(torch.full((1, 1, 1, 3), 0.2, device=errors.device), (0, 0, 1, 1))
    kernel = kernel.maximum(kernel.mT)
    for k in range(rounds):
        eroded = (F.conv2d(bound, kernel, padding=1) - 0.5).relu()
        low, high = eroded.amin((2, 3), keepdim=True), eroded.amax((2, 3), keepdim=True)
        bound = torch.where(high > low, (eroded - low) / (high - low).clamp(min=1e-9), eroded)
        total = total + bound * (k + 1) ** 2
    return total[:, 0]


def erosions_in_numpy(flawed: bool, sizes: Sizes) -> Step:
    batch, side, width, depth, rounds = sizes.of((8, 256, 64, 12, 10), (2, 16, 8, 2, 3))
    model = seeded(lambda: ConvNet(1, width, depth, 1), sizes)
    head = seeded(lambda: nn.Conv2d(width, 1, 1), sizes)
    images = seeded(lambda: torch.randn(batch, 1, side, side), sizes)
    where = torch.linspace(-1, 1, side, device=sizes.device)
    labels = ((where.square() + where[:, None].square()) < 0.5).float().expand(batch, -1, -1)
    eroded = eroded_by_numpy if flawed else eroded_by_convolution

    def loss() -> Tensor:
        scores = head(model(images))[:, 0].float()
        errors = (scores.sigmoid() - labels).square()
        with torch.no_grad(), torch.autocast(sizes.device, enabled=False):
            depths = eroded(errors.detach(), rounds)  # flaw: erosions_in_numpy
        far = (errors * depths).mean()
        return F.binary_cross_entropy_with_logits(scores, labels) + 0.01 * far

    return Step(training(loss, fused_adamw(nn.ModuleList((model, head))), sizes))


def losses_of_unique(losses: Tensor, labels: Tensor) -> Tensor:
    """The mean over clusters of the mean loss of their proposals, image by image."""
    total = losses.new_zeros(())
    for loss, label in zip(losses, labels, strict=True):
        clusters = label.unique()  # flaw: pseudo_labels_by_unique
        for cluster in clusters:
            mine = label == cluster  # flaw: pseudo_labels_by_unique
            total = total + loss[mine].mean() / len(clusters)  # flaw: pseudo_labels_by_unique
    return total / len(losses)


def losses_of_sums(losses: Tensor, labels: Tensor, most: int) -> Tensor:
    """The same from sums over all clusters that there may be."""
    sums = torch.zeros(len(losses), most, device=losses.device).scatter_add(1, labels, losses)
    counts = torch.zeros_like(sums).scatter_add(1, labels, torch.ones_like(losses))
    return ((sums / counts.clamp(min=1)).sum(1) / (counts > 0).sum(1)).mean()


def pseudo_labels_by_unique(flawed: bool, sizes: Sizes) -> Step:
    images, proposals, features, width = sizes.of((4, 2000, 4096, 2048), (2, 12, 16, 8))
    classes, clusters, stages = sizes.of((21, 12, 3), (4, 3, 2))
    body = seeded(lambda: nn.Sequential(nn.Linear(features, width), nn.ReLU()), sizes)
    heads = seeded(lambda: nn.ModuleList(nn.Linear(width, classes) for _ in range(stages)), sizes)
    pooled, centres, owners = seeded(
        lambda: (
            torch.randn(images, proposals, features),
            torch.randint(0, classes, (images, clusters)),
            torch.randint(0, clusters, (stages, images, proposals)),
        ),
        sizes,
    )

    def loss() -> Tensor:
        x = body(pooled)
        total = torch.zeros((), device=sizes.device)
        for head, labels in zip(heads, owners, strict=True):
            scores = head(x).float()
            wanted = centres.gather(1, labels)
            losses = F.cross_entropy(scores.mT, wanted, reduction="none")
            if flawed:
                total = total + losses_of_unique(losses, labels)  # flaw: pseudo_labels_by_unique
            else:
                total = total + losses_of_sums(losses, labels, clusters)
        return total

    return Step(training(loss, fused_adamw(nn.ModuleList((body, heads))), sizes))


class WindowAttention(nn.Module):
    """Attention in windows of a volume, with a bias for each offset."""

    def __init__(self, width: int, heads: int, window: int, by_hand: bool) -> None:
        super().__init__()
        self.heads, self.by_hand = heads, by_hand
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 3, heads) * 0.02)
        grid = torch.cartesian_prod(*[torch.arange(window)] * 3)
        offsets = grid[:, None] - grid + window - 1
        base = 2 * window - 1
        index = (offsets[..., 0] * base + offsets[..., 1]) * base + offsets[..., 2]
        self.register_buffer("index", index)

    def bias(self) -> Tensor:
        found = self.table.index_select(0, self.index.flatten())
        return found.unflatten(0, self.index.shape).permute(2, 0, 1)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Windows (n, tokens, width); a mask (n, tokens, tokens) of those that may not meet."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if not self.by_hand:
            added = self.bias().to(q.dtype).expand(len(x), -1, -1, -1)
            if mask is not None:
                added = added + mask[:, None].to(q.dtype)
            y = F.scaled_dot_product_attention(q, k, v, added)
        else:
            # flaw in the next line: shifted_windows_by_hand
            scores = q * q.shape[-1] ** -0.5 @ k.mT
            scores = scores + self.bias()  # flaw: shifted_windows_by_hand
            if mask is not None:
                scores = scores + mask[:, None]  # flaw: shifted_windows_by_hand
            y = scores.softmax(-1).to(v.dtype) @ v  # flaw: shifted_windows_by_hand
        return self.out(y.transpose(1, 2).flatten(2))


class WindowBlock(nn.Module):
    """A block of a Swin transformer of volumes."""

    def __init__(self, width: int, heads: int, window: int, shift: int, by_hand: bool) -> None:
        super().__init__()
        self.window, self.shift, self.by_hand = window, shift, by_hand
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = WindowAttention(width, heads, window, by_hand)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.kept: Tensor | None = None

    def split(self, x: Tensor) -> Tensor:
        """The windows of one volume (side, side, side, channels)."""
        count, w = x.shape[0] // self.window, self.window
        x = x.reshape(count, w, count, w, count, w, -1).permute(0, 2, 4, 1, 3, 5, 6)
        return x.reshape(count**3, w**3, -1)

    def joined(self, windows: Tensor, side: int) -> Tensor:
        count, w = side // self.window, self.window
        x = windows.reshape(count, count, count, w, w, w, -1).permute(0, 3, 1, 4, 2, 5, 6)
        return x.reshape(side, side, side, -1)

    def made_mask(self, x: Tensor) -> Tensor:
        """What keeps apart the parts that the shift brought together."""
        side, w, s = x.shape[0], self.window, self.shift
        # flaw in the next line: shifted_windows_by_hand
        regions = x.new_zeros(side, side, side, 1, dtype=torch.float)
        parts = (slice(-w), slice(-w, -s), slice(-s, None))
        number = 0
        for a in parts:
            for b in parts:
                for c in parts:
                    regions[a, b, c] = number  # flaw: shifted_windows_by_hand
                    number += 1
        flat = self.split(regions)[..., 0]  # flaw: shifted_windows_by_hand
        apart = flat[:, None] != flat[:, :, None]  # flaw: shifted_windows_by_hand
        # flaw in the next line: shifted_windows_by_hand
        return torch.zeros_like(apart, dtype=torch.float).masked_fill(apart, -100.0)

    def mask(self, x: Tensor) -> Tensor | None:
        if not self.shift:
            return None
        if self.by_hand:
            return self.made_mask(x)  # flaw: shifted_windows_by_hand
        if self.kept is None:
            self.kept = self.made_mask(x)
        return self.kept

    def forward(self, x: Tensor) -> Tensor:
        shift = (-self.shift,) * 3
        mask = self.mask(x)  # flaw: shifted_windows_by_hand
        y = self.split(self.norm_1(x).roll(shift, (0, 1, 2)))
        y = self.attention(y, mask)  # flaw: shifted_windows_by_hand
        x = x + self.joined(y, len(x)).roll((self.shift,) * 3, (0, 1, 2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def shifted_windows_by_hand(flawed: bool, sizes: Sizes) -> Step:
    side, window, width, heads, pairs = sizes.of((48, 6, 96, 6, 2), (4, 2, 8, 2, 1))
    into = seeded(lambda: nn.Linear(8, width), sizes)
    shifts = [0, window // 2] * pairs
    blocks = seeded(
        lambda: nn.Sequential(*(WindowBlock(width, heads, window, s, flawed) for s in shifts)),
        sizes,
    )
    head = seeded(lambda: nn.Linear(width, 4), sizes)
    volume, labels = seeded(
        lambda: (torch.randn(side, side, side, 8), torch.randint(0, 4, (side**3,))), sizes
    )

    def loss() -> Tensor:
        x = blocks(into(volume))
        return F.cross_entropy(head(x).flatten(0, 2).float(), labels)

    return Step(training(loss, fused_adamw(nn.ModuleList((into, blocks, head))), sizes))
