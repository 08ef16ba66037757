"""Owns the callback for Lightning's ``Trainer``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from profiler_ext.exporters.extras import LIGHTNING

LIGHTNING.require("profiler_ext.integrations.lightning")

from lightning.pytorch.callbacks import Callback  # noqa: E402

from profiler_ext.integrations.training import TrainingProfile  # noqa: E402


class ProfilerCallback(Callback):
    """Profiles a few steps of a ``Trainer``.

    A step ends with the batch after which the optimizer has stepped: those whose gradients it
    accumulates are one, and so are the optimizers of one batch.

    Attributes:
        profile: has the session and the folder.
    """

    def __init__(self, folder: str | Path = "profile_out", **options: Any) -> None:
        """Prepare.

        Args:
            folder: where the files go.
            **options: what :class:`~profiler_ext.integrations.training.TrainingProfile` takes.
        """
        self.profile = TrainingProfile(folder, **options)
        self._updates = 0

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        """Begin.

        Args:
            trainer: has the number of updates.
            *_: what else every callback is given.
        """
        self._updates = trainer.global_step
        self.profile.start()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """End a step, if the optimizer has stepped.

        Args:
            trainer: has the number of updates.
            *_: what else every callback is given.
        """
        if trainer.global_step != self._updates:
            self._updates = trainer.global_step
            self.profile.step()

    def on_train_end(self, *_: Any) -> None:
        """End."""
        self.profile.stop()

    def on_exception(self, *_: Any) -> None:
        """End, and keep what was recorded until the exception."""
        self.profile.stop()
