"""The cases of optimizers, compiled and eager."""

from __future__ import annotations

import torch
from torch import nn

from tests.cases import FULL, Case
from tests.cases.models import training


def _optimizer(device, fused, **options):
    model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64)).to(device)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        fused=fused,
        foreach=not fused,
        capturable=device == "cuda" and not fused,
    )
    compiled = torch.compile(lambda x: model(x).square().mean())
    update = torch.compile(optimizer.step) if options.get("compiled", True) else optimizer.step
    x = torch.randn(32, 64, device=device)
    return Case(training(model, x, compiled=compiled, update=update), phases=FULL)


def adamw_foreach(device):
    return _optimizer(device, fused=False)


def adamw_fused(device):
    return _optimizer(device, fused=True)


def adamw_eager(device):
    return _optimizer(device, fused=False, compiled=False)


CASES = (
    adamw_foreach,
    adamw_fused,
    adamw_eager,
)
