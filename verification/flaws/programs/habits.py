"""Flaws of training loops: what they measure, log, keep and update."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from . import gpt
from .detection import detector_of
from .gpt import Config
from .language import EncoderBlock
from .program import Sizes, Step, autocast, fused_adamw, seeded, training
from .vision import ViT, images_of, labels_of

__all__ = [
    "benchmark_with_changing_sizes",
    "critics_one_by_one",
    "densenet_checkpoints",
    "forward_again_for_metrics",
    "frozen_backbone_gradients",
    "gradient_histograms",
    "group_per_parameter",
    "timers_synchronize",
]


class Timers:
    """Seconds that each part of a step took, if they are on."""

    def __init__(self, is_on: bool, device: str) -> None:
        self.is_on, self.device = is_on, device
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        began = self.now()
        yield
        self.seconds[part] = self.seconds.get(part, 0) + self.now() - began

    def now(self) -> float:
        if self.is_on and self.device == "cuda":
            torch.cuda.synchronize()  # flaw: timers_synchronize
        return time.perf_counter()


class TimedBlock(EncoderBlock):
    """A block whose two halves are timed."""

    timers: Timers

    def forward(self, x: Tensor) -> Tensor:
        with self.timers.timed("attention"):  # flaw: timers_synchronize
            x = x + self.attention(self.norm_1(x))
        with self.timers.timed("mlp"):  # flaw: timers_synchronize
            return x + self.mlp(self.norm_2(x))


def timers_synchronize(flawed: bool, sizes: Sizes) -> Step:
    large = Config(layers=16, width=512, heads=8, mlp_width=2048, context=196, batch=32)
    config = gpt.TINY if sizes.is_tiny else large
    model = seeded(
        lambda: nn.Sequential(*(TimedBlock(config) for _ in range(config.layers))), sizes
    )
    model = model.bfloat16()
    timers = Timers(flawed, sizes.device)
    for block in model:
        block.timers = timers
    patches = seeded(lambda: torch.randn(config.batch, config.context, config.width), sizes)
    patches, optimizer = patches.bfloat16(), fused_adamw(model)

    def step() -> Tensor:
        optimizer.zero_grad()
        with timers.timed("forward"):  # flaw: timers_synchronize
            loss = model(patches).float().square().mean()
        with timers.timed("backward"):  # flaw: timers_synchronize
            loss.backward()
        with timers.timed("optimizer"):  # flaw: timers_synchronize
            optimizer.step()
        return loss.detach()

    return Step(step)


def histogram(values: Tensor) -> tuple[list[float], float, float]:
    """Counts of values between the smallest and the largest."""
    values = values.flatten().float()
    low = values.min().item()  # flaw: gradient_histograms
    high = values.max().item()  # flaw: gradient_histograms
    counts = values.histc(64, low, high)  # flaw: gradient_histograms
    return counts.cpu().tolist(), low, high  # flaw: gradient_histograms


def gradient_histograms(flawed: bool, sizes: Sizes) -> Step:
    layers, width, heads, batch = sizes.of((12, 384, 6, 64), (2, 16, 2, 2))
    model = seeded(lambda: ViT(layers, width, heads), sizes)
    images = images_of(sizes, batch)
    labels = labels_of(images)
    logged: dict[str, tuple[list[float], float, float]] = {}

    def watch() -> None:
        if flawed:
            for name, parameter in model.named_parameters():
                logged[name] = histogram(parameter.grad)  # flaw: gradient_histograms

    return Step(
        training(
            lambda: F.cross_entropy(model(images), labels),
            fused_adamw(model),
            sizes,
            after_backward=[watch],
        )
    )


def groups_of(model: nn.Module) -> list[dict]:
    """A group for each parameter: no decay for norms and biases."""
    return [
        {"params": [each], "weight_decay": 1e-2 if each.ndim > 1 else 0.0}
        for each in model.parameters()
    ]


def merged(groups: list[dict]) -> list[dict]:
    """The same groups, those of the same decay as one."""
    by_decay: dict[float, list[nn.Parameter]] = {}
    for group in groups:
        by_decay.setdefault(group["weight_decay"], []).extend(group["params"])
    return [{"params": some, "weight_decay": decay} for decay, some in by_decay.items()]


def group_per_parameter(flawed: bool, sizes: Sizes) -> Step:
    model, images = detector_of(sizes, 8, 416)
    groups = groups_of(model)
    optimizer = torch.optim.AdamW(groups if flawed else merged(groups), lr=1e-4, fused=True)

    def step() -> Tensor:
        optimizer.zero_grad()
        with autocast(sizes):
            scores, boxes = model(images)
            loss = F.softplus(scores.float()).mean() + boxes.float().square().mean()
        loss.backward()
        optimizer.step()  # flaw: group_per_parameter
        return loss.detach()

    return Step(step)


class Backbone(nn.Module):
    """Pairs of convolutions, each pair at half the resolution of the one before."""

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        before = 3
        for level in range(levels):
            after = width << level
            for stride, inputs in ((2, before), (1, after)):
                self.convs.append(nn.Conv2d(inputs, after, 3, stride, 1, bias=False))
                self.norms.append(nn.BatchNorm2d(after))
            before = after
        self.channels = before

    def forward(self, x: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = conv(x)  # flaw: frozen_backbone_gradients, forward_again_for_metrics
            # flaw in the next line: frozen_backbone_gradients, forward_again_for_metrics
            x = F.relu(norm(x), inplace=True)
        return x.mean((2, 3))


def backbone_of(sizes: Sizes, batch: int) -> tuple[Backbone, nn.Linear, Tensor, Tensor]:
    """A backbone, a head, images with their channels last, and labels."""
    width, levels = sizes.of((64, 4), (4, 2))
    backbone = seeded(lambda: Backbone(width, levels), sizes).to(memory_format=torch.channels_last)
    head = seeded(lambda: nn.Linear(backbone.channels, 10), sizes)
    images = images_of(sizes, batch).to(memory_format=torch.channels_last)
    return backbone, head, images, labels_of(images) % 10


def frozen_backbone_gradients(flawed: bool, sizes: Sizes) -> Step:
    backbone, head, images, labels = backbone_of(sizes, 128)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.01, momentum=0.9)
    if not flawed:
        backbone.requires_grad_(False)

    def step() -> Tensor:
        optimizer.zero_grad()
        with autocast(sizes):
            features = backbone(images)  # flaw: frozen_backbone_gradients
            loss = F.cross_entropy(head(features), labels)
        loss.backward()  # flaw: frozen_backbone_gradients
        optimizer.step()
        return loss.detach()

    return Step(step)


def forward_again_for_metrics(flawed: bool, sizes: Sizes) -> Step:
    backbone, head, images, labels = backbone_of(sizes, 128)
    model = nn.Sequential(backbone, head)
    optimizer = fused_adamw(model)
    right = torch.zeros((), device=images.device)

    def step() -> Tensor:
        if flawed:
            model.eval()
            with torch.no_grad(), autocast(sizes):
                outputs = model(images)  # flaw: forward_again_for_metrics
            right.add_((outputs.argmax(1) == labels).sum())
            model.train()
        optimizer.zero_grad()
        with autocast(sizes):
            outputs = model(images)
            loss = F.cross_entropy(outputs, labels)
        loss.backward()
        optimizer.step()
        if not flawed:
            right.add_((outputs.detach().argmax(1) == labels).sum())
        return loss.detach()

    return Step(step)


class Critic(nn.Module):
    """A value of an observation and an action."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        widths = [inputs, width, width, 1]
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))  # flaw: critics_one_by_one
        return self.layers[-1](x).squeeze(-1)  # flaw: critics_one_by_one


