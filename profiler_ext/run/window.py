"""Which steps are recorded: by number or time, once or again, or because they are slow."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch.profiler import ProfilerAction

from profiler_ext.profiling.unrecorded_steps import Mark
from profiler_ext.run.request import Amount, Repeats
from profiler_ext.torch_compat.profilers import USE

_MIN_STEPS = 5
"""So many steps must have been seen before one can be slow."""
_MEDIAN_WINDOW = 50


@dataclass(slots=True)
class MissedSteps:
    """Slow steps in which nothing was recorded, though recordings had begun.

    Attributes:
        count: how many.
        last: the number of the last one.
        had_open_region: then, a region of the program's kept the next recording from its begin.
    """

    count: int = 0
    last: int = 0
    had_open_region: bool = False

    def add(self, step: int, had_open_region: bool) -> None:
        """Count a step."""
        self.count, self.last, self.had_open_region = self.count + 1, step, had_open_region


class FinishedStep(NamedTuple):
    """A step that is over for the program, and maybe not for the device.

    Attributes:
        number: its number.
        begun, ended: its marks.
        is_recorded: it is one of a recording.
        is_awaited: recordings have begun, so it could have been one.
        has_open_region: a region of the program's keeps the next recording from its begin.
    """

    number: int
    begun: Mark
    ended: Mark
    is_recorded: bool
    is_awaited: bool
    has_open_region: bool


class SlowStepDetector:
    """How long the last steps took, each as soon as the device is through with it.

    Attributes:
        worst: of the steps recorded since :meth:`begin`, the largest multiple of the median before.
        missed: slow steps in which nothing was recorded.
    """

    def __init__(self, slow: float) -> None:
        """Remember no step yet."""
        self._slow = slow
        self._took_ns: deque[int] = deque(maxlen=_MEDIAN_WINDOW)
        self._pending: deque[FinishedStep] = deque()
        self.worst = 0.0
        self.missed = MissedSteps()

    def begin(self) -> None:
        """Look at the recorded steps from here on."""
        self.worst = 0.0

    def step(self, step_record: FinishedStep) -> None:
        """Compare a step with those before it."""
        self._pending.append(step_record)
        self.settle()

    def settle(self) -> None:
        """Compare the steps that the device is through with by now."""
        while self._pending:
            first = self._pending[0]
            took_ns = first.begun.until_ns(first.ended)
            if took_ns is None:
                return
            self._pending.popleft()
            self._compare(first, took_ns)

    def _compare(self, step_record: FinishedStep, took_ns: int) -> None:
        is_known = len(self._took_ns) >= _MIN_STEPS
        multiple = took_ns / max(statistics.median(self._took_ns), 1) if is_known else 0.0
        self._took_ns.append(took_ns)
        if step_record.is_recorded:
            self.worst = max(self.worst, multiple)
        elif step_record.is_awaited and multiple > self._slow:
            self.missed.add(step_record.number, step_record.has_open_region)


class Window:
    """The steps that are recorded; a schedule for torch's profiler.

    While another profiler is on, nothing is recorded, and the asked steps after it are recorded
    instead. What is asked for as a time is decided at the end of a step, once for each: the last
    recorded step is the one in which, as long as the one before it, the time is over.

    On a device the step before the first one is recorded too, without a mark. The profiler's own
    start drains the device's queue and slows the CPU for a step, so the first step that it records
    is longer than those after it; this one leads in, and is not counted.

    Attributes:
        was_postponed: they are later ones than were asked for.
        first: the first recorded step; ``None`` while that is not known.
    """

    def __init__(
        self,
        skip: Amount,
        steps: Amount,
        repeats: Repeats | None = None,
        has_open_region: Callable[[], bool] = lambda: False,
        is_learning: Callable[[], bool] = lambda: False,
        now: Callable[[], float] = time.monotonic,
        on_device: Callable[[], bool] = lambda: False,
    ) -> None:
        """Record ``steps`` after ``skip``.

        Args:
            is_learning: tells whether CUDA graphs are to be made of which it is not known yet what
                their library calls launch: the calls that make them are profiled by themselves,
                which they cannot be while torch's profiler warms up.
        """
        self.was_postponed = False
        self._steps, self._repeats, self._now = steps, repeats, now
        self._has_open_region, self._is_learning, self._on_device = (
            has_open_region,
            is_learning,
            on_device,
        )
        self._skip_s = skip.seconds
        self._began_s = self._updated_s = now()
        self._updated_step = -1
        self._has_begun = False
        self._warmup = 0 if skip.is_nothing else 1
        self.first: int | None = None
        self._last: int | None = None
        if skip.steps is not None or skip.is_nothing:
            self._begin_at(skip.steps or 0)

    def __call__(self, step: int) -> ProfilerAction:
        """Say what is done in a step; where another profiler is on, later ones are recorded."""
        if step > self._updated_step:
            self._update(step)
        if self.first is None or step < self.first - self._warmup or self.is_over(step):
            return ProfilerAction.NONE
        if USE.is_used_by_others:
            self.postpone_after(step)
            return ProfilerAction.NONE
        if step < self.first:
            return ProfilerAction.RECORD if self._is_lead_in(step) else ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if step == self._last else ProfilerAction.RECORD

    def _is_lead_in(self, step: int) -> bool:
        """Tell whether the step before the first is recorded; the very first one compiles."""
        return step > 0 and self._on_device()

    def is_marked(self, step: int) -> bool:
        """Whether a step is one of those that were asked for."""
        return self.first is not None and step >= self.first and not self.is_over(step)

    def postpone_after(self, step: int) -> None:
        """Record the asked number of steps after this one and one that warms up."""
        self.was_postponed = True
        self._warmup = 1
        self._begin_at(step + 2)

    def has_begun(self, step: int) -> bool:
        """Whether a step, or one before it, is recorded."""
        return self._has_begun or (self.first is not None and step >= self.first)

    def is_over(self, step: int) -> bool:
        """Whether nothing is recorded from a step on."""
        return self._last is not None and step > self._last

    def _begin_at(self, step: int) -> None:
        self.first = step
        self._last = None if self._steps.steps is None else step + self._steps.steps - 1

    def _update(self, step: int) -> None:
        """Decide what only the time can tell, and what comes after a recording."""
        now = self._now()
        before_s, self._updated_s = now - self._updated_s, now
        self._updated_step = step
        if self.first is None and now - self._began_s >= self._skip_s:
            self._begin_at(step + 1)
        if self._repeats is not None and self.is_over(step):
            self._begin_again(step)
        if step == self.first and self._has_open_region():
            self._begin_at(step + 1)
        if self.first is None or step < self.first:
            if step + self._warmup == self.first and self._is_learning():
                self._warmup = 0
            return
        if step == self.first:
            self._has_begun, self._first_s = True, now
        if self._last is None and now + before_s >= self._first_s + self._steps.seconds:
            self._last = step

    def _begin_again(self, step: int) -> None:
        """Record again, with a step between in which all ends that the last recording saw begin."""
        every = self._repeats.every if self._repeats is not None else None
        first = step if every is None or self.first is None else self.first + every
        self._warmup = 1
        self._begin_at(max(first, step + 1))
