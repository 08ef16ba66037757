"""Profiles a training loop that a library runs; a failure becomes a warning."""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch.profiler

from profiler_ext.errors import CaptureWarning, InternalError, ProfilerExtError, UsageError
from profiler_ext.isolation import guard, user_state
from profiler_ext.profiling import DEFAULT_RECORDED_STEPS, DEFAULT_SKIPPED_STEPS, switch
from profiler_ext.profiling.profiler import profile
from profiler_ext.sessions.folder import check_folder, rank_folder
from profiler_ext.sessions.output import write_outputs
from profiler_ext.sessions.session import Session

HOOK = "training"
Log = Callable[[Session, Path], object]
"""Takes a session, and the folder that it was written into."""


class TrainingProfile:
    """Profiles a few steps of a training, and writes what ``profiler-ext run`` writes.

    With several ranks each has a session, in a folder of its own; loggers get that of rank 0. If an
    exception ends a training, its recording is written at the latest when Python ends. Each
    training is profiled again and replaces the files of the one before.

    Attributes:
        session: of the last training.
        folder: where it was written.
    """

    def __init__(
        self,
        folder: str | Path = "profile_out",
        *,
        skip: int = DEFAULT_SKIPPED_STEPS,
        steps: int = DEFAULT_RECORDED_STEPS,
        force: bool = False,
        loggers: Sequence[Log] = (),
        **options: Any,
    ) -> None:
        """Switch capture on, for what is compiled before the training begins.

        Args:
            folder: where the files go; ranks have folders of their own in it.

        Raises:
            UsageError: There are no such steps, or a session is in the way.
            OutputError: The folder cannot be written.
            TorchCapabilityError: This torch does not fit capture.
        """
        if steps < 1 or skip < 0:
            raise UsageError(f"steps is 1 or more and skip 0 or more; found {steps} and {skip}")
        self.session: Session | None = None
        self._parent_folder = Path(folder).absolute()
        self.folder = self._parent_folder / rank_folder()
        check_folder(self.folder, force=force, replace="give force=True", other="as folder=")
        self._skip, self._steps = skip, steps
        self._loggers = tuple(loggers)
        self._options = options
        self._guard = guard.Guard()
        self._running: profile | None = None
        switch.enable()

    def start(self) -> None:
        """Begin; a training that never ended is ended."""
        self.stop()
        self._try(self._start)

    def step(self) -> None:
        """End a step: the parameters were updated."""
        if self._running is not None:
            self._try(self._step, self._running)

    def stop(self) -> None:
        """End, and write the recording if that is not done yet."""
        if (running := self._release()) is not None:
            self._try(self._end, running)

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs, without what is running here."""
        return {**vars(self), "_running": None, "_guard": None, "session": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin in another process, or as a copy."""
        vars(self).update(state, _guard=guard.Guard())
        self._try(switch.enable)

    def _start(self) -> None:
        self.session = None
        self.folder = self._parent_folder / rank_folder()
        schedule = _schedule(self._skip, self._steps)
        started_profile = profile(schedule=schedule, on_trace_ready=self._keep, **self._options)
        started_profile.start()
        self._running = started_profile
        atexit.register(self.stop)

    def _release(self) -> profile | None:
        running, self._running = self._running, None
        atexit.unregister(self.stop)
        return running

    def _step(self, running: profile) -> None:
        try:
            running.step()
        except BaseException:
            self._release()
            self._try(running.stop)
            raise
        if running.sessions or running.refusal is not None or running.lost is not None:
            self.stop()

    def _end(self, running: profile) -> None:
        try:
            running.stop()
        finally:
            if not running.sessions:
                self._raise_reason(running)

    def _raise_reason(self, running: profile) -> None:
        if running.lost is not None:
            raise InternalError(f"there is no session of the training ({running.lost})")
        if running.refusal is None:  # warned of when it came
            raise UsageError(
                f"the training ended after {running.step_num} steps, before the first recorded "
                f"one, and skip is {self._skip}: nothing was recorded; give a smaller skip"
            )

    def _keep(self, ended: profile) -> None:
        self.session = ended.session
        is_first = ended.session.recording.settings.rank in (None, 0)
        for work in (write_outputs, *(self._loggers if is_first else ())):
            self._try(_isolated, work, ended.session, self.folder)

    def _try(self, work: Callable[..., object], *arguments: Any) -> None:
        """Run work whose failure must not reach the training."""
        self._guard.run(HOOK, _with_warning, work, *arguments)


def _with_warning(work: Callable[..., object], *arguments: Any) -> None:
    try:
        work(*arguments)
    except ProfilerExtError as error:
        warnings.warn(str(error), CaptureWarning, stacklevel=5)


def _isolated(work: Log, session: Session, folder: Path) -> None:
    with user_state.isolated():
        work(session, folder)


def _schedule(skip: int, steps: int) -> Callable[[int], torch.profiler.ProfilerAction]:
    """Record some steps after others, the last of which warms the profiler up."""
    warmup = min(skip, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns where nothing warms up
        return torch.profiler.schedule(wait=skip - warmup, warmup=warmup, active=steps, repeat=1)
