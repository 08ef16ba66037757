"""Flaws of networks that learn embeddings from comparisons."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import Config
from .language import EncoderBlock
from .program import Sizes, Step, autocast, fused_adamw, seeded, training

__all__ = ["feature_mask_by_numpy", "semi_hard_cubed", "triplets_by_numpy"]


class Embedder(nn.Module):
    """Residual convolutions from images to vectors of length 1."""

    def __init__(self, width: int, depth: int, outputs: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(depth))
        self.head = nn.Linear(width, outputs)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + F.relu(norm(conv(x)))
        return F.normalize(self.head(x.mean((2, 3))).float(), dim=1)


def embedder_and_images(sizes: Sizes, batch: int, outputs: int) -> tuple[Embedder, Tensor]:
    """An embedder and its images, with channels last."""
    width, depth, side = sizes.of((128, 8, 128), (4, 1, 8))
    model = seeded(lambda: Embedder(width, depth, outputs), sizes)
    images = seeded(lambda: torch.randn(batch, 3, side, side), sizes)
    last = torch.channels_last
    return model.to(memory_format=last), images.to(memory_format=last)


def triplets_in_loop(labels: Tensor) -> tuple[Tensor, Tensor]:
    """A positive and a negative for each anchor, drawn by numpy one by one."""
    kinds = labels.cpu().numpy()  # flaw: triplets_by_numpy
    positives, negatives = [], []
    for at, kind in enumerate(kinds):
        is_alike = kinds == kind  # flaw: triplets_by_numpy
        others = np.where(~is_alike)[0]  # flaw: triplets_by_numpy
        is_alike[at] = False
        positives.append(np.random.choice(np.where(is_alike)[0]))  # flaw: triplets_by_numpy
        negatives.append(np.random.choice(others))  # flaw: triplets_by_numpy
    drawn = torch.from_numpy(np.array([positives, negatives]))  # flaw: triplets_by_numpy
    return tuple(drawn.to(labels.device))  # flaw: triplets_by_numpy


def triplets_at_once(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The same on the device: the largest of random numbers among those allowed."""
    is_alike = labels[:, None] == labels
    chance = torch.rand(is_alike.shape, device=labels.device)
    negatives = chance.masked_fill(is_alike, -1).argmax(1)
    is_positive = is_alike.fill_diagonal_(False)
    return chance.masked_fill(~is_positive, -1).argmax(1), negatives


def triplets_by_numpy(flawed: bool, sizes: Sizes) -> Step:
    batch, kinds, outputs = sizes.of((512, 32, 64), (8, 2, 4))
    model, images = embedder_and_images(sizes, batch, outputs)
    labels = torch.arange(batch, device=sizes.device) % kinds
    draw = triplets_in_loop if flawed else triplets_at_once

    def loss() -> Tensor:
        vectors = model(images)
        positives, negatives = draw(labels)  # flaw: triplets_by_numpy
        return F.triplet_margin_loss(vectors, vectors[positives], vectors[negatives], 0.1)

    return Step(training(loss, fused_adamw(model), sizes))


def semi_hard_by_tiles(distances: Tensor, is_alike: Tensor) -> Tensor:
    """For each anchor and positive the nearest negative that is farther, from a cube of all."""
    count = len(distances)
    tiled = distances.repeat(count, 1)  # flaw: semi_hard_cubed
    is_farther = tiled > distances.T.reshape(-1, 1)  # flaw: semi_hard_cubed
    allowed = (~is_alike).repeat(count, 1) & is_farther  # flaw: semi_hard_cubed
    largest = tiled.amax(1, keepdim=True)  # flaw: semi_hard_cubed
    nearest = ((tiled - largest) * allowed).amin(1, keepdim=True)  # flaw: semi_hard_cubed
    outside = (nearest + largest).view(count, count).T  # flaw: semi_hard_cubed
    is_found = allowed.any(1).view(count, count).T  # flaw: semi_hard_cubed
    inside = distances.masked_fill(is_alike, 0).amax(1, keepdim=True)
    return torch.where(is_found, outside, inside)


