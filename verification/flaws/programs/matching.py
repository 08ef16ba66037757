"""Flaws of networks that match: boxes, queries, two views, frames, and pixels to classes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training

__all__ = [
    "anchors_matched_on_cpu",
    "costs_of_other_images",
    "disparities_in_loop",
    "layer_norm_2d_by_hand",
    "topk_per_pixel",
    "unfold_then_matmul",
    "warp_grid_from_cpu",
]


def boxes_at(centres: Tensor, sides: Tensor) -> Tensor:
    """Boxes (left, top, right, bottom) from their centres and sides."""
    return torch.cat((centres - sides / 2, centres + sides / 2), -1)


def overlaps(anchors: Tensor, boxes: Tensor) -> Tensor:
    """How much each anchor and each box share of their union."""
    low = torch.maximum(anchors[:, None, :2], boxes[:, :2])  # flaw: anchors_matched_on_cpu
    high = torch.minimum(anchors[:, None, 2:], boxes[:, 2:])  # flaw: anchors_matched_on_cpu
    shared = (high - low).clamp(min=0).prod(2)  # flaw: anchors_matched_on_cpu
    # flaw in the next line: anchors_matched_on_cpu
    areas = (anchors[:, 2:] - anchors[:, :2]).prod(1)[:, None]
    union = areas + (boxes[:, 2:] - boxes[:, :2]).prod(1) - shared  # flaw: anchors_matched_on_cpu
    return shared / union  # flaw: anchors_matched_on_cpu


class Detector(nn.Module):
    """A stack of strided convolutions, with a score and a box for each of nine anchors a place."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 4, 4), nn.GELU(), nn.Conv2d(width, width, 3, 2, 1)
        )
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.scores, self.boxes = nn.Conv2d(width, 9, 1), nn.Conv2d(width, 36, 1)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(images)
        for conv in self.convs:
            x = x + F.gelu(conv(x))
        scores = self.scores(x).permute(0, 2, 3, 1).flatten(1)
        return scores, self.boxes(x).permute(0, 2, 3, 1).reshape(len(x), -1, 4)


def anchors_over(side: int) -> Tensor:
    """Nine anchors at each eighth pixel."""
    places = torch.arange(4, side, 8).float()
    centres = torch.stack(torch.meshgrid(places, places, indexing="xy"), -1).reshape(-1, 1, 2)
    sizes = torch.tensor(
        [[w * s, h * s] for s in (16, 32, 64) for w, h in ((1, 1), (2, 1), (1, 2))]
    )
    return boxes_at(centres.expand(-1, 9, -1), sizes.expand(len(centres), -1, -1)).flatten(0, 1)


def anchors_matched_on_cpu(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, side, count = sizes.of((128, 8, 8, 512, 24), (4, 1, 2, 32, 3))
    model = seeded(lambda: Detector(width, depth), sizes).to(memory_format=torch.channels_last)
    images, places, spans = seeded(
        lambda: (
            torch.randn(batch, 3, side, side),
            torch.rand(batch, count, 2) * side,
            torch.rand(batch, count, 2) * side / 4 + 8,
        ),
        sizes,
    )
    images = images.to(memory_format=torch.channels_last)
    boxes = boxes_at(places, spans)
    anchors = seeded(lambda: anchors_over(side), sizes)
    known = anchors.cpu() if flawed else anchors

    def target_of(own: Tensor) -> tuple[Tensor, Tensor]:
        own = own.to(known.device)  # flaw: anchors_matched_on_cpu
        best = overlaps(known, own).max(1)  # flaw: anchors_matched_on_cpu
        found = best.values.to(sizes.device)  # flaw: anchors_matched_on_cpu
        return found, own[best.indices].to(sizes.device)  # flaw: anchors_matched_on_cpu

    def loss() -> Tensor:
        scores, offsets = model(images)
        pairs = [target_of(own) for own in boxes]
        share = torch.stack([pair[0] for pair in pairs])
        wanted = (torch.stack([pair[1] for pair in pairs]) - anchors) / 32
        is_object = (share > 0.4).float()
        off = F.smooth_l1_loss(offsets.float(), wanted, reduction="none").mean(2)
        off = (off * is_object).sum() / is_object.sum().clamp(min=1)
        return off + F.binary_cross_entropy_with_logits(scores.float(), is_object)

    return Step(training(loss, fused_adamw(model), sizes))


class Queries(nn.Module):
    """A DETR decoder: scores of classes and boxes of each query after each layer."""

    def __init__(self, width: int, heads: int, depth: int, queries: int, classes: int) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(queries, width))
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(width, heads, 4 * width, 0.0, batch_first=True)
            for _ in range(depth)
        )
        self.scores, self.boxes = nn.Linear(width, classes), nn.Linear(width, 4)

    def forward(self, memory: Tensor) -> list[tuple[Tensor, Tensor]]:
        x = self.queries.expand(len(memory), -1, -1)
        found = []
        for layer in self.layers:
            x = layer(x, memory)
            found.append((self.scores(x).float(), self.boxes(x).float().sigmoid()))
        return found