class Critics(nn.ModuleList):
    """Critics that run one by one."""

    def forward(self, x: Tensor) -> Tensor:
        values = [critic(x) for critic in self]  # flaw: critics_one_by_one
        return torch.stack(values)  # flaw: critics_one_by_one


class StackedCritics(nn.Module):
    """The same critics with the weights of a layer in one tensor."""

    def __init__(self, critics: Critics) -> None:
        super().__init__()
        layers = list(zip(*(critic.layers for critic in critics), strict=True))
        self.weights, self.biases = (
            nn.ParameterList(
                nn.Parameter(torch.stack([getattr(one, name).data for one in each]))
                for each in layers
            )
            for name in ("weight", "bias")
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x.expand(len(self.weights[0]), *x.shape)
        for at, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))
            x = F.relu(x) if at + 1 < len(self.weights) else x
        return x.squeeze(-1)


def critics_one_by_one(flawed: bool, sizes: Sizes) -> Step:
    observed, actions, width, batch, count = sizes.of((17, 6, 256, 256, 10), (5, 2, 8, 4, 3))
    make: Callable[[], nn.Module]
    make = lambda: Critics(Critic(observed + actions, width) for _ in range(count))  # noqa: E731
    critics, targets = (seeded(make, sizes) for _ in range(2))
    if not flawed:
        critics, targets = StackedCritics(critics), StackedCritics(targets)
    targets.requires_grad_(False)
    state, following, rewards = seeded(
        lambda: (
            torch.randn(batch, observed + actions),
            torch.randn(batch, observed + actions),
            torch.randn(batch),
        ),
        sizes,
    )
    optimizer = fused_adamw(critics)

    def step() -> Tensor:
        for _ in range(2):
            with torch.no_grad():
                wanted = rewards + 0.99 * targets(following).amin(0)
            loss = (critics(state) - wanted).square().mean(1).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            torch._foreach_lerp_(list(targets.parameters()), list(critics.parameters()), 0.005)
        return loss.detach()

    return Step(step)


