"""Owns the step of the trial of findings whose kernels autotuning chose for other sizes."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.cases import Case, Pair, Sizes, training
from benchmarks.steps import Step


def tuned_small(sizes: Sizes) -> Pair:
    """Dynamic code whose kernels were chosen for 16 rows runs on 16,384; chosen for those."""
    width, few, many = (32, 4, 8) if sizes.is_tiny else (768, 16, 16384)

    def made(first: int) -> Step:
        torch._dynamo.reset()
        layers = (nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        model = nn.Sequential(*layers).to(sizes.device, torch.bfloat16)
        compiled = torch.compile(model, dynamic=True, options={"max_autotune": not sizes.is_tiny})
        x = torch.randn(many, width, device=sizes.device, dtype=torch.bfloat16)
        compiled(x[:first]).float().mean().backward()
        return training(model, forward=lambda: compiled(x).float().square().mean())

    return Pair(made(few), made(many))


TUNED = Case("autotuning", "products tuned for 16 rows, of 16,384; tuned for those", tuned_small)
