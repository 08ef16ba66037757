"""Tuned steps with what is recommended of them, where that is more than 3% of the step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import tuned
from .program import Sizes, Step
from .settings import Graph

__all__ = [
    "bert_compiled",
    "diffusion_compiled",
    "dlrm_compiled",
    "graph_network_compiled",
    "lstm_cudnn",
    "resnet_channels_last",
    "resnet_compiled",
]

_EAGER_STEPS = 5


@contextmanager
def _without_masks() -> Iterator[None]:
    """Leave out attention's mask: no token of these is padding, so that it masks nothing."""
    attention = F.scaled_dot_product_attention

    def unmasked(*args: Tensor, attn_mask: Tensor | None = None, **options: Any) -> Tensor:
        return attention(*args, **options)

    F.scaled_dot_product_attention = unmasked
    try:
        yield
    finally:
        F.scaled_dot_product_attention = attention


def bert_compiled(sizes: Sizes) -> Step:
    return replace(tuned.bert_compiled(sizes), within=_without_masks)


def diffusion_compiled(sizes: Sizes) -> Step:
    return tuned.diffusion_compiled(sizes, mode="reduce-overhead")


def dlrm_compiled(sizes: Sizes) -> Step:
    return tuned.dlrm_compiled(sizes, mode="reduce-overhead")


class _SumsOfNeighbours(torch.autograd.Function):
    """Sums of rows by edges that were sorted by what they are summed at, forward and backward."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, edges: tuple[Tensor, ...]) -> Tensor:
        ctx.edges = edges
        sources, lengths, _, _ = edges
        return _sums(rows.index_select(0, sources), lengths)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        _, _, targets, lengths = ctx.edges
        return _sums(gradients[0].index_select(0, targets), lengths), None


def _sums(rows: Tensor, lengths: Tensor) -> Tensor:
    """Sums of rows in a row; with a check of the lengths, each call would wait for the device."""
    return torch.segment_reduce(rows, "sum", lengths=lengths, unsafe=True)


class _SortedGraph(Graph):
    """A graph network whose edges are sorted once, for the sums at their ends and beginnings."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__(width, layers)
        self.edges: tuple[Tensor, ...] = ()

    def forward(self, x: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        for message, update in zip(self.messages, self.updates, strict=True):
            summed = self.sums(message(x), sources, targets)
            x = x + F.relu(update(torch.cat((x, summed), 1)))
        return x

    @torch.compiler.disable
    def sums(self, rows: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        if not self.edges:
            by_target, by_source = targets.argsort(), sources.argsort()
            self.edges = (
                sources[by_target],
                targets.bincount(minlength=len(rows)),
                targets[by_source],
                sources.bincount(minlength=len(rows)),
            )
        summed: Tensor = _SumsOfNeighbours.apply(rows, self.edges)  # type: ignore[no-untyped-call]
        return summed


def graph_network_compiled(sizes: Sizes) -> Step:
    return tuned.graph_network_compiled(sizes, _SortedGraph)


def lstm_cudnn(sizes: Sizes) -> Step:
    """The whole step as one CUDA graph."""
    step = tuned.lstm_cudnn(sizes)
    if sizes.device == "cpu":
        return step
    own: Any = torch.cuda  # not typed
    stream = own.Stream()
    with own.stream(stream):
        for _ in range(_EAGER_STEPS):
            step.run()
    own.current_stream().wait_stream(stream)
    graph = own.CUDAGraph()
    with own.graph(graph):
        loss = step.run()

    def run() -> Tensor:
        graph.replay()
        return loss

    return Step(run)


def resnet_channels_last(sizes: Sizes) -> Step:
    return tuned.resnet_compiled(sizes)


def resnet_compiled(sizes: Sizes) -> Step:
    return tuned.resnet_compiled(sizes, mode="reduce-overhead")
