"""The callback for Hugging Face's ``Trainer``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from profiler_ext.exporters.extras import HUGGINGFACE

HUGGINGFACE.require("profiler_ext.integrations.huggingface")

from transformers import TrainerCallback  # noqa: E402

from profiler_ext.integrations.training import TrainingProfile  # noqa: E402


class ProfilerCallback(TrainerCallback):
    """Profiles a few steps of a ``Trainer``.

    A step ends when the optimizer has stepped, after all batches whose gradients it accumulates.
    The ``Trainer`` calls no callback on an exception; the recording is then written when Python
    ends, when the next training begins, or by ``callback.profile.stop()``.

    Attributes:
        profile: has the session and the folder.
    """

    def __init__(self, folder: str | Path = "profile_out", **options: Any) -> None:
        self.profile = TrainingProfile(folder, **options)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Begin."""
        self.profile.start()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """End a step; ``on_substep_end`` is for the batches in between."""
        self.profile.step()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """End."""
        self.profile.stop()
