"""Detectors, classifiers, segmentation, surveys of the sky, and restoring of images."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from .program import Sizes, Step, compiled, fused_adamw, seeded, training

__all__ = [
    "adan_parameter_loop",
    "boundary_distances_on_cpu",
    "detector_norms_cast_to_float32",
    "galaxy_encoder_uncompiled",
    "restoring_one_by_one",
    "ssd_decoding_on_cpu",
    "yolov2_loader_in_main_process",
]


def channels_last(network: Any) -> Any:
    return network.to(memory_format=torch.channels_last)


def convolved(inside: int, outside: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    """A convolution, its norm, and a leaky rectifier."""
    return nn.Sequential(
        nn.Conv2d(inside, outside, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outside),
        nn.LeakyReLU(0.1, inplace=True),
    )


class Darknet(nn.Module):
    """The backbone and head of YOLOv2, with one box a cell."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [convolved(3, width), nn.MaxPool2d(2)]
        inside = width
        for triples in (0, 1, 1, 2, 2):
            outside = 2 * inside
            layers.append(convolved(inside, outside))
            for _ in range(triples):
                layers += [convolved(outside, inside, 1), convolved(inside, outside)]
            if outside < 32 * width:
                layers.append(nn.MaxPool2d(2))
            inside = outside
        self.layers = nn.Sequential(*layers)
        self.head = nn.Conv2d(inside, 5 + classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.layers(images)).permute(0, 2, 3, 1)


class Photographs(Dataset[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]):
    """Images that are decoded and augmented when they are asked for, with targets of cells."""

    def __init__(self, side: int, classes: int) -> None:
        self.side = side
        self.cells = side // 32
        self.classes = classes

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        chance = np.random.default_rng(index)
        image = self.augmented(chance)  # flaw: yolov2_loader_in_main_process
        is_object = np.zeros((self.cells, self.cells), np.float32)
        boxes = np.zeros((self.cells, self.cells, 4), np.float32)
        kinds = np.zeros((self.cells, self.cells), np.int64)
        for _ in range(8):
            row, column = chance.integers(0, self.cells, 2)
            is_object[row, column] = 1
            boxes[row, column] = chance.random(4)
            kinds[row, column] = chance.integers(self.classes)
        return image, is_object, boxes, kinds

    def augmented(self, chance: np.random.Generator) -> np.ndarray:
        """A crop of an image, mirrored and of another brightness and saturation."""
        whole = self.side + 32
        image = chance.integers(0, 256, (whole, whole, 3), dtype=np.uint8)
        top, left = chance.integers(0, 32, 2)
        part = image[top : top + self.side, left : left + self.side]
        if chance.random() < 0.5:
            part = part[:, ::-1]
        pixels = part.astype(np.float32) / 255.0
        grey = pixels.mean(-1, keepdims=True)
        pixels = grey + chance.uniform(0.5, 1.5) * (pixels - grey)
        pixels = np.clip(chance.uniform(0.5, 1.5) * pixels, 0.0, 1.0)
        return np.ascontiguousarray(((pixels - 0.45) / 0.225).transpose(2, 0, 1), np.float32)


def yolo_loss(out: Tensor, is_object: Tensor, boxes: Tensor, kinds: Tensor) -> Tensor:
    """The losses of objectness, of the boxes, and of the classes."""
    out = out.float()
    objectness = F.binary_cross_entropy_with_logits(out[..., 0], is_object)
    apart = (out[..., 1:5].sigmoid() - boxes).square().sum(-1)
    wrong = F.cross_entropy(out[..., 5:].flatten(0, 2), kinds.flatten(), reduction="none")
    many = is_object.sum()
    return objectness + ((apart + wrong.view_as(apart)) * is_object).sum() / many


