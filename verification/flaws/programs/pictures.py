"""Flaws of small networks of images: pools, padding, layouts, windows, masks of weights."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, Step, fused_adamw, seeded, training
from .vision import labels_of

__all__ = [
    "channel_shuffle_layout",
    "erasing_per_image",
    "pruning_mask_each_step",
    "same_padding_copies",
    "spp_large_pools",
    "ssim_window_2d",
]


def conv_norm(into: int, out: int, kernel: int, stride: int = 1, **options: int) -> nn.Sequential:
    """A convolution, its norm and an activation."""
    options.setdefault("padding", kernel // 2)
    conv = nn.Conv2d(into, out, kernel, stride, bias=False, **options)
    return nn.Sequential(conv, nn.BatchNorm2d(out), nn.SiLU())


class SPP(nn.Module):
    """Pools of three sizes side by side, as YOLOv3 and YOLOv5 had them."""

    def __init__(self, width: int, sizes: tuple[int, ...] = (5, 9, 13)) -> None:
        super().__init__()
        self.into = conv_norm(width, width // 2, 1)
        self.out = conv_norm(width // 2 * (len(sizes) + 1), width, 1)
        self.pools = nn.ModuleList(nn.MaxPool2d(size, 1, size // 2) for size in sizes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        pooled = [pool(x) for pool in self.pools]  # flaw: spp_large_pools
        return self.out(torch.cat((x, *pooled), 1))


class SPPF(SPP):
    """The same by pools of size five in a row."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        pooled = [x]
        for _ in self.pools:
            pooled.append(F.max_pool2d(pooled[-1], 5, 1, 2))
        return self.out(torch.cat(pooled, 1))


class Detector(nn.Module):
    """A backbone of strided convolutions, a pyramid of pools, and a head of anchors."""

    def __init__(self, width: int, pyramid: type[SPP], outputs: int) -> None:
        super().__init__()
        self.stem = conv_norm(3, width, 6, 2, padding=2)
        self.stages = nn.Sequential()
        for level in range(4):
            self.stages.append(conv_norm(width << level, width << level + 1, 3, 2))
            self.stages.append(conv_norm(width << level + 1, width << level + 1, 3))
        self.pyramid = pyramid(width << 4)
        self.head = nn.Conv2d(width << 4, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pyramid(self.stages(self.stem(x))))


def spp_large_pools(flawed: bool, sizes: Sizes) -> Step:
    width, batch, side = sizes.of((32, 32, 640), (4, 2, 64))
    model = seeded(lambda: Detector(width, SPP if flawed else SPPF, 255), sizes)
    model = model.to(memory_format=torch.channels_last)
    images = seeded(lambda: torch.randn(batch, 3, side, side), sizes)
    images = images.to(memory_format=torch.channels_last)

    def loss() -> Tensor:
        return model(images).float().square().mean()

    return Step(training(loss, fused_adamw(model), sizes))


