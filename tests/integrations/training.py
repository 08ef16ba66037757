"""The small eager training that the tests of integrations run and count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

import profiler_ext
from profiler_ext.errors import CaptureWarning
from profiler_ext.profiling.profiler import profile
from profiler_ext.records.recording import Recording
from profiler_ext.sessions.session import load
from profiler_ext.torch_compat.profilers import USE
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


Train = Callable[..., list[float]]
"""Trains four updates of two batches each, with a callback; returns the parameters."""


def holds_two_updates_of_two_batches(
    train: Train, callback: Any, folder: Path, without: list[float], optimizer: str
) -> Recording:
    """Hold what a callback records after one update against what trained; return it."""
    assert train(callback) == without
    recording: Recording = callback.profile.session.recording
    assert steps(folder) == [1, 2]
    assert calls(recording, f"Optimizer.step#{optimizer}.step") == 2
    assert calls(recording, "aten::linear") == 4
    profiler_ext.disable()
    return recording


def holds_a_failure_of_ours_back(
    train: Train, callback: Any, without: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let a step of the profiler fail: it is a warning, and the training is as without."""

    def fails(_: profile) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(profile, "step", fails)
    with pytest.warns(CaptureWarning, match="planted"):
        assert train(callback) == without
    assert not USE.is_used_by_us
    profiler_ext.disable()
