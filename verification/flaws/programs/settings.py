"""Flaws that are settings: checkpoints, debugging aids, compilation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from . import gpt
from .gpt import Block
from .program import Sizes, Step, autocast, compiled, copied, fused_adamw, seeded, training

__all__ = [
    "Graph",
    "anomaly_detection",
    "changing_sizes",
    "checkpoint_everything",
    "deterministic_algorithms",
    "graph_breaks",
    "memory_history",
]


class Checkpointed(Block):
    """A block that is run again in the backward."""

    def forward(self, x: Tensor) -> Tensor:
        run = super().forward
        return checkpoint(run, x, use_reentrant=False)  # flaw: checkpoint_everything


def checkpoint_everything(flawed: bool, sizes: Sizes) -> Step:
    return gpt.trained(sizes, Checkpointed if flawed else Block)


def anomaly_detection(flawed: bool, sizes: Sizes) -> Step:
    step = gpt.trained(sizes, batch=sizes.of(4, 2))
    return Step(step.run, lambda: torch.autograd.set_detect_anomaly(flawed))


@contextmanager
def memory_recorded() -> Iterator[None]:
    """Keep the history of the memory, with the stacks of Python and C++."""
    torch.cuda.memory._record_memory_history(stacks="all", max_entries=100_000)
    try:
        yield
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def memory_history(flawed: bool, sizes: Sizes) -> Step:
    step = gpt.trained(sizes, batch=sizes.of(4, 2))
    is_on = flawed and not sizes.is_tiny
    return Step(step.run, memory_recorded if is_on else nullcontext)


class Graph(nn.Module):
    """A graph network that sums messages over the edges."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.messages = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.updates = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))

    def forward(self, x: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        for message, update in zip(self.messages, self.updates, strict=True):
            sent = message(x).index_select(0, sources)  # flaw: deterministic_algorithms
            zeros = torch.zeros_like(x, dtype=sent.dtype)
            summed = zeros.index_add(0, targets, sent)  # flaw: deterministic_algorithms
            x = x + F.relu(update(torch.cat((x, summed), 1)))
        return x


@contextmanager
def deterministic(is_on: bool) -> Iterator[None]:
    """Deterministic algorithms only."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(is_on)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def deterministic_algorithms(flawed: bool, sizes: Sizes) -> Step:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    width, layers, nodes, edges = sizes.of((128, 4, 40_000, 400_000), (8, 2, 20, 60))
    model = seeded(lambda: Graph(width, layers), sizes)
    x, sources, targets = seeded(
        lambda: (
            torch.randn(nodes, width),
            torch.randint(0, nodes, (edges,)),
            torch.randint(0, nodes, (edges,)),
        ),
        sizes,
    )

    def loss() -> Tensor:
        return model(x, sources, targets).square().mean()

    step = training(loss, fused_adamw(model), sizes, is_mixed=False)
    return Step(step, lambda: deterministic(flawed))


class Logging(Block):
    """A block that keeps the size of its activations."""

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        self.seen = self.logged(x.detach().abs().mean())
        return x

    def logged(self, size: Tensor) -> Tensor | float:
        return size


class LoggingNumbers(Logging):
    """A block that keeps it as a number."""

    def logged(self, size: Tensor) -> Tensor | float:
        return size.item()  # flaw: graph_breaks


def graph_breaks(flawed: bool, sizes: Sizes) -> Step:
    block = LoggingNumbers if flawed else Logging
    model, tokens, targets = gpt.made(sizes, block, layers=sizes.of(6, 2), batch=sizes.of(4, 2))
    forward = copied(gpt.GPT.forward)
    run, optimizer = compiled(lambda tokens: forward(model, tokens), sizes), fused_adamw(model)
    return Step(training(lambda: gpt.loss_of(run, tokens, targets), optimizer, sizes))


def normalised(spectra: Tensor) -> Tensor:  # flaw: changing_sizes
    """Log spectra as a speech model has them."""
    levels = spectra.clamp(min=1e-10).log10()  # flaw: changing_sizes
    levels = torch.maximum(levels, levels.amax((1, 2), keepdim=True) - 8)  # flaw: changing_sizes
    levels = (levels + 4) / 4  # flaw: changing_sizes
    levels = levels - levels.mean(2, keepdim=True)  # flaw: changing_sizes
    return levels / (levels.square().mean(2, keepdim=True) + 1e-5).sqrt()  # flaw: changing_sizes


LENGTHS = 40


def changing_sizes(flawed: bool, sizes: Sizes) -> Step:
    count, bands, moments, width = sizes.of((192, 128, 3000, 256), (2, 8, 40, 8))
    spectra = seeded(lambda: torch.rand(count, bands, moments + 8 * LENGTHS), sizes)
    encoder = seeded(lambda: nn.Conv1d(bands, width, 3, 2, 1), sizes)
    prepare = compiled(copied(normalised), sizes, dynamic=not flawed)
    turn = 0

    def step() -> Tensor:
        nonlocal turn
        turn += 1
        length = moments + 8 * (turn % LENGTHS)
        batch = spectra[:, :, :length].contiguous()
        with torch.no_grad(), autocast(sizes):
            return encoder(prepare(batch)).float().mean()

    return Step(step, warm_up=LENGTHS + 2, cycle=LENGTHS)