class Conv2dSame(nn.Conv2d):
    """A convolution that pads its input by itself, as TensorFlow does."""

    def forward(self, x: Tensor) -> Tensor:
        (height, width), (down, across) = x.shape[-2:], self.stride
        size = self.kernel_size[0]
        rows = max((-(-height // down) - 1) * down + size - height, 0)
        columns = max((-(-width // across) - 1) * across + size - width, 0)
        x = F.pad(  # flaw: same_padding_copies
            x, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)
        )
        return F.conv2d(x, self.weight, None, self.stride, 0, 1, self.groups)


class MBConv(nn.Module):
    """EfficientNet's block: wider, a convolution in each channel, narrower."""

    def __init__(self, width: int, kernel: int, pads_itself: bool) -> None:
        super().__init__()
        inner = 6 * width
        self.expand = conv_norm(width, inner, 1)
        self.depthwise = conv_norm(inner, inner, kernel, groups=inner)
        if pads_itself:
            self.depthwise[0].__class__ = Conv2dSame
        self.project = nn.Sequential(nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.project(self.depthwise(self.expand(x)))


def same_padding_copies(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, side = sizes.of((40, 16, 96, 56), (4, 2, 2, 8))
    model = seeded(
        lambda: nn.Sequential(*(MBConv(width, 3 + at % 2 * 2, flawed) for at in range(depth))),
        sizes,
    )
    model = model.eval().bfloat16().to(memory_format=torch.channels_last)
    features = seeded(lambda: torch.randn(batch, width, side, side), sizes)
    features = features.bfloat16().to(memory_format=torch.channels_last)

    @torch.inference_mode()
    def step() -> Tensor:
        return model(features).float().abs().mean()

    return Step(step)


def shuffled(x: Tensor, groups: int) -> Tensor:
    """Exchange channels between groups."""
    batch, channels, height, width = x.shape
    x = x.view(batch, groups, channels // groups, height, width)
    x = x.transpose(1, 2).contiguous()  # flaw: channel_shuffle_layout
    return x.view(batch, channels, height, width)


def interleaved(x: Tensor, y: Tensor) -> Tensor:
    """Both, channel by channel, with channels last."""
    both = torch.stack((x.permute(0, 2, 3, 1), y.permute(0, 2, 3, 1)), -1)
    return both.flatten(3).permute(0, 3, 1, 2)


class ShuffleUnit(nn.Module):
    """ShuffleNetV2's unit: half of the channels pass, the others are convolved."""

    def __init__(self, width: int, is_flawed: bool) -> None:
        super().__init__()
        half, self.is_flawed = width // 2, is_flawed
        self.branch = nn.Sequential(
            nn.Conv2d(half, half, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(half, half, 3, 1, 1, groups=half),
            nn.Conv2d(half, half, 1),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        kept, changed = x.chunk(2, 1)
        changed = self.branch(changed)  # flaw: channel_shuffle_layout
        if self.is_flawed:
            return shuffled(torch.cat((kept, changed), 1), 2)  # flaw: channel_shuffle_layout
        return interleaved(kept, changed)


def channel_shuffle_layout(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, side = sizes.of((256, 12, 256, 28), (8, 2, 2, 8))
    model = seeded(
        lambda: nn.Sequential(*(ShuffleUnit(width, flawed) for _ in range(depth))), sizes
    )
    model = model.eval().bfloat16().to(memory_format=torch.channels_last)
    features = seeded(lambda: torch.randn(batch, width, side, side), sizes)
    features = features.bfloat16().to(memory_format=torch.channels_last)

    @torch.inference_mode()
    def step() -> Tensor:
        return model(features).float().abs().mean()

    return Step(step)


class Residual(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = conv_norm(width, width, 3), conv_norm(width, width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.first(x))


def small_resnet(width: int) -> nn.Sequential:
    """A residual network of three levels for small images."""
    layers: list[nn.Module] = [conv_norm(3, width, 3)]
    for level in range(3):
        layers += [Residual(width << level), conv_norm(width << level, width << level + 1, 3, 2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10))


def erase_one_by_one(images: Tensor, largest: int) -> Tensor:
    """Fill a rectangle of each image with noise."""
    images = images.clone()
    side = images.shape[-1]
    for at in range(len(images)):
        height, width = random.randint(1, largest), random.randint(1, largest)
        top, left = random.randint(0, side - height), random.randint(0, side - width)
        noise = torch.randn(3, height, width, device=images.device)  # flaw: erasing_per_image
        # flaw in the next line: erasing_per_image
        images[at, :, top : top + height, left : left + width] = noise
    return images


def erase_all(images: Tensor, largest: int) -> Tensor:
    """The same for all images at once."""
    batch, _, side, _ = images.shape
    sizes, starts = torch.rand(2, batch, 2, 1, device=images.device)
    lengths = (sizes * largest).ceil()
    begins = (starts * (side - lengths + 1)).floor()
    places = torch.arange(side, device=images.device)
    inside = (places >= begins) & (places < begins + lengths)
    mask = inside[:, 0, None, :, None] & inside[:, 1, None, None, :]
    return torch.where(mask, torch.randn_like(images), images)


def erasing_per_image(flawed: bool, sizes: Sizes) -> Step:
    model = seeded(lambda: small_resnet(sizes.of(64, 8)), sizes)
    model = model.to(memory_format=torch.channels_last)
    batch, side = sizes.of((512, 48), (2, 8))
    images = seeded(lambda: torch.randn(batch, 3, side, side), sizes)
    images = images.to(memory_format=torch.channels_last)
    labels, optimizer = labels_of(images) % 10, fused_adamw(model)
    erase = erase_one_by_one if flawed else erase_all

    def loss() -> Tensor:
        return F.cross_entropy(model(erase(images, sizes.of(16, 4))), labels)

    return Step(training(loss, optimizer, sizes))


def gaussian(size: int, sigma: float) -> Tensor:
    """A window of one dimension."""
    places = torch.arange(size) - size // 2
    window = torch.exp(-places.square() / (2 * sigma**2))
    return window / window.sum()


class SSIM(nn.Module):
    """Structural similarity of two images within a Gaussian window."""

    window: Tensor

    def __init__(self, channels: int, is_separable: bool, size: int = 11) -> None:
        super().__init__()
        line = gaussian(size, 1.5)
        self.is_separable = is_separable
        window = line if is_separable else torch.outer(line, line)
        self.register_buffer("window", window.expand(channels, 1, *window.shape).contiguous())

    def blurred(self, x: Tensor) -> Tensor:
        if not self.is_separable:
            return F.conv2d(x, self.window, groups=x.shape[1])  # flaw: ssim_window_2d
        x = F.conv2d(x, self.window[:, :, None], groups=x.shape[1])
        return F.conv2d(x, self.window[:, :, :, None], groups=x.shape[1])

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        mean_x, mean_y = self.blurred(x), self.blurred(y)
        var_x = self.blurred(x * x) - mean_x * mean_x
        var_y = self.blurred(y * y) - mean_y * mean_y
        covariance = self.blurred(x * y) - mean_x * mean_y
        likeness = (2 * mean_x * mean_y + 1e-4) / (mean_x * mean_x + mean_y * mean_y + 1e-4)
        return (likeness * (2 * covariance + 9e-4) / (var_x + var_y + 9e-4)).mean()


def denoiser_of(width: int, depth: int) -> nn.Sequential:
    """DnCNN without its norms."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU(True)]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(True)]
    return nn.Sequential(*layers, nn.Conv2d(width, 3, 3, padding=1))


def ssim_window_2d(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, side = sizes.of((64, 6, 16, 256), (4, 1, 2, 24))
    model = seeded(lambda: denoiser_of(width, depth), sizes)
    model = model.to(memory_format=torch.channels_last)
    similarity = seeded(lambda: SSIM(3, is_separable=not flawed), sizes)
    clean, noise = seeded(lambda: torch.rand(2, batch, 3, side, side), sizes)
    noisy = (clean + 0.2 * noise).to(memory_format=torch.channels_last)

    def loss() -> Tensor:
        restored = noisy - model(noisy)
        with torch.autocast(sizes.device, enabled=False):
            restored = restored.float().contiguous()
            return 1 - similarity(restored, clean) + F.l1_loss(restored, clean)

    return Step(training(loss, fused_adamw(model), sizes))


class TopKLinear(nn.Linear):
    """A linear layer that uses the largest of its weights only."""

    density, refreshed, calls = 0.2, 1, 0
    mask: Tensor

    def forward(self, x: Tensor) -> Tensor:
        if self.calls % self.refreshed == 0:
            sizes = self.weight.detach().abs()
            count = int(sizes.numel() * self.density)
            least = sizes.flatten().topk(count).values[-1]  # flaw: pruning_mask_each_step
            self.mask = sizes >= least
        self.calls += 1
        return F.linear(x, self.weight * self.mask, self.bias)


class Mixer(nn.Module):
    """A layer of MLP-Mixer: first over patches, then over channels."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(patches, width // 2), nn.GELU())
        self.back = nn.Linear(width // 2, patches)
        self.up, self.down = TopKLinear(width, 4 * width), TopKLinear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.back(self.across(self.norm_1(x).mT)).mT
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def pruning_mask_each_step(flawed: bool, sizes: Sizes) -> Step:
    width, depth, batch, patches = sizes.of((768, 8, 64, 196), (16, 2, 2, 9))
    model = seeded(
        lambda: nn.Sequential(
            nn.Linear(768, width), *(Mixer(patches, width) for _ in range(depth))
        ),
        sizes,
    )
    period = 1 if flawed else 16
    for module in model.modules():
        if isinstance(module, TopKLinear):
            module.refreshed = period
    x = seeded(lambda: torch.randn(batch, patches, 768), sizes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    step = training(lambda: model(x).float().square().mean(), optimizer, sizes)
    return Step(step, cycle=period)
