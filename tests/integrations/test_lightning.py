"""The callback of Lightning's Trainer: one step for each update, and the training as without."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import profiler_ext
from profiler_ext.errors import CaptureWarning
from profiler_ext.profiling.profiler import profile
from profiler_ext.torch_compat.profiler_use import USE
from tests.integrations.training import Model, calls, data, one_rank, parameters, steps

__all__ = ["one_rank"]


@pytest.fixture(scope="module")
def lightning() -> ModuleType:
    """Imported where the tests run, and not where they are collected: it takes seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("lightning")
        from profiler_ext.integrations import lightning
    return lightning


def _module(fails_at: int) -> Any:
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def training_step(self, batch: dict[str, torch.Tensor], number: int) -> torch.Tensor:
            if number == fails_at:
                raise KeyError("the program's own")
            return self.model(**batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Module()


def train(*callbacks: Any, fails_at: int = -1) -> list[float]:
    """Four updates of two batches each."""
    import lightning.pytorch as pl

    module = _module(fails_at)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", ".*num_workers.*")
        warnings.filterwarnings("ignore", ".*LeafSpec.*")
        trainer = pl.Trainer(
            accelerator="cpu",
            max_steps=4,
            accumulate_grad_batches=2,
            callbacks=list(callbacks),
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, torch.utils.data.DataLoader(data(8), batch_size=2))
    return parameters(module)


@pytest.fixture(scope="module")
def without(lightning: ModuleType) -> list[float]:
    return train()


def test_batches_whose_gradients_are_accumulated_are_one_step(
    lightning: ModuleType, tmp_path: Path, without: list[float]
) -> None:
    callback = lightning.ProfilerCallback(tmp_path / "out", skip=1, steps=2)
    assert train(callback) == without
    recording = callback.profile.session.recording
    assert steps(tmp_path / "out") == [1, 2]
    assert calls(recording, "Optimizer.step#SGD.step") == 2
    assert calls(recording, "aten::linear") == 4
    profiler_ext.disable()


def test_an_exception_of_the_training_is_its_own_and_leaves_what_was_recorded(
    lightning: ModuleType, tmp_path: Path
) -> None:
    callback = lightning.ProfilerCallback(tmp_path / "out", skip=1, steps=3)
    with pytest.raises(KeyError, match="the program's own"):
        train(callback, fails_at=5)
    assert not USE.by_us
    assert steps(tmp_path / "out") == [1, 2]
    profiler_ext.disable()


def test_what_fails_of_ours_is_a_warning(
    lightning: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    without: list[float],
) -> None:
    def fails(_: profile) -> None:
        raise RuntimeError("planted")

    callback = lightning.ProfilerCallback(tmp_path / "out", skip=0)
    monkeypatch.setattr(profile, "step", fails)
    with pytest.warns(CaptureWarning, match="planted"):
        assert train(callback) == without
    assert not USE.by_us
    profiler_ext.disable()
