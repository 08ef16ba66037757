"""The callback of Lightning's Trainer: one step for each update, and the training as without."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import profiler_ext
from profiler_ext.torch_compat.profilers import USE
from tests.integrations.training import (
    Model,
    calls,
    data,
    holds_a_failure_of_ours_back,
    holds_two_updates_of_two_batches,
    one_rank,
    parameters,
    steps,
)

__all__ = ["one_rank"]
# Lightning's own words to its users, and its use of torch.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*num_workers"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec"),
]


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

        def test_step(self, batch: dict[str, torch.Tensor], _: int) -> None:
            self.model(**batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Module()


def _trainer(*callbacks: Any, **more: Any) -> Any:
    import lightning.pytorch as pl

    return pl.Trainer(
        accelerator="cpu",
        max_steps=4,
        accumulate_grad_batches=2,
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **more,
    )


def _batches() -> Any:
    return torch.utils.data.DataLoader(data(8), batch_size=2)


def train(*callbacks: Any, fails_at: int = -1, **more: Any) -> list[float]:
    """Four updates of two batches each."""
    module = _module(fails_at)
    _trainer(*callbacks, **more).fit(module, _batches())
    return parameters(module)


@pytest.fixture(scope="module")
def without(lightning: ModuleType) -> list[float]:
    return train()


def test_batches_whose_gradients_are_accumulated_are_one_step(
    lightning: ModuleType, tmp_path: Path, without: list[float]
) -> None:
    callback = lightning.ProfilerCallback(tmp_path / "out", skip=1, steps=2)
    holds_two_updates_of_two_batches(train, callback, tmp_path / "out", without, "SGD")


def test_as_the_trainers_profiler_it_records_the_same_and_says_so(
    lightning: ModuleType, tmp_path: Path, without: list[float]
) -> None:
    out, reported = tmp_path / "out", tmp_path / "reported"
    ours = lightning.LineProfiler(out, reported, "summary", skip=1, steps=2)
    assert train(profiler=ours) == without
    assert steps(out) == [1, 2]
    recording = ours.profiled.session.recording
    assert calls(recording, "Optimizer.step#SGD.step") == 2
    assert calls(recording, "aten::linear") == 4
    (summary,) = reported.iterdir()
    assert "CPU in operators" in summary.read_text()
    profiler_ext.disable()


def test_batches_of_a_test_are_steps_and_have_a_folder_of_their_own(
    lightning: ModuleType, tmp_path: Path, without: list[float]
) -> None:
    ours = lightning.LineProfiler(tmp_path / "out", skip=0, steps=2)
    trainer = _trainer(profiler=ours)
    trainer.fit(module := _module(-1), _batches())
    assert parameters(module) == without
    trainer.test(module, _batches(), verbose=False)
    assert steps(tmp_path / "out") == [0, 1]
    assert steps(tmp_path / "out" / "test") == [0, 1]
    assert calls(ours.profiled.session.recording, "aten::linear") == 2
    profiler_ext.disable()


def test_an_exception_of_the_training_is_its_own_and_leaves_what_was_recorded(
    lightning: ModuleType, tmp_path: Path
) -> None:
    callback = lightning.ProfilerCallback(tmp_path / "out", skip=1, steps=3)
    with pytest.raises(KeyError, match="the program's own"):
        train(callback, fails_at=5)
    assert not USE.is_used_by_us
    assert steps(tmp_path / "out") == [1, 2]
    profiler_ext.disable()


def test_what_fails_of_ours_is_a_warning(
    lightning: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    without: list[float],
) -> None:
    callback = lightning.ProfilerCallback(tmp_path / "out", skip=0)
    holds_a_failure_of_ours_back(train, callback, without, monkeypatch)
