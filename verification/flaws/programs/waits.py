"""Flaws that make the CPU wait for the GPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import gpt
from .gpt import Block
from .program import Sizes, Step, autocast, fused_adamw, seeded, training
from .vision import UNet, images_of

__all__ = [
    "Experts",
    "expert_loop",
    "loss_item",
    "masked_loss_per_class",
    "nan_check_per_layer",
    "predictions_to_cpu",
]


def loss_item(flawed: bool, sizes: Sizes) -> Step:
    model, tokens, targets = gpt.made(sizes, layers=sizes.of(6, 2), batch=sizes.of(24, 4))
    optimizer = fused_adamw(model)
    size = len(tokens) // 4
    micro = list(zip(tokens.split(size), targets.split(size), strict=True))

    def step() -> Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), device=tokens.device)
        for some, their in micro:
            with autocast(sizes):
                loss = gpt.loss_of(model, some, their) / len(micro)
            loss.backward()
            if flawed:
                total += loss.item()  # flaw: loss_item
            else:
                total += loss.detach()
        optimizer.step()
        return total

    return Step(step)


class Checked(Block):
    """A block that ends the program at the first NaN."""

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        if x.isnan().any():  # flaw: nan_check_per_layer
            raise FloatingPointError("NaN in a block")
        return x


def nan_check_per_layer(flawed: bool, sizes: Sizes) -> Step:
    return gpt.trained(sizes, Checked if flawed else Block, batch=sizes.of(4, 2))


def loss_per_class(losses: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The mean over classes of the mean loss of the pixels of each."""
    total = losses.new_zeros(())
    for at in range(classes):
        total = total + losses[labels == at].mean()  # flaw: masked_loss_per_class
    return total / classes


def loss_by_weights(losses: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The same by sums for all classes at once."""
    sums = losses.new_zeros(classes).index_add(0, labels, losses)
    counts = losses.new_zeros(classes).index_add(0, labels, torch.ones_like(losses))
    return (sums / counts).mean()


def masked_loss_per_class(flawed: bool, sizes: Sizes) -> Step:
    width, classes = sizes.of((64, 32), (8, 4))
    model = seeded(lambda: UNet(3, width, classes), sizes).to(memory_format=torch.channels_last)
    images = images_of(sizes, 8, 256).to(memory_format=torch.channels_last)
    labels = torch.arange(images[:, 0].numel(), device=images.device) % classes
    of_classes = loss_per_class if flawed else loss_by_weights

    def loss() -> Tensor:
        logits = model(images).permute(0, 2, 3, 1).flatten(0, 2)
        return of_classes(F.cross_entropy(logits, labels, reduction="none"), labels, classes)

    return Step(training(loss, fused_adamw(model), sizes))


def predictions_to_cpu(flawed: bool, sizes: Sizes) -> Step:
    width, classes = sizes.of((64, 32), (8, 4))
    model = seeded(lambda: UNet(3, width, classes), sizes).to(memory_format=torch.channels_last)
    images = images_of(sizes, 8, 256).to(memory_format=torch.channels_last)
    shape = (len(images), classes, *images.shape[2:])
    buffers = [torch.empty(shape, pin_memory=not sizes.is_tiny) for _ in range(2)]
    turn = 0

    def step() -> Tensor:
        nonlocal turn
        with torch.no_grad(), autocast(sizes):
            predictions = model(images).float()
        if flawed:
            return predictions.cpu()[0, 0, 0, 0]  # flaw: predictions_to_cpu
        turn = 1 - turn
        buffers[turn].copy_(predictions, non_blocking=True)
        return predictions[0, 0, 0, 0]

    return Step(step)


class Experts(nn.Module):
    """Sixteen MLPs, of which each token has two."""

    experts = 16

    def __init__(self, width: int, is_loop: bool, slack: float) -> None:
        super().__init__()
        self.is_loop, self.slack = is_loop, slack
        self.norm, self.gate = nn.LayerNorm(width), nn.Linear(width, self.experts, bias=False)
        self.up = nn.Parameter(torch.randn(self.experts, width, 2 * width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(self.experts, 2 * width, width) * width**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        weights, chosen = self.gate(h).softmax(-1).topk(2)
        run = self.one_by_one if self.is_loop else self.together
        return x + run(h, weights, chosen)

    def one_by_one(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        result = torch.zeros_like(x)
        for expert in range(self.experts):
            tokens, slot = torch.where(chosen == expert)  # flaw: expert_loop
            h = F.gelu(x[tokens] @ self.up[expert]) @ self.down[expert]  # flaw: expert_loop
            h = h * weights[tokens, slot, None]  # flaw: expert_loop
            result.index_add_(0, tokens, h.to(x.dtype))  # flaw: expert_loop
        return result

    def together(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        chosen, order = chosen.flatten().sort(stable=True)
        room = int(self.slack * len(chosen) / self.experts)
        counts = F.one_hot(chosen, self.experts).sum(0)
        place = torch.arange(len(chosen), device=x.device) - (counts.cumsum(0) - counts)[chosen]
        slot = torch.where(place < room, chosen * room + place, self.experts * room)
        rows = x.index_select(0, order // 2)
        filled = x.new_zeros(self.experts * room + 1, x.shape[1]).index_copy(0, slot, rows)
        h = filled[:-1].unflatten(0, (self.experts, room))
        h = F.gelu(torch.bmm(h, self.up)).bmm(self.down).flatten(0, 1)
        h = torch.cat((h, h.new_zeros(1, h.shape[1]))).index_select(0, slot)
        h = h * weights.flatten()[order, None]
        return torch.zeros_like(x).index_add(0, order // 2, h.to(x.dtype))


def expert_loop(flawed: bool, sizes: Sizes) -> Step:
    layers, width, tokens, slack = sizes.of((3, 1024, 8192, 1.5), (2, 16, 64, 16.0))
    model = seeded(
        lambda: nn.Sequential(*(Experts(width, flawed, slack) for _ in range(layers))), sizes
    )
    x = seeded(lambda: torch.randn(tokens, width), sizes)
    return Step(training(lambda: model(x).square().mean(), fused_adamw(model), sizes))
