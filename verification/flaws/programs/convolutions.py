"""Flaws of convolutions."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .program import Sizes, Step, fused_adamw, seeded, training
from .vision import ResNet, images_of, labels_of

__all__ = ["benchmark_off", "bias_before_norm", "channels_first", "resnet", "resnet_trained"]


def resnet(sizes: Sizes, has_bias: bool = False, is_last: bool = True) -> ResNet:
    """A ResNet-50 with its channels last."""
    blocks, width = sizes.of(((3, 4, 6, 3), 64), ((1, 1), 8))
    model = seeded(lambda: ResNet(blocks, width, has_bias), sizes)
    return model.to(memory_format=torch.channels_last) if is_last else model


def resnet_trained(model: ResNet, sizes: Sizes, batch: int = 128, is_mixed: bool = True) -> Step:
    """The usual training step of a ResNet."""
    images = images_of(sizes, batch)
    if model.stem.weight.is_contiguous(memory_format=torch.channels_last):
        images = images.to(memory_format=torch.channels_last)
    labels, optimizer = labels_of(images), fused_adamw(model)
    step = training(
        lambda: F.cross_entropy(model(images), labels), optimizer, sizes, is_mixed=is_mixed
    )
    return Step(step)


def channels_first(flawed: bool, sizes: Sizes) -> Step:
    return resnet_trained(resnet(sizes, is_last=not flawed), sizes)


def benchmark_off(flawed: bool, sizes: Sizes) -> Step:
    step = resnet_trained(resnet(sizes, is_last=False), sizes, batch=64, is_mixed=False)
    return Step(
        step.run,
        lambda: torch.backends.cudnn.flags(enabled=True, benchmark=not flawed, allow_tf32=True),
    )


def bias_before_norm(flawed: bool, sizes: Sizes) -> Step:
    return resnet_trained(resnet(sizes, has_bias=flawed), sizes)
