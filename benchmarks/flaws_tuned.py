"""The step of the trial of findings whose kernels autotuning chose for other sizes."""

from __future__ import annotations

from typing import Any

import torch
import torch._inductor.config
from torch import nn

from benchmarks.cases import Case, Pair, Sizes, training
from benchmarks.flaws_eager import cross_entropy
from benchmarks.steps import Step


class Small(nn.Sequential):
    """Layers whose first call is small; of one class both would share their code."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        return super().forward(x).float().square().mean()


class Large(nn.Sequential):
    """The same layers, whose first call is as large as the others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        return super().forward(x).float().square().mean()


def tuned_small(sizes: Sizes) -> Pair:
    """Dynamic code whose kernels were chosen for 16 rows runs on 16,384; chosen for those."""
    width, few, many = (32, 4, 8) if sizes.is_tiny else (768, 16, 16384)

    def made(kind: type[nn.Sequential], first: int) -> Step:
        layers = (nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        model = kind(*layers).to(sizes.device, torch.bfloat16)
        compiled = torch.compile(model, dynamic=True, options={"max_autotune": not sizes.is_tiny})
        x = torch.randn(many, width, device=sizes.device, dtype=torch.bfloat16)
        # A cache would hand out for the one what was chosen for the other.
        with torch._inductor.config.patch(force_disable_caches=True):
            compiled(x[:first].clone()).backward()  # Dynamo guards on what a view is of
        with torch.compiler.set_stance("fail_on_recompile"):  # else both sides are the same
            compiled(x).backward()
        return training(model, forward=lambda: compiled(x))

    return Pair(made(Small, few), made(Large, many))


def tuned_loss(sizes: Sizes) -> Pair:
    """A compiled cross entropy as Inductor makes it; its reductions tuned."""
    batch, words, width = (2, 512, 32) if sizes.is_tiny else (32, 50304, 768)

    def made(options: dict[str, Any] | None) -> Step:
        torch._dynamo.reset()  # else what was compiled for the one serves the other
        head = nn.Linear(width, words, bias=False).to(sizes.device, torch.bfloat16)
        x = torch.randn(batch * sizes.tokens, width, device=sizes.device, dtype=torch.bfloat16)
        ids = torch.randint(words, (batch * sizes.tokens,), device=sizes.device)
        run = torch.compile(lambda: cross_entropy(head(x)[None], ids[None]), options=options)
        return training(head, forward=run)

    tuned = {"max_autotune_pointwise": True, "coordinate_descent_tuning": True}
    return Pair(made(None), made(None if sizes.is_tiny else tuned))


TUNED = (
    Case("autotuning", "products tuned for 16 rows, of 16,384; tuned for those", tuned_small),
    Case("far_from_roofline", "a compiled cross entropy; its reductions tuned", tuned_loss),
)
