"""Which steps are recorded: by number or time, once or repeatedly, or because they are slow."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch.profiler import ProfilerAction

from profiler_ext.profiling import DEFAULT_RECORDED_STEPS, DEFAULT_SKIPPED_STEPS
from profiler_ext.profiling.unrecorded_steps import Mark
from profiler_ext.run.request import Amount, Repeats
from profiler_ext.torch_compat.profilers import USE

_MIN_STEPS = 5
"""The steps needed before one can be slow."""
_MEDIAN_WINDOW = 50
_SETTLING_STEPS = 4
"""Steps after an early recording: one that it still slows down, and three to be timed."""
_MAX_SETTLING_STEPS = 12
_SETTLING_S = 1.0
"""Short steps get faster for some ten calls, so up to so many are let go by in this time."""
_AFTER_PREFILL = 3
"""Steps after a prefill that are let go by: CUDA graphs are recorded again for a new cache."""
_PREFILL_WAIT_S = 10.0
"""Where no prefill is among the recorded steps, one that begins so soon after them is recorded."""


@dataclass(slots=True)
class MissedSteps:
    """Slow steps in which nothing was recorded, after recordings had begun."""

    count: int = 0
    last: int = 0  # its number
    had_open_region: bool = False  # at the last one, which kept the next recording from starting

    def add(self, step: int, had_open_region: bool) -> None:
        """Count a step."""
        self.count, self.last, self.had_open_region = self.count + 1, step, had_open_region


class FinishedStep(NamedTuple):
    """A step that is over for the program, but perhaps not for the device."""

    number: int
    begun: Mark
    ended: Mark
    is_recorded: bool
    is_awaited: bool  # recordings have begun, so it could have been in one
    has_open_region: bool  # which keeps the next recording from starting


class SlowStepDetector:
    """Compares the times of the last steps, each once the device has finished it."""

    def __init__(self, slow: float) -> None:
        self._slow = slow
        self._took_ns: deque[int] = deque(maxlen=_MEDIAN_WINDOW)
        self._pending: deque[FinishedStep] = deque()
        self.worst = 0.0  # the largest multiple of the median, of the steps recorded since `begin`
        self.missed = MissedSteps()

    def begin(self) -> None:
        """Compare the recorded steps from here on."""
        self.worst = 0.0

    def step(self, step_record: FinishedStep) -> None:
        """Compare a step with those before it."""
        self._pending.append(step_record)
        self.settle()

    def settle(self) -> None:
        """Compare the steps that the device has finished."""
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
    """The steps to record: a schedule for torch's profiler.

    While another profiler is on, nothing is recorded, and later steps are recorded instead. Times
    are decided once at the end of each step: the last recorded step is the one in which the time
    will be over if it takes as long as the one before. On a device the step before the first one is
    recorded too, without a mark: the profiler's start drains the device's queue and slows the CPU,
    so the first step is longer.

    Where nobody knows how many steps are to come, the first ones after the one that compiles are
    recorded early, for a script that ends before the requested ones. Where the loops around the
    first step have too few steps for the requested ones, the last of theirs are recorded.

    Of a program that generates tokens, a prefill is recorded too: if none is among the requested
    steps, the next that begins soon, and the requested number of steps once some more are over,
    are recorded in their place.
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
        may_be_short: Callable[[], bool] = lambda: False,
        expected_steps: Callable[[], int | None] = lambda: None,
    ) -> None:
        # ``is_learning``: CUDA graphs' first calls are still to be profiled on their own, which
        # they cannot be while torch's profiler warms up.
        self.was_postponed = False  # to later steps than requested
        self.prefills = 0  # that began
        self.has_prefill = False  # is among the recorded steps
        self._counted_apart: int | None = None  # the last step that is not among the requested
        # First and last of the requested steps, where others with a prefill are recorded
        self._requested: tuple[int | None, int | None] | None = None
        self._over_s: float | None = None  # when the requested steps were over
        self._steps, self._repeats, self._now = steps, repeats, now
        self._has_open_region, self._is_learning = has_open_region, is_learning
        self._on_device, self._may_be_short = on_device, may_be_short
        self._expected_steps = expected_steps
        self.expected: int | None = None  # steps, where they are too few for the requested ones
        self._early = range(0)  # steps
        self._is_settling = False  # after them, until the requested ones
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
        """Return the action for a step; with another profiler on, later steps are recorded."""
        if step > self._updated_step:
            self._update(step)
        if self.is_early(step):
            is_last = step == self._early[-1]
            return ProfilerAction.RECORD_AND_SAVE if is_last else ProfilerAction.RECORD
        if self.first is None or step < self.first - self._warmup or self.is_over(step):
            return ProfilerAction.NONE
        if USE.is_used_by_others:
            self.postpone_after(step)
            return ProfilerAction.NONE
        if step < self.first:
            is_lead_in = step > 0 and self._on_device()
            return ProfilerAction.RECORD if is_lead_in else ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if step == self._last else ProfilerAction.RECORD

    def is_marked(self, step: int) -> bool:
        """Whether a step is one of the requested ones, or recorded in their place."""
        if self.is_early(step):
            return True
        if self.first is None or step < self.first or self.is_over(step):
            return False
        has_settled = step == self.first or step > self.first + _AFTER_PREFILL
        return self._requested is None or has_settled

    def is_early(self, step: int) -> bool:
        """Whether a step is recorded in case that the script ends before the requested ones."""
        return step in self._early

    def ended_early(self, step: int) -> bool:
        """Whether a recording that ends where a step begins is an early one, with a whole step."""
        return bool(self._early) and self._early.start < step <= self._early.stop

    def postpone_after(self, step: int) -> None:
        """Record the requested number of steps after this one and a warm-up."""
        self.was_postponed = True
        self._warmup = 1
        self._begin_at(step + 2)

    def prefill_begins(self, step: int) -> None:
        """Record from a step on, a prefill, if the requested steps were over and had none."""
        self.prefills += 1
        if self._steps.steps is not None and self.awaits_prefill(step):
            self._warmup, self._requested = 0, (self.first, self._last)
            self._begin_at(step)
            self._last = step + _AFTER_PREFILL + self._steps.steps - 1
        if self._records(step):
            self.has_prefill = True
            self._one_more_for(step)

    def return_to_requested(self) -> None:
        """Let the requested steps be those that were recorded: the ones with a prefill are not."""
        if self._requested is not None:
            self.first, self._last = self._requested
            self._requested, self.has_prefill = None, False

    def unusual_step(self, step: int) -> None:
        """Record one step more, as a recorded one that ends generated no token."""
        if self._records(step) and step != self._last and step != self._counted_apart:
            self._one_more_for(step)

    def _records(self, step: int) -> bool:
        return not self.is_early(step) and self.is_marked(step)

    def _one_more_for(self, step: int) -> None:
        self._counted_apart = step
        self._last = None if self._last is None else self._last + 1

    def awaits_prefill(self, step: int) -> bool:
        """Whether the requested steps are over since a short time, and none was a prefill."""
        if self.has_prefill or self._repeats is not None or not self.is_over(step):
            return False
        if self._over_s is None:
            self._over_s = self._now()
        return self._now() - self._over_s < _PREFILL_WAIT_S

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
        """Decide what depends on the time, and what follows a recording."""
        now = self._now()
        before_s, self._updated_s = now - self._updated_s, now
        self._updated_step = step
        if step == 1:
            (self._record_early if self._may_be_short() else self._record_expected)()
        if self._is_settling:
            self._settle(step, now)
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

    def _record_early(self) -> None:
        is_soon = self.first is not None and self.first < DEFAULT_SKIPPED_STEPS
        if is_soon or USE.is_used_by_others or self._is_learning():
            return
        self._early = range(1, 1 + min(self._steps.steps or 1, DEFAULT_RECORDED_STEPS))
        if self.first is not None:  # between the two, some are timed, and one is the warm-up
            least = self._early.stop + _SETTLING_STEPS + 1
            self._is_settling = self.first <= least
            self._begin_at(max(self.first, least))

    def _record_expected(self) -> None:
        if self.first is None or self.first <= 1 or self._repeats is not None:
            return
        expected = self._expected_steps()
        if expected is None or not 1 < expected <= self.first:
            return
        self.expected = expected
        # The step before is recorded too on a device, and is not the one that compiles.
        least = 2 if expected > 2 and self._on_device() else 1
        self._begin_at(max(least, expected - (self._steps.steps or 1)))

    def _settle(self, step: int, now: float) -> None:
        """Begin a step later while short steps may still get faster."""
        settled = step - self._early.stop
        if settled <= 1:
            self._settling_since_s = now
        elif self.first is not None and step + self._warmup == self.first:
            is_short = now - self._settling_since_s < _SETTLING_S
            self._is_settling = is_short and settled < _MAX_SETTLING_STEPS
            self._begin_at(self.first + self._is_settling)

    def _begin_again(self, step: int) -> None:
        """Record again, after a step in which all ranges of the last recording can end."""
        every = self._repeats.every if self._repeats is not None else None
        first = step if every is None or self.first is None else self.first + every
        self._warmup = 1
        self._begin_at(max(first, step + 1))