def semi_hard_by_sort(distances: Tensor, is_alike: Tensor) -> Tensor:
    """The same: the negatives of each anchor are sorted once, and each positive is sought."""
    negatives = distances.masked_fill(is_alike, float("inf")).sort(1).values
    places = torch.searchsorted(negatives.detach(), distances.detach(), right=True)
    counts = (~is_alike).sum(1, keepdim=True)
    outside = negatives.gather(1, places.minimum(counts - 1))
    inside = distances.masked_fill(is_alike, 0).amax(1, keepdim=True)
    return torch.where(places < counts, outside, inside)


class SentenceEncoder(nn.Module):
    """A small encoder, and the mean of its tokens."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Parameter(torch.randn(config.context, config.width) * 0.02)
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.layers))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions
        for block in self.blocks:
            x = block(x)
        return F.normalize(x.mean(1).float(), dim=1)


def semi_hard_cubed(flawed: bool, sizes: Sizes) -> Step:
    large = Config(6, 384, 12, 1536, vocabulary=30528, context=64, batch=512)
    config = gpt.TINY if sizes.is_tiny else large
    config = Config(**{**vars(config), "batch": sizes.of(config.batch, 8)})
    model = seeded(lambda: SentenceEncoder(config), sizes)
    tokens, _ = gpt.batch_of(config, sizes)
    labels = torch.arange(config.batch, device=sizes.device) % sizes.of(64, 2)
    is_alike = labels[:, None] == labels
    is_positive = is_alike.float().fill_diagonal_(0)
    seek = semi_hard_by_tiles if flawed else semi_hard_by_sort

    def loss() -> Tensor:
        vectors = model(tokens)
        with torch.autocast(sizes.device, enabled=False):
            distances = (2 - 2 * vectors @ vectors.T).clamp(min=1e-6).sqrt()
            hard = seek(distances, is_alike)  # flaw: semi_hard_cubed
            return (F.relu(distances - hard + 0.5) * is_positive).sum() / is_positive.sum()

    return Step(training(loss, fused_adamw(model), sizes))


def feature_mask_by_numpy(flawed: bool, sizes: Sizes) -> Step:
    batch, queue, outputs = sizes.of((256, 65536, 128), (4, 32, 4))
    model, images = embedder_and_images(sizes, batch, outputs)
    slow = embedder_and_images(sizes, batch, outputs)[0].requires_grad_(False)
    bank = F.normalize(seeded(lambda: torch.randn(queue, outputs), sizes), dim=1)
    power = torch.full((1,), 1.6, device=sizes.device)
    beta = torch.distributions.Beta(power, power, validate_args=False)
    fast_weights, slow_weights = list(model.parameters()), list(slow.parameters())

    def mixed() -> Tensor:
        if flawed:
            weights = np.random.beta(1.6, 1.6, (queue, 1))  # flaw: feature_mask_by_numpy
            mask = torch.from_numpy(weights).float().to(sizes.device)  # flaw: feature_mask_by_numpy
            order = torch.from_numpy(np.random.permutation(queue))  # flaw: feature_mask_by_numpy
            order = order.to(sizes.device)  # flaw: feature_mask_by_numpy
        else:
            mask = beta.sample((queue,))
            order = torch.randperm(queue, device=sizes.device)
        return torch.lerp(bank[order], bank, mask)

    def loss() -> Tensor:
        vectors = model(images)
        with torch.no_grad():
            torch._foreach_lerp_(slow_weights, fast_weights, 0.001)
            keys = slow(images.flip(3))
            negatives = mixed()  # flaw: feature_mask_by_numpy
        near = (vectors * keys).sum(1, keepdim=True)
        with autocast(sizes):
            scores = torch.cat((near, vectors @ negatives.T), 1)
        bank.copy_(torch.cat((keys, bank[: queue - batch])))
        return F.cross_entropy(scores.float() / 0.2, torch.zeros_like(scores[:, 0]).long())

    return Step(training(loss, fused_adamw(model), sizes))
