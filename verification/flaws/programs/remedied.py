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

__all__ = [
    "bert_compiled",
    "diffusion_compiled",
    "dlrm_compiled",
    "lstm_cudnn",
    "resnet_channels_last",
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
