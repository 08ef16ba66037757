"""Owns a function that compiles in a tenth of a second: matrix products need no C++ compiler."""

from __future__ import annotations

import torch
import torch._dynamo


def twice(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply twice."""
    first = a @ b
    return first @ b


TWICE_LINES = (twice.__code__.co_firstlineno + 2, twice.__code__.co_firstlineno + 3)


def train_once(*, anew: bool = True) -> torch.Tensor:
    """Compile :func:`twice` anew, run it forward and backward, and return the gradient."""
    if anew:
        torch._dynamo.reset()
    torch.manual_seed(0)
    a, b = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8)
    torch.compile(twice)(a, b).sum().backward()
    assert a.grad is not None
    return a.grad


def expected_gradient() -> torch.Tensor:
    """Return what :func:`train_once` must return."""
    torch.manual_seed(0)
    torch.randn(8, 8)
    b = torch.randn(8, 8)
    return torch.ones(8, 8) @ b.T @ b.T
