"""Flaws of the CPU: data, copies to the GPU, and what runs between the steps."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from . import gpt
from .gpt import Block, Config
from .products import DLRM, clicks_of
from .program import Sizes, Step, autocast, fused_adamw, seeded, training
from .vision import ResNet, UNet

__all__ = [
    "augmentation_on_cpu",
    "empty_cache_each_step",
    "gc_each_step",
    "loader_without_workers",
    "masks_from_host",
    "noise_on_cpu",
    "pageable_copies",
    "positions_rebuilt",
    "tensor_from_lists",
]


def noise_on_cpu(flawed: bool, sizes: Sizes) -> Step:
    width, batch, side = sizes.of((128, 32, 64), (8, 2, 16))
    model = seeded(lambda: UNet(4, width, 4), sizes).to(memory_format=torch.channels_last)
    latents = seeded(lambda: torch.randn(batch, 4, side, side), sizes)

    def loss() -> Tensor:
        if flawed:
            noise = torch.randn(latents.shape).to(latents.device)  # flaw: noise_on_cpu
        else:
            noise = torch.randn(latents.shape, device=latents.device)
        return F.mse_loss(model(latents * 0.8 + noise * 0.6), noise)

    return Step(training(loss, fused_adamw(model), sizes))


def tensor_from_lists(flawed: bool, sizes: Sizes) -> Step:
    features, rows, width, batch = sizes.of((64, 2000, 64, 2048), (4, 20, 8, 16))
    model = seeded(lambda: DLRM(features, rows, width, is_apart=False), sizes)
    categories, numbers, clicks = clicks_of(sizes, features, rows, batch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    lists = categories.tolist()
    stored = categories.cpu() if sizes.is_tiny else categories.cpu().pin_memory()

    def loss() -> Tensor:
        if flawed:
            batch = torch.tensor(lists, device=clicks.device)  # flaw: tensor_from_lists
        else:
            batch = stored.to(clicks.device, non_blocking=True)
        return F.binary_cross_entropy_with_logits(model(batch, numbers), clicks)

    return Step(training(loss, optimizer, sizes, is_mixed=False))


class Photographs(Dataset):
    """Images in memory, cropped, flipped and normalised one by one."""

    def __init__(self, side: int) -> None:
        self.side = side
        self.images = torch.randint(0, 256, (64, 3, side + side // 8, side + side // 8)).byte()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        top, left = torch.randint(0, self.side // 8, (2,)).tolist()
        image = self.images[at, :, top : top + self.side, left : left + self.side].float()
        image = image.flip(2) if at % 2 else image
        return (image / 255 - 0.45) / 0.225, at % 1000


class Forever(Sampler):
    """The images over and over."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from range(self.count)


def loader_without_workers(flawed: bool, sizes: Sizes) -> Step:
    blocks, width, batch, workers = sizes.of(((3, 4, 6, 3), 64, 64, 12), ((1, 1), 8, 2, 1))
    model = seeded(lambda: ResNet(blocks, width), sizes).to(memory_format=torch.channels_last)
    optimizer = fused_adamw(model)
    data = Photographs(sizes.of(224, 32))
    loader = DataLoader(
        data,
        batch_size=batch,
        sampler=Forever(len(data)),
        num_workers=0 if flawed else workers,
        pin_memory=not sizes.is_tiny,
    )
    batches = iter(loader)

    def step() -> Tensor:
        images, labels = next(batches)  # flaw: loader_without_workers
        images = images.to(sizes.device, non_blocking=True)
        labels = labels.to(sizes.device, non_blocking=True)
        optimizer.zero_grad()
        with autocast(sizes):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Step(step)


def pageable_copies(flawed: bool, sizes: Sizes) -> Step:
    batch, side, width = sizes.of((256, 224, 32), (2, 32, 8))
    model = seeded(lambda: ResNet((1, 1, 1, 1), width), sizes)
    model = model.to(memory_format=torch.channels_last)
    images = torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(1))
    if not flawed and not sizes.is_tiny:
        images = images.pin_memory()
    labels = seeded(lambda: torch.arange(batch) % 1000, sizes)

    def loss() -> Tensor:
        moved = images.to(sizes.device, non_blocking=not flawed)  # flaw: pageable_copies
        return F.cross_entropy(model(moved), labels)

    return Step(training(loss, fused_adamw(model), sizes))


