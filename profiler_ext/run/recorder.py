"""Owns the profiler of ``profiler-ext run``: which steps it records, and that they are kept.

While the program has a profiler of its own on, nothing is recorded, and the asked number of steps
after it is recorded instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torch.profiler import ProfilerAction

from profiler_ext.capture.hooks.installing import Capture
from profiler_ext.errors import ProfilerExtError
from profiler_ext.isolation.signal_answers import is_answer
from profiler_ext.isolation.undisturbed import undisturbed
from profiler_ext.profiling.profiler import RECORDING, profile
from profiler_ext.run.step_ends import StepEnds
from profiler_ext.sessions.session import Session
from profiler_ext.torch_compat import profilers
from profiler_ext.torch_compat.profiler_use import USE


class Window:
    """Which steps are recorded.

    Attributes:
        was_moved: they are later ones than were asked for.
    """

    def __init__(self, skip: int, steps: int) -> None:
        """Record ``steps`` steps after ``skip``.

        Args:
            skip: steps that are not recorded.
            steps: steps that are recorded then.
        """
        self.was_moved = False
        self._first = skip
        self._steps = steps
        self._warmup = min(skip, 1)

    def __call__(self, step: int) -> ProfilerAction:
        """Say what is done in a step; where another profiler is on, later ones are recorded."""
        position = step - self._first
        if not -self._warmup <= position < self._steps:
            return ProfilerAction.NONE
        if USE.by_others:
            self.move_behind(step)
            return ProfilerAction.NONE
        if position < 0:
            return ProfilerAction.WARMUP
        is_last = position == self._steps - 1
        return ProfilerAction.RECORD_AND_SAVE if is_last else ProfilerAction.RECORD

    def move_behind(self, step: int) -> None:
        """Record the asked number of steps after this one and one that warms up."""
        self.was_moved = True
        self._warmup = 1
        self._first = step + 2

    def has_begun(self, step: int) -> bool:
        """Whether a step, or one before it, is recorded."""
        return step >= self._first

    def is_over(self, step: int) -> bool:
        """Whether nothing is recorded from a step on."""
        return step >= self._first + self._steps


class Recorder:
    """Records steps of the program and hands over what there is to keep.

    Attributes:
        session: what was kept.
        failure: what went wrong in recording or keeping.
        ends: what ends the program's steps.
        window: the steps to record.
    """

    def __init__(
        self,
        capture: Capture,
        window: Window,
        keep: Callable[[Session], None],
        on_step: Callable[[], None],
        *,
        user_roots: tuple[str, ...],
        step_on: str | None,
        lines: bool,
        shapes: bool = False,
        source: bool = True,
    ) -> None:
        """Prepare.

        Args:
            capture: the capture that is on.
            window: the steps to record.
            keep: writes a session.
            on_step: called when a step has ended.
            user_roots: folders whose files are the user's own.
            step_on: class name of the optimizer that ends a step.
            lines: watch which lines run.
            shapes: record the shapes of eager ops' inputs.
            source: keep text of source.
        """
        self.session: Session | None = None
        self.failure: Exception | None = None
        self.window = window
        self._keep = keep
        self._on_step = on_step
        self._part: Session | None = None
        self._process = os.getpid()
        self._profiler = _ProfilerOfRun(
            self,
            schedule=window,
            acc_events=True,
            user_roots=user_roots,
            lines=lines,
            record_shapes=shapes,
            source=source,
        )
        self.ends = StepEnds(capture, self._step, self._profiler, step_on)

    @property
    def is_in_child(self) -> bool:
        """Whether this process was forked from the one that records."""
        return os.getpid() != self._process

    @property
    def lost(self) -> str | None:
        """What of ours failed, so that there is no session of what was recorded."""
        return None if self.session is not None else self._profiler.lost

    @property
    def has_recorded(self) -> bool:
        """Whether steps were recorded, kept or not."""
        has_begun = self.window.has_begun(self.ends.count)
        return self.session is not None or (self._profiler.has_trace and has_begun)

    @property
    def has_something(self) -> bool:
        """Whether something is recorded, or was, that is not kept yet."""
        return self._profiler.is_recording or self._part is not None

    def start(self) -> None:
        """Begin, before the program does."""
        self._profiler.start()
        self.ends.watch()

    def stop(self) -> None:
        """End, and keep what was recorded."""
        if self.is_in_child:
            return
        self.ends.leave()
        self._try(self._profiler.stop)
        if self.session is None and (part := self._part) is not None:
            with undisturbed():
                self.take(part)

    def refuse(self, error: Exception) -> None:
        """Have it that what was recorded cannot be kept."""
        self.failure = self.failure or error

    def take(self, session: Session) -> None:
        """Keep a session; one that another profiler ended waits for a whole one."""
        if self._profiler.was_ended:
            self._part = session
            return
        self._part = None
        self._try(lambda: self._keep(session))
        if self.failure is None:
            self.session = session

    def _step(self) -> None:
        self._profiler.step_source = self.ends.source
        self._try(self._profiler.step)
        self._on_step()

    def _try(self, work: Callable[[], object]) -> None:
        """Do what the program must not feel a failure of."""
        try:
            work()
        except Exception as error:
            if is_answer(error):
                raise
            self.refuse(error)


class _ProfilerOfRun(profile):
    """The profiler of a recorder."""

    def __init__(self, recorder: Recorder, **options: Any) -> None:
        self._recorder = recorder
        super().__init__(**options)
        self._mark_steps(0)

    def step(self) -> None:
        self._mark_steps(self.step_num + 1)
        super().step()

    def _mark_steps(self, step: int) -> None:
        """Mark recorded steps only: a profiler of the program's would see the others' marks."""
        profilers.mark_steps(self, self.schedule(step) is not ProfilerAction.NONE)

    def step_aside(self) -> None:
        if self.is_prepared:
            super().step_aside()
            self._recorder.window.move_behind(self.step_num)

    def deliver(self) -> None:
        self._guard.run(RECORDING, self._recorder.take, self.sessions[-1])

    def refuse(self, error: ProfilerExtError) -> None:
        self._recorder.refuse(error)

    def leave_to_parent(self) -> None:
        super().leave_to_parent()
        with suppress(Exception):
            self._recorder.ends.leave()