def yolov2_loader_in_main_process(flawed: bool, sizes: Sizes) -> Step:
    """A detector learns from images that a loader prepares."""
    side, batch, width, classes = sizes.of((320, 16, 32, 20), (64, 2, 2, 3))
    workers = 0 if flawed else sizes.of(8, 1)  # flaw: yolov2_loader_in_main_process
    # flaw in the next line: yolov2_loader_in_main_process
    loader = DataLoader(
        Photographs(side, classes),
        batch,
        num_workers=workers,  # flaw: yolov2_loader_in_main_process
        pin_memory=sizes.device == "cuda",
    )
    model = channels_last(seeded(lambda: Darknet(width, classes), sizes))
    optimizer = fused_adamw(model)
    batches = iter(loader)

    def loss_of() -> Tensor:
        loaded = next(batches)  # flaw: yolov2_loader_in_main_process
        images, *targets = (part.to(sizes.device, non_blocking=True) for part in loaded)
        images = images.to(memory_format=torch.channels_last)
        return yolo_loss(model(images), *targets)

    return Step(training(loss_of, optimizer, sizes))


class WideNorm(nn.BatchNorm2d):
    """A batch norm that casts to float32 and back, as a hook for float16 patches it."""

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()  # flaw: detector_norms_cast_to_float32
        return super().forward(wide).to(x.dtype)  # flaw: detector_norms_cast_to_float32


Norm = type[nn.BatchNorm2d]


class Bottleneck(nn.Module):
    """A block of ResNet-50."""

    def __init__(self, inside: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        outside = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False),
            norm(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            norm(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outside, 1, bias=False),
            norm(outside),
        )
        self.aside = (
            nn.Identity()
            if inside == outside and stride == 1
            else nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), norm(outside))
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.aside(x), inplace=True)


