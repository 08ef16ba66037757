"""What every program is made of: its sizes, its step, and the usual training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

__all__ = [
    "Sizes",
    "Step",
    "autocast",
    "compiled",
    "copied",
    "fused_adamw",
    "seeded",
    "training",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Sizes:
    """Where a program runs, and whether it is only to be seen to run."""

    device: str
    is_tiny: bool

    def of(self, large: T, tiny: T) -> T:
        """One of two sizes."""
        return tiny if self.is_tiny else large


@dataclass(frozen=True)
class Step:
    """A step of a program; it returns its loss or its result.

    Attributes:
        run: one step.
        within: the settings that hold while steps run.
        warm_up: so many steps pass before the program is in its usual state.
        cycle: so many steps are alike to so many others, where a step is not alike to the next.
    """

    run: Callable[[], Tensor]
    within: Callable[[], AbstractContextManager[Any]] = nullcontext
    warm_up: int = 4
    cycle: int = 1


def seeded(make: Callable[[], T], sizes: Sizes) -> T:
    """What is made on the device of these sizes from the seed that all share."""
    torch.manual_seed(2026)
    with torch.device(sizes.device):
        return make()


def autocast(sizes: Sizes) -> torch.autocast:
    """Autocast to bfloat16."""
    return torch.autocast(sizes.device, dtype=torch.bfloat16)


def compiled(function: T, sizes: Sizes, **options: Any) -> T:
    """A compiled function; tiny ones are traced and not compiled, which takes long on a CPU."""
    if sizes.is_tiny:
        options = {"dynamic": options.get("dynamic"), "backend": "eager"}
    return torch.compile(function, **options)


def copied(function: Any) -> Any:
    """A function of the same lines with a code object of its own, which Dynamo knows apart."""
    code = function.__code__.replace(co_name=f"{function.__name__}_")
    return FunctionType(code, function.__globals__, closure=function.__closure__)


def fused_adamw(model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer as it is fastest."""
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def training(
    loss_of: Callable[[], Tensor],
    optimizer: torch.optim.Optimizer,
    sizes: Sizes,
    *,
    is_mixed: bool = True,
    after_backward: Iterable[Callable[[], object]] = (),
    after_step: Iterable[Callable[[], object]] = (),
) -> Callable[[], Tensor]:
    """The usual training step; loss and model run in autocast unless it is not mixed."""

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with autocast(sizes) if is_mixed else nullcontext():
            loss = loss_of()
        loss.backward()
        for action in after_backward:
            action()
        optimizer.step()
        for action in after_step:
            action()
        return loss.detach()

    return step