def greedy(costs: Tensor) -> Tensor:
    """The cheapest query left for each target in turn, from costs (images, queries, targets)."""
    left, chosen = costs.contiguous().clone(), []
    for target in range(left.shape[2]):
        best = left[:, :, target].argmin(1)
        left.scatter_(1, best[:, None, None].expand(-1, 1, left.shape[2]), float("inf"))
        chosen.append(best)
    return torch.stack(chosen, 1)


def costs_of_other_images(flawed: bool, sizes: Sizes) -> Step:
    width, heads, depth, queries, classes = sizes.of((256, 8, 6, 900, 91), (8, 2, 2, 6, 5))
    batch, places, count = sizes.of((16, 400, 20), (2, 4, 3))
    model = seeded(lambda: Queries(width, heads, depth, queries, classes), sizes)
    memory, boxes, labels = seeded(
        lambda: (
            torch.randn(batch, places, width),
            torch.rand(batch * count, 4),
            torch.randint(0, classes, (batch * count,)),
        ),
        sizes,
    )

    @torch.no_grad()
    def matched(scores: Tensor, found: Tensor) -> Tensor:
        costs = 5 * torch.cdist(found.flatten(0, 1), boxes, 1)
        costs = costs - scores.softmax(-1).flatten(0, 1)[:, labels]
        costs = costs.view(batch, queries, batch, count)
        if flawed:
            costs = costs.cpu()  # flaw: costs_of_other_images
        own = costs.diagonal(dim1=0, dim2=2).permute(2, 0, 1)
        return greedy(own.cpu()).to(sizes.device)  # flaw: costs_of_other_images

    def loss() -> Tensor:
        total = torch.zeros((), device=sizes.device)
        for scores, found in model(memory):
            chosen = matched(scores, found)[..., None]
            near = found.gather(1, chosen.expand(-1, -1, 4)).flatten(0, 1)
            said = scores.gather(1, chosen.expand(-1, -1, classes)).flatten(0, 1)
            total = total + F.l1_loss(near, boxes) + F.cross_entropy(said, labels)
        return total

    return Step(training(loss, fused_adamw(model), sizes))


def volume_by_shifts(left: Tensor, right: Tensor, disparities: int) -> Tensor:
    """The correlation of left with right at each disparity, disparity by disparity."""
    batch, _, height, width = left.shape
    volume = left.new_zeros(batch, disparities, height, width)
    for shift in range(disparities):
        # flaw in the next line: disparities_in_loop
        product = left[..., shift:] * right[..., : width - shift]
        volume[:, shift, :, shift:] = product.mean(1)  # flaw: disparities_in_loop
    return volume


def volume_by_product(left: Tensor, right: Tensor, disparities: int) -> Tensor:
    """The same from one product for each row."""
    width = left.shape[-1]
    products = left.permute(0, 2, 3, 1) @ right.permute(0, 2, 1, 3) / left.shape[1]
    places = torch.arange(width, device=left.device)[:, None]
    places = places - torch.arange(disparities, device=left.device)
    index = places.clamp(min=0).expand(*products.shape[:2], -1, -1)
    volume = products.gather(3, index) * (places >= 0).to(products.dtype)
    return volume.permute(0, 3, 1, 2)


