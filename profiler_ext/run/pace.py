"""Owns which steps are slow, of a multiple of the running median, and which of them are missed."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from profiler_ext.profiling.unrecorded_steps import Mark

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
        """Count a step.

        Args:
            step: its number.
            had_open_region: a region was open that had begun in a recording.
        """
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
        """Remember no step yet.

        Args:
            slow: what multiple of the median makes a step slow.
        """
        self._slow = slow
        self._took_ns: deque[int] = deque(maxlen=_MEDIAN_WINDOW)
        self._pending: deque[FinishedStep] = deque()
        self.worst = 0.0
        self.missed = MissedSteps()

    def begin(self) -> None:
        """Look at the recorded steps from here on."""
        self.worst = 0.0

    def step(self, step_record: FinishedStep) -> None:
        """Compare a step with those before it.

        Args:
            passed: the step.
        """
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
