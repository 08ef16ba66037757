"""Flaws of losses, and of how results are kept, evaluated and scored."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import Config
from .language import EncoderBlock
from .program import Sizes, Step, autocast, fused_adamw, seeded, training
from .vision import UNet

__all__ = [
    "dropout_in_evaluation",
    "evaluation_counted_by_item",
    "losses_filtered_for_nan",
    "masks_one_hot_for_dice",
    "similarities_by_mask",
]


class TextClassifier(nn.Module):
    """Scores of a text's classes, from an encoder."""

    def __init__(self, config: Config, classes: int) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.Sequential(*(EncoderBlock(config) for _ in range(config.layers)))
        self.head = nn.Linear(config.width, classes)

    def forward(self, text: Tensor) -> Tensor:
        return self.head(self.blocks(self.words(text)).mean(1))


class Filter:
    """The sum of the losses of a step's micro-batches, in which no loss that is not finite is."""

    def __init__(self, branches: bool, device: str) -> None:
        self.branches, self.device = branches, device

    def reset(self) -> None:
        self.total = torch.zeros((), device=self.device)
        self.count = 0

    def add(self, loss: Tensor) -> None:
        mean = self.total / (1 + self.count)
        self.count += 1
        if not self.branches:
            self.total += torch.where(torch.isfinite(loss), loss, mean)
        elif torch.isnan(loss) or torch.isinf(loss):  # flaw: losses_filtered_for_nan
            self.total += mean
        else:
            self.total += loss


def losses_filtered_for_nan(flawed: bool, sizes: Sizes) -> Step:
    config = Config(vocabulary=30528, context=128, batch=8)
    if sizes.is_tiny:
        config = gpt.TINY
    micro_batches = sizes.of(8, 2)
    model = seeded(lambda: TextClassifier(config, 4), sizes).bfloat16()
    texts, labels = seeded(
        lambda: (
            torch.randint(0, config.vocabulary, (micro_batches, config.batch, config.context)),
            torch.randint(0, 4, (micro_batches, config.batch)),
        ),
        sizes,
    )
    optimizer, kept = fused_adamw(model), Filter(flawed, sizes.device)

    def step() -> Tensor:
        optimizer.zero_grad()
        kept.reset()
        for text, wanted in zip(texts, labels, strict=True):
            loss = F.cross_entropy(model(text).float(), wanted) / micro_batches
            loss.backward()
            kept.add(loss.detach())  # flaw: losses_filtered_for_nan
        optimizer.step()
        return kept.total

    return Step(step)