class Stereo(nn.Module):
    """Features of both views, their correlation, and convolutions over it."""

    def __init__(self, width: int, depth: int, disparities: int, loops: bool) -> None:
        super().__init__()
        self.disparities = disparities
        self.volume = volume_by_shifts if loops else volume_by_product
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.views = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.after = nn.ModuleList(
            nn.Conv2d(disparities, disparities, 3, padding=1) for _ in range(depth)
        )

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        x = self.stem(torch.cat((left, right)))
        for conv in self.views:
            x = x + F.silu(conv(x))
        volume = self.volume(*x.chunk(2), self.disparities)  # flaw: disparities_in_loop
        volume = volume.contiguous(memory_format=torch.channels_last)
        for conv in self.after:
            volume = volume + F.silu(conv(volume))
        steps = torch.arange(self.disparities, device=x.device).view(-1, 1, 1)
        return (volume.float().softmax(1) * steps).sum(1)


def disparities_in_loop(flawed: bool, sizes: Sizes) -> Step:
    width, depth, disparities, batch = sizes.of((128, 6, 48, 4), (4, 1, 3, 2))
    height, across = sizes.of((320, 640), (16, 32))
    model = seeded(lambda: Stereo(width, depth, disparities, flawed), sizes)
    model = model.to(memory_format=torch.channels_last)
    left, right, truth = seeded(
        lambda: (
            torch.randn(batch, 3, height, across),
            torch.randn(batch, 3, height, across),
            torch.rand(batch, height // 4, across // 4) * disparities,
        ),
        sizes,
    )
    return Step(
        training(lambda: F.smooth_l1_loss(model(left, right), truth), fused_adamw(model), sizes)
    )


def warped(x: Tensor, flow: Tensor, made_on: torch.device) -> Tensor:
    """Features moved by a flow (batch, height, width, 2) of pixels."""
    height, width = x.shape[2:]
    rows = torch.arange(height, device=made_on)
    columns = torch.arange(width, device=made_on)
    # flaw in the next line: warp_grid_from_cpu
    grid_y, grid_x = torch.meshgrid(rows, columns, indexing="ij")
    grid = torch.stack((grid_x, grid_y), 2).to(x)  # flaw: warp_grid_from_cpu
    across, down = (grid + flow).unbind(3)
    places = torch.stack((across * (2 / (width - 1)), down * (2 / (height - 1))), 3) - 1
    return F.grid_sample(x, places, align_corners=True)


class Recurrence(nn.Module):
    """Video restoration: the features of the frame before, warped, join those of this frame."""

    def __init__(self, width: int, depth: int, on_cpu: bool) -> None:
        super().__init__()
        self.width, self.on_cpu = width, on_cpu
        self.flow = nn.Conv2d(6, 2, 7, padding=3)
        self.join = nn.Conv2d(3 + width, width, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.out = nn.Conv2d(width, 48, 3, padding=1)

    def forward(self, frames: Tensor) -> Tensor:
        made_on = torch.device("cpu") if self.on_cpu else frames.device
        x = frames.new_zeros(len(frames), self.width, *frames.shape[3:])
        before, made = frames[:, 0], []
        for frame in frames.unbind(1):
            flow = self.flow(torch.cat((before, frame), 1)).permute(0, 2, 3, 1)
            x = self.join(torch.cat((frame, warped(x, flow, made_on)), 1))
            for conv in self.convs:
                x = x + F.relu(conv(x))
            made.append(F.pixel_shuffle(self.out(x), 4))
            before = frame
        return torch.stack(made, 1)


def warp_grid_from_cpu(flawed: bool, sizes: Sizes) -> Step:
    width, depth, count, height, across = sizes.of((64, 15, 15, 180, 320), (4, 1, 3, 8, 12))
    model = seeded(lambda: Recurrence(width, depth, flawed), sizes).eval().bfloat16()
    model = model.to(memory_format=torch.channels_last)
    frames = seeded(lambda: torch.rand(1, count, 3, height, across), sizes).bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        return model(frames).float().square().mean()

    return Step(step)


class Segmenter(nn.Module):
    """Convolutions at half of the size, and scores of classes."""

    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 2, 2)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for conv in self.convs:
            x = x + F.relu(conv(x))
        return self.head(x)


def right_among(scores: Tensor, labels: Tensor, count: int) -> Tensor:
    """The share of pixels whose class is among the `count` best."""
    best = scores.topk(count, 1).indices  # flaw: topk_per_pixel
    return (best == labels[:, None]).any(1).float().mean()


def right_by_rank(scores: Tensor, labels: Tensor, count: int) -> Tensor:
    """The same: fewer than `count` classes score higher than the right one."""
    own = scores.gather(1, labels[:, None])
    return ((scores > own).sum(1) < count).float().mean()


def topk_per_pixel(flawed: bool, sizes: Sizes) -> Step:
    width, depth, classes, batch, side = sizes.of((128, 8, 150, 16, 320), (4, 1, 5, 2, 12))
    model = seeded(lambda: Segmenter(width, depth, classes), sizes)
    model = model.to(memory_format=torch.channels_last)
    images = seeded(lambda: torch.randn(batch, 3, side, side), sizes)
    images = images.to(memory_format=torch.channels_last)
    labels = seeded(lambda: torch.randint(0, classes, (batch, side // 2, side // 2)), sizes)
    accuracy = torch.zeros((), device=sizes.device)
    measure = right_among if flawed else right_by_rank

    def loss() -> Tensor:
        scores = model(images)
        accuracy.add_(measure(scores.detach(), labels, 3))  # flaw: topk_per_pixel
        return F.cross_entropy(scores, labels)

    return Step(training(loss, fused_adamw(model), sizes))


class HandNorm(nn.Module):
    """A norm over channels of (batch, channels, height, width), as ConvNeXt wrote it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)  # flaw: layer_norm_2d_by_hand
        var = (x - mean).pow(2).mean(1, keepdim=True)  # flaw: layer_norm_2d_by_hand
        x = (x - mean) / torch.sqrt(var + 1e-6)  # flaw: layer_norm_2d_by_hand
        # flaw in the next line: layer_norm_2d_by_hand
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class LayerNorm2d(nn.LayerNorm):
    """The same by layer_norm; with channels last the permutations copy nothing."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """A depthwise convolution, a norm, and two pointwise convolutions."""

    def __init__(self, width: int, by_hand: bool) -> None:
        super().__init__()
        self.spread = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = HandNorm(width) if by_hand else LayerNorm2d(width, 1e-6)
        self.up, self.down = nn.Conv2d(width, 4 * width, 1), nn.Conv2d(4 * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(self.spread(x)))))


def layer_norm_2d_by_hand(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, side = sizes.of((192, 9, 64, 112), (4, 1, 2, 16))
    model = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(3, width, 4, 4),
            *(ConvNeXtBlock(width, flawed) for _ in range(depth)),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width, 1000),
        ),
        sizes,
    )
    model = model.to(memory_format=torch.channels_last)
    images = seeded(lambda: torch.randn(batch, 3, side, side), sizes)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.arange(batch, device=sizes.device)
    return Step(training(lambda: F.cross_entropy(model(images), labels), fused_adamw(model), sizes))


class Kervolution(nn.Conv2d):
    """A convolution with a polynomial kernel: the cube of a product and a constant."""

    by_unfold = False

    def forward(self, x: Tensor) -> Tensor:
        if self.by_unfold:
            patches = F.unfold(x, self.kernel_size, padding=1)  # flaw: unfold_then_matmul
            y = self.weight.flatten(1) @ patches  # flaw: unfold_then_matmul
            y = y.view(len(x), -1, *x.shape[2:])
        else:
            y = F.conv2d(x, self.weight, padding=1)
        y = y + 1
        return y * y * y


def unfold_then_matmul(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, side = sizes.of((64, 6, 32, 64), (4, 1, 2, 8))
    layers: list[nn.Module] = []

    def make() -> nn.Sequential:
        for _ in range(depth):
            layers.extend((Kervolution(width, width, 3, bias=False), nn.BatchNorm2d(width)))
        return nn.Sequential(nn.Conv2d(3, width, 3, padding=1), *layers, nn.Conv2d(width, 10, 1))

    model = seeded(make, sizes)
    images = seeded(lambda: torch.randn(batch, 3, side, side), sizes)
    if flawed:
        for layer in model:
            layer.by_unfold = True
    else:
        model, images = (each.to(memory_format=torch.channels_last) for each in (model, images))
    labels = torch.arange(batch, device=sizes.device) % 10

    def loss() -> Tensor:
        return F.cross_entropy(model(images).mean((2, 3)).float(), labels)

    return Step(training(loss, fused_adamw(model), sizes))