class DenseLayer(nn.Module):
    """A layer of DenseNet, which sees all layers before it."""

    def __init__(self, inputs: int, growth: int, saves_memory: bool) -> None:
        super().__init__()
        self.saves_memory = saves_memory
        self.norm_1, self.norm_2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(4 * growth)
        self.conv_1 = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.conv_2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def bottleneck(self, *features: Tensor) -> Tensor:
        x = torch.cat(features, 1)  # flaw: densenet_checkpoints
        x = F.relu(self.norm_1(x))  # flaw: densenet_checkpoints
        return self.conv_1(x)  # flaw: densenet_checkpoints

    def forward(self, features: list[Tensor]) -> Tensor:
        if self.saves_memory:
            # flaw in the next line: densenet_checkpoints
            x = checkpoint(self.bottleneck, *features, use_reentrant=False)
        else:
            x = self.bottleneck(*features)
        return self.conv_2(F.relu(self.norm_2(x)))


class DenseNet(nn.Module):
    """A DenseNet for images."""

    def __init__(self, growth: int, depths: tuple[int, ...], saves_memory: bool) -> None:
        super().__init__()
        channels = 2 * growth
        self.stem = nn.Conv2d(3, channels, 7, 4, 3, bias=False)
        self.stages, self.transitions = nn.ModuleList(), nn.ModuleList()
        for depth in depths:
            self.stages.append(nn.ModuleList())
            for _ in range(depth):
                self.stages[-1].append(DenseLayer(channels, growth, saves_memory))
                channels += growth
            self.transitions.append(nn.Conv2d(channels, channels // 2, 1, bias=False))
            channels //= 2
        self.head = nn.Linear(channels, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage, transition in zip(self.stages, self.transitions, strict=True):
            features = [x]
            for layer in stage:
                features.append(layer(features))
            x = F.avg_pool2d(transition(torch.cat(features, 1)), 2)
        return self.head(x.mean((2, 3)))


def densenet_checkpoints(flawed: bool, sizes: Sizes) -> Step:
    growth, depths = sizes.of((32, (6, 12, 16)), (4, (2, 2)))
    model = seeded(lambda: DenseNet(growth, depths, flawed), sizes)
    model = model.to(memory_format=torch.channels_last)
    images = images_of(sizes, 64).to(memory_format=torch.channels_last)
    labels = labels_of(images)
    return Step(training(lambda: F.cross_entropy(model(images), labels), fused_adamw(model), sizes))


def benchmark_with_changing_sizes(flawed: bool, sizes: Sizes) -> Step:
    width, levels = sizes.of((64, 2), (4, 2))
    model = seeded(lambda: Backbone(width, levels), sizes).eval().bfloat16()
    model = model.to(memory_format=torch.channels_last)
    least = sizes.of(320, 16)
    images = images_of(sizes, 8, least + 8 * 32)
    images = images.bfloat16().to(memory_format=torch.channels_last)
    turn = 0

    @torch.inference_mode()
    def step() -> Tensor:
        nonlocal turn
        turn += 1
        height, width = least + 8 * (turn % 32), least + 8 * (turn // 32 % 32)
        some = images[:, :, :height, :width].contiguous(memory_format=torch.channels_last)
        return model(some).float().mean()

    return Step(step, lambda: torch.backends.cudnn.flags(enabled=True, benchmark=flawed))
