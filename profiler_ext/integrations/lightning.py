"""A callback and a profiler for Lightning's ``Trainer``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from profiler_ext.exporters.extras import LIGHTNING

LIGHTNING.require("profiler_ext.integrations.lightning")

from lightning.pytorch.callbacks import Callback  # noqa: E402
from lightning.pytorch.profilers import Profiler  # noqa: E402

from profiler_ext.integrations.training import TrainingProfile  # noqa: E402


class ProfilerCallback(Callback):
    """Profiles a few steps of a ``Trainer``.

    A step ends with the batch after which the optimizer has stepped, after all batches whose
    gradients it accumulates and all optimizers of one batch.

    Attributes:
        profile: has the session and the folder.
    """

    def __init__(self, folder: str | Path = "profile_out", **options: Any) -> None:
        self.profile = TrainingProfile(folder, **options)
        self._updates = 0

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        """Begin."""
        self._updates = trainer.global_step
        self.profile.start()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """End a step, if the optimizer has stepped."""
        if trainer.global_step != self._updates:
            self._updates = trainer.global_step
            self.profile.step()

    def on_train_end(self, *_: Any) -> None:
        """End."""
        self.profile.stop()

    def on_exception(self, *_: Any) -> None:
        """End, and keep what was recorded until the exception."""
        self.profile.stop()


_BATCH, _FIT = "run_training_batch", "fit"
_UPDATE = ("optimizer_step", ".optimizer_step")
_EVALUATES = (".validation_step", ".test_step", ".predict_step")


class LineProfiler(Profiler):
    """Profiles a few steps of what a ``Trainer`` runs: ``Trainer(profiler=LineProfiler("out"))``.

    It replaces ``PyTorchProfiler``. A step of ``fit`` ends with the batch after which an optimizer
    has stepped, one of ``validate``, ``test`` and ``predict`` with each batch; these are written
    into a folder of their name. The summary is a report by module.

    Attributes:
        profiled: has the session and the folder, of what ran last.
    """

    def __init__(
        self,
        folder: str | Path = "profile_out",
        dirpath: str | Path | None = None,
        filename: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(dirpath=dirpath, filename=filename)
        self._folder, self._options = Path(folder), options
        self._profiles: dict[str, TrainingProfile] = {}
        self.profiled = self._profiles[_FIT] = TrainingProfile(folder, **options)
        self._is_running = self._has_updated = False

    def setup(self, stage: str, *more: Any, **named: Any) -> None:
        """Begin with a stage."""
        super().setup(stage, *more, **named)
        self._end()
        name = str(getattr(stage, "value", stage))  # Lightning gives its own enumeration
        if name not in self._profiles:
            self._profiles[name] = TrainingProfile(self._folder / name, **self._options)
        self.profiled = self._profiles[name]

    def start(self, action_name: str) -> None:
        """Begin with the first batch."""
        if not self._is_running and self._is_batch(action_name):
            self._is_running = True
            self.profiled.start()

    def stop(self, action_name: str) -> None:
        """End a step, if one is over."""
        self._has_updated |= action_name == _UPDATE[0] or action_name.endswith(_UPDATE[1])
        if self._is_batch(action_name) and (self._has_updated or self._stage != _FIT):
            self._has_updated = False
            self.profiled.step()

    def summary(self) -> str:
        """End, and return the report by module, if anything was recorded."""
        self._end()
        session = self.profiled.session
        return "" if session is None else session.report("module")

    def teardown(self, stage: str | None) -> None:
        """End."""
        self._end()
        super().teardown(stage)

    def _end(self) -> None:
        for each in self._profiles.values():
            each.stop()
        self._is_running = self._has_updated = False

    def _is_batch(self, action: str) -> bool:
        if self._stage == _FIT:
            return action == _BATCH
        return action.startswith("[Strategy]") and action.endswith(_EVALUATES)
