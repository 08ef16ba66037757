"""What makes a model: a function that yields it and what it is called on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Made = tuple[torch.nn.Module, tuple[Any, ...]]
Make = Callable[[], Made]


def leaf(*size: int) -> torch.Tensor:
    """Return an input whose gradient is asked for."""
    return torch.randn(*size, requires_grad=True)