def augment(images: Tensor) -> Tensor:
    """Flip some images at random, scale and normalise all."""
    images = images.float() / 255  # flaw: augmentation_on_cpu
    flips = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    images = torch.where(flips, images.flip(3), images)  # flaw: augmentation_on_cpu
    brightness = 0.8 + 0.4 * torch.rand(len(images), 1, 1, 1, device=images.device)
    return (images * brightness - 0.45) / 0.225  # flaw: augmentation_on_cpu


def augmentation_on_cpu(flawed: bool, sizes: Sizes) -> Step:
    blocks, width, batch, side = sizes.of(((3, 4, 6, 3), 64, 64, 224), ((1, 1), 8, 2, 32))
    model = seeded(lambda: ResNet(blocks, width), sizes).to(memory_format=torch.channels_last)
    images = torch.randint(0, 256, (batch, 3, side, side), dtype=torch.uint8)
    if not sizes.is_tiny:
        images = images.pin_memory()
    labels = seeded(lambda: torch.arange(batch) % 1000, sizes)

    def loss() -> Tensor:
        if flawed:
            augmented = augment(images)  # flaw: augmentation_on_cpu
            augmented = augmented.to(sizes.device)  # flaw: augmentation_on_cpu
        else:
            augmented = augment(images.to(sizes.device, non_blocking=True))
        return F.cross_entropy(model(augmented), labels)

    return Step(training(loss, fused_adamw(model), sizes))


def empty_cache_each_step(flawed: bool, sizes: Sizes) -> Step:
    model, tokens, targets = gpt.made(sizes)

    def clean() -> None:
        if flawed:
            torch.cuda.empty_cache()  # flaw: empty_cache_each_step

    return Step(
        training(
            lambda: gpt.loss_of(model, tokens, targets),
            fused_adamw(model),
            sizes,
            after_step=[clean],
        )
    )


def gc_each_step(flawed: bool, sizes: Sizes) -> Step:
    model, tokens, targets = gpt.made(sizes)

    def clean() -> None:
        if flawed:
            gc.collect()  # flaw: gc_each_step

    return Step(
        training(
            lambda: gpt.loss_of(model, tokens, targets),
            fused_adamw(model),
            sizes,
            after_step=[clean],
        )
    )


class MaskOfHost(Block):
    """A block that makes a mask for itself."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device="cpu").tril()
        mask = mask.to(q.device)  # flaw: masks_from_host
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class MaskOfDevice(Block):
    """A block with the mask in a buffer."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        mask = torch.ones(config.context, config.context, dtype=torch.bool).tril()
        self.register_buffer("mask", mask)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)


def masks_from_host(flawed: bool, sizes: Sizes) -> Step:
    return gpt.trained(sizes, MaskOfHost if flawed else MaskOfDevice, batch=sizes.of(4, 2))


class RotaryTables(nn.Module):
    """The tables of rotary embeddings, made anew in each call or once."""

    def __init__(self, channels: int, context: int, is_anew: bool) -> None:
        super().__init__()
        self.channels, self.context, self.is_anew = channels, context, is_anew
        cos, sin = self.make(torch.get_default_device())
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def make(self, device: torch.device) -> tuple[Tensor, Tensor]:
        powers = torch.arange(0, self.channels, 2, device=device)  # flaw: positions_rebuilt
        rates = 1.0 / 10000 ** (powers / self.channels)  # flaw: positions_rebuilt
        positions = torch.arange(self.context, device=device).float()  # flaw: positions_rebuilt
        angles = torch.outer(positions, rates)  # flaw: positions_rebuilt
        return angles.cos(), angles.sin()  # flaw: positions_rebuilt

    def forward(self, x: Tensor) -> Tensor:
        cos, sin = self.make(x.device) if self.is_anew else (self.cos, self.sin)
        cos, sin = cos.to(x.dtype), sin.to(x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class Rebuilt(Block):
    """A block that makes the tables for queries, and again for keys."""

    is_anew = True

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.rotary = RotaryTables(config.width // config.heads, config.context, self.is_anew)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().attend(self.rotary(q), self.rotary(k), v)


class Kept(Rebuilt):
    """A block that keeps the tables."""

    is_anew = False


def positions_rebuilt(flawed: bool, sizes: Sizes) -> Step:
    return gpt.trained(sizes, Rebuilt if flawed else Kept, batch=sizes.of(2, 2))
