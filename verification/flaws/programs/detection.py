"""Flaws of convolutional networks that find, segment or track things."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, autocast, fused_adamw, seeded, training
from .vision import UNet, images_of

__all__ = [
    "autocast_inside_loop",
    "backward_per_loss",
    "confusion_matrix",
    "conv_bn_not_folded",
    "nms_per_class",
    "targets_one_by_one",
]


class Conv(nn.Module):
    """Convolution, batch norm and SiLU, as YOLO's networks have them."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.bn: nn.Module = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)  # flaw: conv_bn_not_folded
        x = self.bn(x)  # flaw: conv_bn_not_folded
        return F.silu(x, inplace=True)

    def fuse(self) -> None:
        """Fold the norm into the convolution."""
        self.conv = nn.utils.fusion.fuse_conv_bn_eval(self.conv, self.bn)
        self.bn = nn.Identity()


class Bottleneck(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.cv1, self.cv2 = Conv(channels, channels // 2), Conv(channels // 2, channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.cv2(self.cv1(x))


class Detector(nn.Module):
    """A darknet of one level, with a class and a box for each cell of its last features."""

    def __init__(self, width: int, depths: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.stride = 2 ** (len(depths) + 1)
        self.stages = nn.Sequential(Conv(3, width, 3, 2))
        for stage, depth in enumerate(depths):
            channels = width << (stage + 1)
            self.stages.append(Conv(channels // 2, channels, 3, 2))
            self.stages.extend(Bottleneck(channels) for _ in range(depth))
        self.scores = nn.Conv2d(channels, classes, 1)
        self.boxes = nn.Conv2d(channels, 4, 1)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of all classes and the four distances, for each cell in a row."""
        x = self.stages(images)
        scores, boxes = self.scores(x), self.boxes(x)
        return scores.flatten(2).transpose(1, 2), boxes.flatten(2).transpose(1, 2)


def detector_of(sizes: Sizes, batch: int, side: int, classes: int = 80) -> tuple[Detector, Tensor]:
    """A detector and images, with their channels last."""
    width, depths = sizes.of((32, (1, 2, 8, 8)), (8, (1, 1)))
    model = seeded(lambda: Detector(width, depths, sizes.of(classes, 4)), sizes)
    images = images_of(sizes, batch, side).to(memory_format=torch.channels_last)
    return model.to(memory_format=torch.channels_last), images


def conv_bn_not_folded(flawed: bool, sizes: Sizes) -> Step:
    model, images = detector_of(sizes, 32, 640)
    model = model.eval()
    if not flawed:
        for module in model.modules():
            if isinstance(module, Conv):
                module.fuse()
    model = model.to(memory_format=torch.channels_last).bfloat16()
    images = images.bfloat16()

    @torch.inference_mode()
    def step() -> Tensor:
        scores, boxes = model(images)
        return scores.float().sigmoid().mean() + boxes.float().square().mean()

    return Step(step)


Target = dict[str, Tensor]


def annotations(count: int, side: int, classes: int) -> list[Target]:
    """What a data set of COCO's format returns for each image."""
    chance = torch.Generator().manual_seed(7)
    targets = []
    for image in range(count):
        things = 3 + image % 9
        corner = torch.rand(things, 2, generator=chance) * side * 0.7
        extent = torch.rand(things, 2, generator=chance) * side * 0.3
        boxes = torch.cat((corner, corner + extent), 1)
        labels = torch.randint(0, classes, (things,), generator=chance)
        targets.append(
            {
                "boxes": boxes,
                "labels": labels,
                "image_id": torch.full((things,), image),
                "area": extent.prod(1),
                "iscrowd": torch.zeros(things, dtype=torch.long),
            }
        )
    return targets


def targets_to(device: torch.device, target: Target) -> Target:
    return {k: v.to(device) for k, v in target.items()}  # flaw: targets_one_by_one


def detection_loss(outputs: tuple[Tensor, Tensor], target: Target, stride: int, row: int) -> Tensor:
    """Class and size of each thing, at the cell of its centre."""
    scores, boxes = outputs
    centre = ((target["boxes"][:, :2] + target["boxes"][:, 2:]) / 2 / stride).long()
    centre = centre.clamp(max=row - 1)
    cell = target["image_id"] * scores.shape[1] + centre[:, 1] * row + centre[:, 0]
    weight = (1 - target["iscrowd"]) * target["area"].clamp(1, 2)
    found = scores.flatten(0, 1).index_select(0, cell)
    sizes = boxes.flatten(0, 1).index_select(0, cell)
    classes = F.cross_entropy(found, target["labels"], reduction="none")
    distances = F.smooth_l1_loss(sizes, target["boxes"] / 100, reduction="none").mean(1)
    return ((classes + distances) * weight).mean()


def targets_one_by_one(flawed: bool, sizes: Sizes) -> Step:
    model, images = detector_of(sizes, 32, 512)
    optimizer = fused_adamw(model)
    side, classes = images.shape[2], model.scores.out_channels
    targets = annotations(len(images), side, classes)
    collated = {key: torch.cat([target[key] for target in targets]) for key in targets[0]}
    if not sizes.is_tiny:
        collated = {key: value.pin_memory() for key, value in collated.items()}
    device = images.device

    def step() -> Tensor:
        if flawed:
            moved = [targets_to(device, t) for t in targets]  # flaw: targets_one_by_one
            target = {key: torch.cat([each[key] for each in moved]) for key in moved[0]}
        else:
            target = {k: v.to(device, non_blocking=True) for k, v in collated.items()}
        optimizer.zero_grad()
        with autocast(sizes):
            outputs = model(images)
            loss = detection_loss(outputs, target, model.stride, side // model.stride)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Step(step)


def box_iou(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union of each box of one set with each of another."""
    top_left = torch.maximum(a[..., :, None, :2], b[..., None, :, :2])  # flaw: nms_per_class
    bottom_right = torch.minimum(a[..., :, None, 2:], b[..., None, :, 2:])  # flaw: nms_per_class
    shared = (bottom_right - top_left).clamp(min=0).prod(-1)  # flaw: nms_per_class
    area_a = (a[..., 2:] - a[..., :2]).prod(-1)  # flaw: nms_per_class
    area_b = (b[..., 2:] - b[..., :2]).prod(-1)  # flaw: nms_per_class
    either = area_a[..., :, None] + area_b[..., None, :] - shared  # flaw: nms_per_class
    return shared / (either + 1e-6)  # flaw: nms_per_class


def fast_nms(scores: Tensor, boxes: Tensor, top: int, threshold: float = 0.5) -> Tensor:
    """YOLACT's suppression: the best scores, and zero where a better box covers this one."""
    scores, order = scores.topk(top, -1)  # flaw: nms_per_class
    shape = (*order.shape, 4)
    boxes = boxes.expand(*order.shape[:-1], *boxes.shape[-2:])
    chosen = boxes.gather(-2, order[..., None].expand(shape))  # flaw: nms_per_class
    covered = box_iou(chosen, chosen).triu(1).amax(-2)  # flaw: nms_per_class
    return torch.where(covered <= threshold, scores, 0)  # flaw: nms_per_class


def nms_per_class(flawed: bool, sizes: Sizes) -> Step:
    model, images = detector_of(sizes, 32, 640)
    model, images = model.eval().bfloat16(), images.bfloat16()
    top = sizes.of(150, 8)

    @torch.inference_mode()
    def step() -> Tensor:
        scores, distances = model(images)
        scores = scores.float().sigmoid().transpose(1, 2)
        low, high = distances.float().chunk(2, -1)
        boxes = torch.cat((low - 1, high + 1), -1)
        if flawed:
            kept = []
            for c in range(scores.shape[1]):
                kept.append(fast_nms(scores[:, c], boxes, top))  # flaw: nms_per_class
            return torch.stack(kept, 1).sum(-1).mean()
        return fast_nms(scores, boxes[:, None], top).sum(-1).mean()

    return Step(step)


class ConfusionMatrix:
    """Counts of predicted and true classes, over all pixels."""

    def __init__(self, num_classes: int, device: torch.device) -> None:
        self.num_classes = num_classes
        self.mat = torch.zeros((num_classes, num_classes), dtype=torch.int64, device=device)

    def update(self, a: Tensor, b: Tensor) -> None:
        n = self.num_classes
        k = (a >= 0) & (a < n)
        inds = n * a[k].to(torch.int64) + b[k]  # flaw: confusion_matrix
        self.mat += torch.bincount(inds, minlength=n**2).reshape(n, n)  # flaw: confusion_matrix


class Histogram(ConfusionMatrix):
    """The same by a histogram of the pairs."""

    def update(self, a: Tensor, b: Tensor) -> None:
        n = self.num_classes
        inds = torch.where((a >= 0) & (a < n), n * a + b, -1).float()
        self.mat += torch.histc(inds, n**2, min=0, max=n**2).reshape(n, n).long()


def confusion_matrix(flawed: bool, sizes: Sizes) -> Step:
    width, classes = sizes.of((64, 21), (8, 4))
    model = seeded(lambda: UNet(3, width, classes), sizes).to(memory_format=torch.channels_last)
    images = images_of(sizes, 8, 256).to(memory_format=torch.channels_last)
    target = (torch.arange(images[:, 0].numel(), device=images.device) // 50) % (classes + 1)
    target = target.where(target < classes, 255).view_as(images[:, 0])
    kind = ConfusionMatrix if flawed else Histogram
    confmat, optimizer = kind(classes, images.device), fused_adamw(model)

    def step() -> Tensor:
        optimizer.zero_grad()
        with autocast(sizes):
            output = model(images)
            loss = F.cross_entropy(output, target, ignore_index=255)
        loss.backward()
        optimizer.step()
        confmat.update(target.flatten(), output.detach().argmax(1).flatten())
        return loss.detach()

    return Step(step)


class Heads(nn.Module):
    """A network for segmentation and for depth, which share all but the last layers."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.trunk = UNet(3, width, width)
        self.segmentation = nn.Sequential(Conv(width, width, 3), nn.Conv2d(width, classes, 1))
        self.depth = nn.Sequential(Conv(width, width, 3), nn.Conv2d(width, 1, 1))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        shared = F.silu(self.trunk(images))  # flaw: backward_per_loss
        return self.segmentation(shared), self.depth(shared)


def backward_per_loss(flawed: bool, sizes: Sizes) -> Step:
    width, classes = sizes.of((64, 21), (8, 4))
    model = seeded(lambda: Heads(width, classes), sizes).to(memory_format=torch.channels_last)
    images = images_of(sizes, 16, 256).to(memory_format=torch.channels_last)
    labels = torch.arange(images[:, 0].numel(), device=images.device).view_as(images[:, 0])
    labels = labels // 30 % classes
    depths, optimizer = images.mean(1, keepdim=True), fused_adamw(model)

    def step() -> Tensor:
        optimizer.zero_grad()
        with autocast(sizes):
            segmentation, depth = model(images)
            losses = {
                "segmentation": F.cross_entropy(segmentation, labels),
                "depth": F.l1_loss(depth, depths),
            }
        total = torch.stack(list(losses.values())).sum()
        if flawed:
            for loss in losses.values():
                loss.backward(retain_graph=True)  # flaw: backward_per_loss
        else:
            total.backward()
        optimizer.step()
        return total.detach()

    return Step(step)


class Update(nn.Module):
    """A recurrent step of optical flow: motion features, a convolutional GRU, and a head."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.motion = nn.Sequential(
            nn.Conv2d(features + 2, hidden, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(hidden, hidden, 3, padding=1),
            nn.ReLU(),
        )
        inputs = 2 * hidden + features
        self.z = nn.Conv2d(inputs, hidden, (1, 5), padding=(0, 2))
        self.r = nn.Conv2d(inputs, hidden, (1, 5), padding=(0, 2))
        self.q = nn.Conv2d(inputs, hidden, (5, 1), padding=(2, 0))
        self.flow = nn.Sequential(
            nn.Conv2d(hidden, 2 * hidden, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * hidden, 2, 3, padding=1),
        )

    def forward(self, net: Tensor, context: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.cat((context, self.motion(seen)), 1)  # flaw: autocast_inside_loop
        both = torch.cat((net, x), 1)
        z, r = self.z(both).sigmoid(), self.r(both).sigmoid()  # flaw: autocast_inside_loop
        q = self.q(torch.cat((r * net, x), 1)).tanh()  # flaw: autocast_inside_loop
        net = (1 - z) * net + z * q
        return net, self.flow(net)  # flaw: autocast_inside_loop


class Flow(nn.Module):
    """Optical flow that is refined step by step, after RAFT."""

    def __init__(self, features: int, hidden: int, iters: int, mixed: Callable) -> None:
        super().__init__()
        self.iters, self.mixed = iters, mixed
        self.encoder = nn.Sequential(
            Conv(3, features // 2, 7, 4), Conv(features // 2, features, 3, 2), Bottleneck(features)
        )
        self.start = nn.Conv2d(features, hidden, 1)
        self.update = Update(features, hidden)

    def forward(self, first: Tensor, second: Tensor) -> list[Tensor]:
        with self.mixed():
            first, second = self.encoder(first), self.encoder(second)
            net = self.start(first).tanh()
        rows, columns = first.shape[2:]
        grid = F.affine_grid(
            torch.eye(2, 3, device=first.device).expand(len(first), 2, 3),
            (len(first), 1, rows, columns),
            align_corners=True,
        )
        flow = torch.zeros_like(grid).permute(0, 3, 1, 2)
        flows = []
        for _ in range(self.iters):
            flow = flow.detach()
            at = grid + flow.permute(0, 2, 3, 1)
            warped = F.grid_sample(second.float(), at, align_corners=True)
            seen = torch.cat((first.float() * warped, flow), 1)
            with self.mixed():  # flaw: autocast_inside_loop
                net, delta = self.update(net, first, seen)  # flaw: autocast_inside_loop
            flow = flow + delta.float()
            flows.append(flow)
        return flows


def autocast_inside_loop(flawed: bool, sizes: Sizes) -> Step:
    features, hidden, iters, batch = sizes.of((256, 192, 12, 6), (8, 4, 2, 2))
    model = seeded(lambda: Flow(features, hidden, iters, lambda: autocast(sizes)), sizes)
    frames = images_of(sizes, 2 * batch, 384)
    first, second = frames.chunk(2)
    target = first[:, :2, ::8, ::8] / 10

    def loss() -> Tensor:
        flows = model(first, second)
        return sum(
            0.8 ** (len(flows) - 1 - at) * (f - target).abs().mean() for at, f in enumerate(flows)
        )

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=not flawed))
