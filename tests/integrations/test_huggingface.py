"""The callback of Hugging Face's Trainer: one step for each update, and the training as without."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.integrations.training import (
    Model,
    data,
    holds_a_failure_of_ours_back,
    holds_two_updates_of_two_batches,
    one_rank,
    parameters,
)

__all__ = ["one_rank"]


@pytest.fixture(scope="module")
def huggingface() -> ModuleType:
    """Imported where the tests run, and not where they are collected: it takes seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("accelerate")
        pytest.importorskip("transformers")
        from profiler_ext.integrations import huggingface
    return huggingface


def train(folder: Path, *callbacks: Any) -> list[float]:
    """Four updates of two batches each."""
    import transformers

    model = Model()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", ".*pin_memory.*", UserWarning)
        arguments = transformers.TrainingArguments(
            output_dir=str(folder / "checkpoints"),
            max_steps=4,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            use_cpu=True,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_strategy="no",
        )
        transformers.Trainer(
            model, arguments, train_dataset=data(8), callbacks=list(callbacks)
        ).train()
    return parameters(model)


@pytest.fixture(scope="module")
def without(huggingface: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return train(tmp_path_factory.mktemp("without"))


def test_batches_whose_gradients_are_accumulated_are_one_step(
    huggingface: ModuleType, tmp_path: Path, without: list[float]
) -> None:
    callback = huggingface.ProfilerCallback(tmp_path / "out", skip=1, steps=2)
    recording = holds_two_updates_of_two_batches(
        partial(train, tmp_path), callback, tmp_path / "out", without, "AdamW"
    )
    assert recording.settings.step_source == "prof.step"


def test_what_fails_of_ours_is_a_warning(
    huggingface: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    without: list[float],
) -> None:
    callback = huggingface.ProfilerCallback(tmp_path / "out", skip=0)
    holds_a_failure_of_ours_back(partial(train, tmp_path), callback, without, monkeypatch)
