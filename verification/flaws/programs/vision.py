"""Models of images: a ResNet-50, a ViT-B and a small U-Net."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .program import Sizes, seeded

__all__ = ["ResNet", "UNet", "ViT", "images_of", "labels_of"]


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions."""

    def __init__(self, inner: int, channels: int, stride: int, has_bias: bool) -> None:
        super().__init__()
        self.conv_1 = nn.Conv2d(channels, inner, 1, bias=has_bias)
        self.conv_2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=has_bias)
        self.conv_3 = nn.Conv2d(inner, 4 * inner, 1, bias=has_bias)
        self.norm_1, self.norm_2 = nn.BatchNorm2d(inner), nn.BatchNorm2d(inner)
        self.norm_3 = nn.BatchNorm2d(4 * inner)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or channels != 4 * inner:
            conv = nn.Conv2d(channels, 4 * inner, 1, stride, bias=has_bias)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(4 * inner))

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv_1(x)  # flaw: channels_first, bias_before_norm
        y = F.relu(self.norm_1(y), inplace=True)  # flaw: channels_first
        y = self.conv_2(y)  # flaw: channels_first, bias_before_norm
        y = F.relu(self.norm_2(y), inplace=True)  # flaw: channels_first
        y = self.conv_3(y)  # flaw: channels_first, bias_before_norm
        y = self.norm_3(y)  # flaw: channels_first
        shortcut = self.shortcut(x)  # flaw: channels_first, bias_before_norm
        return F.relu(y + shortcut, inplace=True)


class ResNet(nn.Module):
    """ResNet-50, or one of fewer blocks."""

    def __init__(
        self, blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 64, has_bias: bool = False
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, 2, 3, bias=has_bias)
        self.norm = nn.BatchNorm2d(width)
        self.stages = nn.Sequential()
        channels = width
        for stage, count in enumerate(blocks):
            for block in range(count):
                stride = 2 if stage and not block else 1
                self.stages.append(Bottleneck(width << stage, channels, stride, has_bias))
                channels = 4 * (width << stage)
        self.head = nn.Linear(channels, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)  # flaw: channels_first, bias_before_norm
        x = F.max_pool2d(F.relu(self.norm(x), inplace=True), 3, 2, 1)
        return self.head(self.stages(x).mean((2, 3)))


class ViTBlock(nn.Module):
    """A block of a ViT with torch's own attention module."""

    def __init__(self, width: int, heads: int, need_weights: bool) -> None:
        super().__init__()
        self.need_weights = need_weights
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm_1(x)
        if self.need_weights:
            y, _ = self.attention(y, y, y, need_weights=True)  # flaw: need_weights
        else:
            y, _ = self.attention(y, y, y, need_weights=False)
        x = x + y
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class ViT(nn.Module):
    """ViT-B/16, or a smaller one."""

    def __init__(
        self, layers: int = 12, width: int = 768, heads: int = 12, need_weights: bool = False
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.blocks = nn.Sequential(*(ViTBlock(width, heads, need_weights) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


class UNet(nn.Module):
    """Two levels of convolutions and a skip, as of a segmentation or a small diffusion model."""

    def __init__(self, channels: int, width: int, results: int) -> None:
        super().__init__()
        self.into = nn.Conv2d(channels, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.middle = nn.ModuleList(nn.Conv2d(2 * width, 2 * width, 3, padding=1) for _ in range(6))
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.out = nn.Conv2d(2 * width, results, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.into(x))
        y = F.silu(self.down(x))
        for conv in self.middle:
            y = y + F.silu(conv(y))
        return self.out(torch.cat((x, self.up(y)), 1))


def images_of(sizes: Sizes, batch: int, side: int = 224) -> Tensor:
    """Random images."""
    count, side = sizes.of((batch, side), (2, 32))
    return seeded(lambda: torch.randn(count, 3, side, side), sizes)


def labels_of(images: Tensor) -> Tensor:
    """A class for each image."""
    return torch.arange(len(images), device=images.device) % 1000
