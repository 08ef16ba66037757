"""Owns the small eager training that the tests of integrations run and count."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

from profiler_ext.records import Recording
from profiler_ext.sessions.session import load
from tests.compiling import fresh_torch

__all__ = ["fresh_torch"]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": (self.layer(x) - labels).square().mean()}


def data(batches: int, rows: int = 2) -> list[dict[str, torch.Tensor]]:
    """So many batches of so many rows."""
    torch.manual_seed(1)
    given = torch.randn(2, batches * rows, 4)
    return [{"x": x, "labels": target} for x, target in zip(*given, strict=True)]


def parameters(model: nn.Module) -> list[float]:
    return torch.cat([each.detach().flatten() for each in model.parameters()]).tolist()


def calls(recording: Recording, name: str) -> int:
    """How often an op was called in what was recorded."""
    events = map(msgspec.json.decode, recording.trace.raw)
    return sum(event.get("name") == name and event.get("ph") == "X" for event in events)


def steps(folder: Path) -> list[int]:
    return [step.number for step in load(folder).analysis.steps]


@pytest.fixture(autouse=True)
def one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a training of several ranks has in its environment is not here."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
