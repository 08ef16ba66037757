"""Models that take gradients within: transforms of functions, in reverse and forward."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from verification.truth.models.making import Made, leaf


class Transforms(nn.Module):
    """A transform of a function whose parts stand on lines of their own."""

    def __init__(self, transformed: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.transformed = transformed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.transformed(_parts, self.layer(x)).sin()


def _parts(x: torch.Tensor) -> torch.Tensor:
    wave = x.cos()
    steep = x.exp()
    return wave * steep


def _gradient(function: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return torch.func.grad(lambda y: function(y).sum())(x)


def _pulled_back(function: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    _, pull = torch.func.vjp(function, x)
    return pull(x.tanh())[0]


def _pushed_on(function: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return torch.func.jvp(function, (x,), (x.tanh(),))[1]


def _by_row(function: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return torch.func.vmap(torch.func.grad(lambda row: function(row).sum()))(x)


class MicroBatches(nn.Module):
    """Gradients that are summed over micro-batches under autocast, then clipped."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(6, 10), nn.LayerNorm(10), nn.Linear(10, 3)

    def forward(self, *batches: torch.Tensor) -> list[torch.Tensor]:
        parameters = list(self.parameters())
        summed = [torch.zeros_like(each) for each in parameters]
        for x in batches:
            loss = self._loss(x) / len(batches)
            gradients = torch.autograd.grad(loss, parameters)
            summed = [one + other for one, other in zip(summed, gradients, strict=True)]
        length = torch.stack([each.norm() for each in summed]).norm()
        scale = (1.0 / (length + 1e-6)).clamp(max=1.0)
        steps = [each * scale for each in summed]
        return [each - 0.1 * by for each, by in zip(parameters, steps, strict=True)]

    def _loss(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            hidden = self.norm(self.body(x).tanh())
            logits = self.head(hidden)
        return logits.float().square().mean()


def function_gradient() -> Made:
    return Transforms(_gradient), (leaf(4, 6),)


def pulled_back() -> Made:
    return Transforms(_pulled_back), (leaf(4, 6),)


def pushed_on() -> Made:
    return Transforms(_pushed_on), (leaf(4, 6),)


def gradient_by_row() -> Made:
    return Transforms(_by_row), (leaf(4, 6),)


def micro_batches() -> Made:
    return MicroBatches(), (leaf(4, 6), leaf(4, 6), leaf(3, 6))


MODELS = (function_gradient, pulled_back, pushed_on, gradient_by_row, micro_batches)
