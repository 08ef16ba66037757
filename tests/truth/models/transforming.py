"""Owns models that take gradients within: transforms of functions, in reverse and forward."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from tests.truth.models.making import Made, leaf


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


def function_gradient() -> Made:
    return Transforms(_gradient), (leaf(4, 6),)


def pulled_back() -> Made:
    return Transforms(_pulled_back), (leaf(4, 6),)


def pushed_on() -> Made:
    return Transforms(_pushed_on), (leaf(4, 6),)


def gradient_by_row() -> Made:
    return Transforms(_by_row), (leaf(4, 6),)


MODELS = (function_gradient, pulled_back, pushed_on, gradient_by_row)