class RetinaNet(nn.Module):
    """A residual network, a pyramid of three levels, and heads that all levels share."""

    def __init__(self, width: int, depths: Iterable[int], norm: Norm) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            norm(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        self.stages = nn.ModuleList()
        inside = width
        for level, depth in enumerate(depths):
            stage = nn.Sequential()
            for place in range(depth):
                stride = 2 if level and not place else 1
                stage.append(Bottleneck(inside, width << level, stride, norm))
                inside = 4 * width << level
            self.stages.append(stage)
        self.lateral = nn.ModuleList(nn.Conv2d(4 * width << i, 4 * width, 1) for i in (1, 2, 3))
        tower = [nn.Conv2d(4 * width, 4 * width, 3, padding=1), nn.ReLU(inplace=True)]
        self.head = nn.Sequential(*tower, nn.Conv2d(4 * width, 9 * 24, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages[0](self.stem(x))
        levels = []
        for stage, lateral in zip(self.stages[1:], self.lateral, strict=True):
            x = stage(x)
            levels.append(lateral(x))
        for finer, coarser in ((1, 2), (0, 1)):
            levels[finer] = levels[finer] + F.interpolate(levels[coarser], scale_factor=2.0)
        return torch.cat([self.head(level).flatten(2) for level in levels], -1)


def detector_norms_cast_to_float32(flawed: bool, sizes: Sizes) -> Step:
    """A detector is trained in mixed precision."""
    side, batch, width = sizes.of((512, 16, 64), (64, 2, 4))
    norm = WideNorm if flawed else nn.BatchNorm2d  # flaw: detector_norms_cast_to_float32
    depths = sizes.of((3, 4, 6, 3), (1, 1, 1, 1))
    model = channels_last(seeded(lambda: RetinaNet(width, depths, norm), sizes))
    images = seeded(lambda: torch.randn(batch, 3, side, side), sizes)
    images = images.to(memory_format=torch.channels_last)
    places = sum((side // stride) ** 2 for stride in (8, 16, 32))
    targets = seeded(lambda: (torch.rand(batch, 9 * 24, places) < 0.02).float(), sizes)
    optimizer = fused_adamw(model)
    return Step(
        training(
            lambda: F.binary_cross_entropy_with_logits(model(images).float(), targets),
            optimizer,
            sizes,
        )
    )


class GalaxyEncoder(nn.Module):
    """Of each tile of an image of the sky: whether there is a source, where, and how bright."""

    def __init__(self, bands: int, width: int, depth: int) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.Conv2d(bands, width, 5, padding=2), nn.SiLU())
        self.blocks = nn.ModuleList(self.block(width) for _ in range(depth))
        self.down = nn.Conv2d(width, 2 * width, 4, 4)
        self.tiles = nn.ModuleList(self.block(2 * width) for _ in range(depth))
        self.out = nn.Conv2d(2 * width, 7, 1)

    @staticmethod
    def block(width: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.SiLU()
        )

    def forward(self, images: Tensor) -> Tensor:
        x = self.enter(torch.asinh(images * 0.1))
        for block in self.blocks:
            x = x + block(x)
        x = self.down(x)
        for block in self.tiles:
            x = x + block(x)
        return self.out(x)


def source_loss(out: Tensor, is_source: Tensor, catalogue: Tensor) -> Tensor:
    """The negative log likelihood of a catalogue of sources."""
    out = out.float()
    presence = F.binary_cross_entropy_with_logits(out[:, 0], is_source)
    mean, spread = out[:, 1:4], F.softplus(out[:, 4:7]) + 0.01
    off = ((catalogue - mean) / spread).square() + 2 * spread.log()
    return presence + 0.5 * (off.sum(1) * is_source).mean()


def galaxy_encoder_uncompiled(flawed: bool, sizes: Sizes) -> Step:
    """An encoder of images of the sky is trained on simulated ones."""
    side, batch, width, depth = sizes.of((112, 64, 64, 5), (16, 2, 4, 1))
    model = channels_last(seeded(lambda: GalaxyEncoder(5, width, depth), sizes))
    images = seeded(lambda: 100 * torch.rand(batch, 5, side, side), sizes)
    images = images.to(memory_format=torch.channels_last)
    tiles = (batch, side // 4, side // 4)
    is_source = seeded(lambda: (torch.rand(tiles) < 0.1).float(), sizes)
    catalogue = seeded(lambda: torch.rand(batch, 3, *tiles[1:]), sizes)
    optimizer = fused_adamw(model)
    encode: Any = model if flawed else compiled(model, sizes)  # flaw: galaxy_encoder_uncompiled

    def loss_of() -> Tensor:
        out = encode(images)  # flaw: galaxy_encoder_uncompiled
        return source_loss(out, is_source, catalogue)

    return Step(training(loss_of, optimizer, sizes))


class Adan(torch.optim.Optimizer):
    """Adaptive Nesterov momentum, parameter by parameter or of all at once."""

    def __init__(self, parameters: Iterable[nn.Parameter], is_looping: bool) -> None:
        super().__init__(parameters, {"lr": 1e-4})
        self.betas = (0.98, 0.92, 0.99)
        self.is_looping = is_looping
        self.steps = 0

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        self.steps += 1
        for group in self.param_groups:
            used = [each for each in group["params"] if each.grad is not None]
            for each in used:
                if not self.state[each]:
                    names = ("mean", "change", "square")
                    self.state[each] = {name: torch.zeros_like(each) for name in names}
                    self.state[each]["before"] = each.grad.clone()
            if not self.is_looping:
                self.update_all(used, group["lr"])
                continue
            for each in used:  # flaw: adan_parameter_loop
                self.update(each, group["lr"])  # flaw: adan_parameter_loop

    def update(self, weight: Tensor, rate: float) -> None:
        mean_decay, change_decay, square_decay = self.betas
        state, gradient = self.state[weight], weight.grad
        assert gradient is not None
        change = gradient - state["before"]  # flaw: adan_parameter_loop
        state["mean"].lerp_(gradient, 1 - mean_decay)  # flaw: adan_parameter_loop
        state["change"].lerp_(change, 1 - change_decay)  # flaw: adan_parameter_loop
        ahead = gradient + change_decay * change  # flaw: adan_parameter_loop
        state["square"].mul_(square_decay)  # flaw: adan_parameter_loop
        state["square"].addcmul_(ahead, ahead, value=1 - square_decay)  # flaw: adan_parameter_loop
        root = (
            state["square"].div(1 - square_decay**self.steps).sqrt_()
        )  # flaw: adan_parameter_loop
        root.add_(1e-8)  # flaw: adan_parameter_loop
        first = rate / (1 - mean_decay**self.steps)
        second = rate * change_decay / (1 - change_decay**self.steps)
        weight.addcdiv_(state["mean"], root, value=-first)  # flaw: adan_parameter_loop
        weight.addcdiv_(state["change"], root, value=-second)  # flaw: adan_parameter_loop
        weight.div_(1 + rate * 0.02)  # flaw: adan_parameter_loop
        state["before"].copy_(gradient)  # flaw: adan_parameter_loop

    def update_all(self, weights: list[Tensor], rate: float) -> None:
        mean_decay, change_decay, square_decay = self.betas
        states = [self.state[weight] for weight in weights]
        gradients: list[Any] = [weight.grad for weight in weights]
        names = ("mean", "change", "square", "before")
        means, changes, squares, before = ([state[name] for state in states] for name in names)
        difference = torch._foreach_sub(gradients, before)
        torch._foreach_lerp_(means, gradients, 1 - mean_decay)
        torch._foreach_lerp_(changes, difference, 1 - change_decay)
        ahead = torch._foreach_add(gradients, difference, alpha=change_decay)
        torch._foreach_mul_(squares, square_decay)
        torch._foreach_addcmul_(squares, ahead, ahead, 1 - square_decay)
        roots = torch._foreach_div(squares, 1 - square_decay**self.steps)
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, 1e-8)
        first = rate / (1 - mean_decay**self.steps)
        second = rate * change_decay / (1 - change_decay**self.steps)
        torch._foreach_addcdiv_(weights, means, roots, -first)
        torch._foreach_addcdiv_(weights, changes, roots, -second)
        torch._foreach_div_(weights, 1 + rate * 0.02)
        torch._foreach_copy_(before, gradients)


class VisionTransformer(nn.Module):
    """A vision transformer that averages its patches."""

    def __init__(self, side: int, patch: int, width: int, depth: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, patch, patch)
        self.places = nn.Parameter(torch.zeros((side // patch) ** 2, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width,
                max(1, width // 64),
                4 * width,
                0.0,
                F.gelu,
                batch_first=True,
                norm_first=True,
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = self.enter(images).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x).mean(1))


def adan_parameter_loop(flawed: bool, sizes: Sizes) -> Step:
    """A vision transformer is trained with Adan."""
    side, batch, width, depth = sizes.of((224, 64, 384, 12), (32, 2, 32, 1))
    model = seeded(lambda: VisionTransformer(side, 16, width, depth), sizes)
    images = seeded(lambda: torch.randn(batch, 3, side, side), sizes)
    labels = seeded(lambda: torch.randint(1000, (batch,)), sizes)
    optimizer = Adan(model.parameters(), is_looping=flawed)
    return Step(training(lambda: F.cross_entropy(model(images), labels), optimizer, sizes))


class SmallUNet(nn.Module):
    """A network of two resolutions that segments volumes or cleans images."""

    def __init__(self, inside: int, outside: int, width: int, dimensions: int) -> None:
        super().__init__()
        is_flat = dimensions == 2
        self.convolution = nn.Conv2d if is_flat else nn.Conv3d
        self.widen = nn.ConvTranspose2d if is_flat else nn.ConvTranspose3d
        self.first = self.block(inside, width)
        self.down = self.convolution(width, 2 * width, 2, 2)
        self.middle = self.block(2 * width, 2 * width)
        self.up = self.widen(2 * width, width, 2, 2)
        self.last = self.block(2 * width, width)
        self.out = self.convolution(width, outside, 1)

    def block(self, inside: int, outside: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for _ in range(2):
            layers += [self.convolution(inside, outside, 3, padding=1)]
            layers += [nn.GroupNorm(4, outside), nn.SiLU(inplace=True)]
            inside = outside
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.first(x)
        coarse = self.middle(self.down(fine))
        return self.out(self.last(torch.cat([fine, self.up(coarse)], 1)))


@torch.no_grad()
def distances_inside(masks: Tensor) -> Tensor:
    """The exact distance of each voxel of a mask [batch, x, y, z] to the nearest one outside."""
    squares = torch.where(masks, 1e6, 0.0)
    for axis in (1, 2, 3):
        line = torch.arange(masks.shape[axis], device=masks.device, dtype=torch.float32)
        apart = (line[:, None] - line).square()
        moved = squares.movedim(axis, -1)
        # flaw in the next line: boundary_distances_on_cpu
        squares = (moved[..., None, :] + apart).amin(-1).movedim(-1, axis)
    return squares.clamp(max=1e4).sqrt()  # flaw: boundary_distances_on_cpu


def boundary_distances_on_cpu(flawed: bool, sizes: Sizes) -> Step:
    """A segmentation learns by a Dice loss that weighs voxels by their distance to the boundary."""
    batch, shape, width = sizes.of((2, (24, 48, 48), 32), (1, (8, 8, 8), 4))
    model = seeded(lambda: SmallUNet(1, 2, width, 3), sizes)
    volumes = seeded(lambda: torch.randn(batch, 1, *shape), sizes)
    coarse = seeded(lambda: torch.rand(batch, 1, *(side // 4 for side in shape)), sizes)
    labels = (F.interpolate(coarse, scale_factor=4.0) > 0.6)[:, 0]
    optimizer = fused_adamw(model)

    def weights_of(masks: Tensor) -> Tensor:
        if flawed:
            return distances_inside(masks.cpu()).to(sizes.device)  # flaw: boundary_distances_on_cpu
        return distances_inside(masks)

    def loss_of() -> Tensor:
        logits = model(volumes).float()
        chance = logits.softmax(1)[:, 1]
        masks = torch.cat([labels, chance.detach() > 0.5])
        in_labels, in_predicted = weights_of(masks).chunk(2)  # flaw: boundary_distances_on_cpu
        common = ((in_labels + in_predicted) * chance * labels).sum()
        all_of_both = (in_labels * labels + in_predicted * chance).sum()
        dice = 1 - (common + 1) / (all_of_both + 1)
        return F.cross_entropy(logits, labels.long()) + dice

    return Step(training(loss_of, optimizer, sizes))


def overlaps(boxes: Tensor) -> Tensor:
    """The shares of intersections in unions of all pairs of boxes [..., box, corner]."""
    one, other = boxes[..., :, None, :], boxes[..., None, :, :]
    low = torch.maximum(one[..., :2], other[..., :2])
    high = torch.minimum(one[..., 2:], other[..., 2:])
    common = (high - low).clamp(min=0).prod(-1)
    area = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(-1)
    return common / (area[..., :, None] + area[..., None, :] - common + 1e-6)


def detections(places: Tensor, scores: Tensor, priors: Tensor, many: int) -> Tensor:
    """The scores of the boxes of each class that no better box of it covers."""
    centres = places[..., :2] * priors[:, 2:] / 10 + priors[:, :2]  # flaw: ssd_decoding_on_cpu
    extent = torch.exp(places[..., 2:] / 5) * priors[:, 2:]  # flaw: ssd_decoding_on_cpu
    corners = torch.cat([centres - extent / 2, centres + extent / 2], -1)
    chances = scores.softmax(-1)[..., 1:].transpose(1, 2)  # flaw: ssd_decoding_on_cpu
    best, rows = chances.topk(many, -1)  # flaw: ssd_decoding_on_cpu
    kinds = rows.shape[1]
    rows = rows.flatten(1)[..., None].expand(-1, -1, 4)
    boxes = corners.gather(1, rows).unflatten(1, (kinds, many))  # flaw: ssd_decoding_on_cpu
    covered = overlaps(boxes).triu(1).amax(-2) > 0.45  # flaw: ssd_decoding_on_cpu
    return best.masked_fill(covered, 0.0)


class SingleShot(nn.Module):
    """Boxes and classes of the cells of two feature maps."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.classes = classes
        stages: list[nn.Module] = []
        inside = 3
        for scale, depth in ((1, 2), (2, 2), (4, 3)):
            for _ in range(depth):
                stages += [nn.Conv2d(inside, scale * width, 3, padding=1), nn.ReLU(inplace=True)]
                inside = scale * width
            stages.append(nn.MaxPool2d(2))
        self.early = nn.Sequential(*stages)
        self.late = nn.Sequential(
            nn.Conv2d(inside, 8 * width, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(8 * width, 8 * width, 3, 2, 1),
            nn.ReLU(inplace=True),
        )
        self.heads = nn.ModuleList(
            nn.Conv2d(each, 6 * (4 + classes), 3, padding=1) for each in (inside, 8 * width)
        )

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        early = self.early(images)
        maps = (early, self.late(early))
        out = [head(each).flatten(2) for head, each in zip(self.heads, maps, strict=True)]
        rows = torch.cat(
            [each.unflatten(1, (6, -1)).transpose(2, 3).flatten(1, 2) for each in out], 1
        )
        return rows[..., :4].float(), rows[..., 4:].float()


def ssd_decoding_on_cpu(flawed: bool, sizes: Sizes) -> Step:
    """Objects are detected in a batch of images."""
    side, batch, width, many = sizes.of((304, 16, 64, 100), (32, 2, 4, 5))
    model = channels_last(seeded(lambda: SingleShot(width, 21), sizes))
    model = model.to(torch.bfloat16).eval()
    images = seeded(lambda: torch.randn(batch, 3, side, side), sizes)
    images = images.to(torch.bfloat16, memory_format=torch.channels_last)
    cells = (side // 8) ** 2 + (side // 16) ** 2
    priors = seeded(lambda: 0.1 + 0.8 * torch.rand(6 * cells, 4), sizes)
    if flawed:
        priors = priors.cpu()  # flaw: ssd_decoding_on_cpu

    @torch.inference_mode()
    def detect() -> Tensor:
        places, scores = model(images)
        if flawed:
            places, scores = places.cpu(), scores.cpu()  # flaw: ssd_decoding_on_cpu
        return detections(places, scores, priors, many).mean()  # flaw: ssd_decoding_on_cpu

    return Step(detect)


def restoring_one_by_one(flawed: bool, sizes: Sizes) -> Step:
    """Small images are restored in some steps of shifting their residuals."""
    side, batch, width, steps = sizes.of((128, 16, 64, 4), (16, 3, 4, 2))
    model = channels_last(seeded(lambda: SmallUNet(6, 3, width, 2), sizes))
    model = model.to(torch.bfloat16).eval()
    poor, noise = (
        each.to(torch.bfloat16, memory_format=torch.channels_last)
        for each in seeded(lambda: torch.randn(2, batch, 3, side, side), sizes)
    )

    def restored(images: Tensor, noise: Tensor) -> Tensor:
        x = images + 2.0 * noise
        for left in range(steps, 0, -1):
            clean = model(torch.cat([x, images], 1))  # flaw: restoring_one_by_one
            x = x + (clean - x) / left  # flaw: restoring_one_by_one
        return x

    @torch.inference_mode()
    def restore() -> Tensor:
        if not flawed:
            return restored(poor, noise).float().square().mean()
        results = []
        for place in range(batch):  # flaw: restoring_one_by_one
            one = slice(place, place + 1)  # flaw: restoring_one_by_one
            results.append(restored(poor[one], noise[one]))  # flaw: restoring_one_by_one
        return torch.cat(results).float().square().mean()

    return Step(restore)