class ViewEncoder(nn.Module):
    """A point on a sphere for each view of an image."""

    def __init__(self, width: int, depth: int, out: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.head = nn.Linear(width, out)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for conv in self.convs:
            x = x + F.relu(conv(x))
        return F.normalize(self.head(x.mean((2, 3))).float(), dim=1)


def four_blocks(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """A matrix of four."""
    return torch.cat((torch.cat((a, b), 1), torch.cat((c, d), 1)), 0)


def contrast_by_masks(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """NT-Xent, whose similarities boolean masks pick: the right ones, then the wrong ones."""
    both, count = torch.cat((first, second)), len(first)
    similarities = both @ both.T / temperature
    same = torch.eye(count, dtype=torch.bool, device=both.device)
    none = torch.zeros_like(same)
    right = four_blocks(none, same, same, none)
    wrong = ~four_blocks(same, same, same, same)
    picked = similarities[right].view(2 * count, -1)  # flaw: similarities_by_mask
    others = similarities[wrong].view(2 * count, -1)  # flaw: similarities_by_mask
    logits = torch.cat((picked, others), 1)  # flaw: similarities_by_mask
    labels = torch.zeros(2 * count, dtype=torch.long, device=both.device)
    return F.cross_entropy(logits, labels)


def contrast_by_labels(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """The same, where a label says which similarity is right."""
    both, count = torch.cat((first, second)), len(first)
    similarities = both @ both.T / temperature
    similarities.fill_diagonal_(float("-inf"))
    labels = torch.arange(2 * count, device=both.device).roll(count)
    return F.cross_entropy(similarities, labels)


def similarities_by_mask(flawed: bool, sizes: Sizes) -> Step:
    batch, side, width, depth, out = sizes.of((2048, 32, 128, 6, 128), (4, 8, 8, 1, 4))
    model = seeded(lambda: ViewEncoder(width, depth, out), sizes)
    model = model.to(memory_format=torch.channels_last)
    views = seeded(lambda: torch.randn(2 * batch, 3, side, side), sizes)
    views = views.contiguous(memory_format=torch.channels_last)
    contrast = contrast_by_masks if flawed else contrast_by_labels

    def loss() -> Tensor:
        with autocast(sizes):
            points = model(views)
        return contrast(points[:batch], points[batch:], 0.5)  # flaw: similarities_by_mask

    return Step(training(loss, fused_adamw(model), sizes, is_mixed=False))


def dice_of_one_hot(found: Tensor, wanted: Tensor, classes: int) -> Tensor:
    """The mean Dice coefficient of the classes but the background, as of masks for each class."""
    found = F.one_hot(found, classes)  # flaw: masks_one_hot_for_dice
    wanted = F.one_hot(wanted, classes)  # flaw: masks_one_hot_for_dice
    found = found.permute(0, 3, 1, 2).float()[:, 1:]  # flaw: masks_one_hot_for_dice
    wanted = wanted.permute(0, 3, 1, 2).float()[:, 1:]  # flaw: masks_one_hot_for_dice
    shared = 2 * (found * wanted).sum((2, 3))  # flaw: masks_one_hot_for_dice
    pixels = found.sum((2, 3)) + wanted.sum((2, 3))  # flaw: masks_one_hot_for_dice
    pixels = torch.where(pixels == 0, shared, pixels)
    return ((shared + 1e-6) / (pixels + 1e-6)).mean()


def dice_of_labels(found: Tensor, wanted: Tensor, classes: int) -> Tensor:
    """The same, where pixels are counted by their labels."""
    bins = len(found) * classes
    image = torch.arange(len(found), device=found.device)[:, None, None] * classes
    # what differs is counted behind all others
    same = torch.where(found == wanted, image + found, bins)
    counts = [
        torch.histc(labels.float(), bins + 1, 0, bins + 1)[:-1].view(-1, classes)[:, 1:]
        for labels in (same, image + found, image + wanted)
    ]
    shared, pixels = 2 * counts[0], counts[1] + counts[2]
    pixels = torch.where(pixels == 0, shared, pixels)
    return ((shared + 1e-6) / (pixels + 1e-6)).mean()


def masks_one_hot_for_dice(flawed: bool, sizes: Sizes) -> Step:
    batch, side, width, classes = sizes.of((16, 512, 32, 21), (2, 16, 4, 3))
    model = seeded(lambda: UNet(3, width, classes), sizes).eval().bfloat16()
    model = model.to(memory_format=torch.channels_last)
    images, wanted = seeded(
        lambda: (
            torch.randn(batch, 3, side, side),
            torch.randint(0, classes, (batch, side, side)),
        ),
        sizes,
    )
    images = images.bfloat16().to(memory_format=torch.channels_last)
    dice = dice_of_one_hot if flawed else dice_of_labels

    @torch.inference_mode()
    def step() -> Tensor:
        found = model(images).argmax(1)
        return dice(found, wanted, classes)  # flaw: masks_one_hot_for_dice

    return Step(step)


class SmallNet(nn.Module):
    """A few convolutions with norms, for images of 32 x 32."""

    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x)))
        return self.head(x.mean((2, 3)))


def evaluated_by_item(
    model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor
) -> tuple[float, float]:
    """The mean loss and the accuracy, which are numbers of Python after each batch."""
    loss, right = 0.0, 0
    for some, wanted in zip(images, labels, strict=True):
        scores = model(some).float()
        loss += F.cross_entropy(scores, wanted).item()  # flaw: evaluation_counted_by_item
        found = scores.argmax(1)
        right += (found == wanted).sum().item()  # flaw: evaluation_counted_by_item
    return loss / len(images), right / labels.numel()


def evaluated_on_device(
    model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """The same, and both sums stay on the device."""
    loss, right = torch.zeros(2, device=images.device)
    for some, wanted in zip(images, labels, strict=True):
        scores = model(some).float()
        loss = loss + F.cross_entropy(scores, wanted)
        right = right + (scores.argmax(1) == wanted).sum()
    return loss / len(images), right / labels.numel()


def evaluation_counted_by_item(flawed: bool, sizes: Sizes) -> Step:
    batches, batch, side, width, depth = sizes.of((40, 64, 32, 96, 8), (3, 4, 8, 4, 1))
    model = seeded(lambda: SmallNet(width, depth, 10), sizes).eval().bfloat16()
    model = model.to(memory_format=torch.channels_last)
    images, labels = seeded(
        lambda: (
            torch.randn(batches, batch, side, side, 3).bfloat16(),
            torch.randint(0, 10, (batches, batch)),
        ),
        sizes,
    )
    images = images.permute(0, 1, 4, 2, 3)
    evaluated = evaluated_by_item if flawed else evaluated_on_device

    @torch.inference_mode()
    def step() -> Tensor:
        loss, right = evaluated(model, images, labels)  # flaw: evaluation_counted_by_item
        return torch.as_tensor(loss + right)

    return Step(step)


class DroppingBlock(nn.Module):
    """A block of a decoder with dropout in its attention and behind both of its halves."""

    def __init__(self, config: Config, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, dropout
        self.norm_1, self.norm_2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)
        self.up = nn.Linear(config.width, config.mlp_width)
        self.down = nn.Linear(config.mlp_width, config.width)
        self.drop_1, self.drop_2 = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        y = self.qkv(self.norm_1(x)).unflatten(2, (3, self.heads, -1))
        q, k, v = y.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        # flaw in the next line: dropout_in_evaluation
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        y = self.out(y.transpose(1, 2).flatten(2))
        x = x + self.drop_1(y)  # flaw: dropout_in_evaluation
        y = self.down(F.gelu(self.up(self.norm_2(x))))
        return x + self.drop_2(y)  # flaw: dropout_in_evaluation


class DroppingDecoder(nn.Module):
    """A decoder with dropout."""

    def __init__(self, config: Config, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(DroppingBlock(config, dropout) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.drop(self.tokens(tokens))  # flaw: dropout_in_evaluation
        x = self.blocks(x)  # flaw: dropout_in_evaluation
        return self.head(self.norm(x))


def dropout_in_evaluation(flawed: bool, sizes: Sizes) -> Step:
    config = gpt.TINY if sizes.is_tiny else Config(vocabulary=8192, context=1024, batch=16)
    model = seeded(lambda: DroppingDecoder(config, 0.1), sizes).bfloat16().train(flawed)
    tokens, wanted = gpt.batch_of(config, sizes)

    @torch.no_grad()
    def step() -> Tensor:
        scores = model(tokens).float()  # flaw: dropout_in_evaluation
        return F.cross_entropy(scores.flatten(0, 1), wanted.flatten())

    return Step(step)
