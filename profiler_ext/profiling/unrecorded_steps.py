"""The times of the steps before a recording, in which no profiler was on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, NamedTuple

from profiler_ext.torch_compat.accelerator import device_event, elapsed_ns
from profiler_ext.torch_compat.profilers import USE

_MAX_STEPS = 50
_MIN_STEPS = 3  # for a median


class StepTimes(NamedTuple):
    """How long steps took."""

    took_ns: tuple[int, ...] = ()
    on_device: bool = False  # by the device's clock


class Mark(NamedTuple):
    """A point in the program's time."""

    time_ns: int
    device: Any | None  # an event on the device's stream

    @classmethod
    def here(cls) -> Mark:
        """Return a mark of this point."""
        return cls(perf_counter_ns(), device_event())

    def until_ns(self, end: Mark) -> int | None:
        """Return the time to a later mark, by the device's clock; ``None`` while it is unknown."""
        if self.device is None or end.device is None:
            return end.time_ns - self.time_ns
        return elapsed_ns(self.device, end.device)


class UnrecordedSteps:
    """Times the last steps in which nothing was recorded.

    A recording slows the CPU, so it does not show the step time in training. The steps before it
    do, on the device's clock: a program runs ahead of the device. Without a device the program's
    clock is used.
    """

    def __init__(self, is_recorded: Callable[[], bool] = lambda: USE.is_in_use) -> None:
        self._is_recorded = is_recorded
        self._steps: deque[tuple[Mark, Mark]] = deque(maxlen=_MAX_STEPS)
        self._open_step: Mark | None = None

    def begin(self) -> None:
        """Begin a step."""
        self._open_step = None if self._is_recorded() else Mark.here()

    def end(self) -> None:
        """End a step; it counts if no profiler was on at either end."""
        if self._open_step is not None and not self._is_recorded():
            self._steps.append((self._open_step, Mark.here()))
        self._open_step = None

    @property
    def times(self) -> StepTimes:
        """The times of the last steps that the device has finished.

        The first half is left out where enough are left: a program gets faster for some ten steps.
        """
        on_device = [each for each in self._steps if None not in (each[0].device, each[1].device)]
        ended = [start.until_ns(end) for start, end in on_device or self._steps]
        took_ns = [each for each in ended if each is not None]
        kept = max(_MIN_STEPS, len(took_ns) // 2)
        return StepTimes(tuple(took_ns[-kept:]), bool(on_device))
