"""Times the steps before a recording, in which no profiler was on.

A recording slows the CPU, so it does not say by itself how long a step takes in training. The
steps before it do, on the device's clock: a program that does not wait for the device is through
with its own part of a step sooner or later than the device. Without a device the program's clock
counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, NamedTuple

from profiler_ext.torch_compat.accelerator import device_event, elapsed_ns
from profiler_ext.torch_compat.profilers import USE

_MAX_STEPS = 50


class StepTimes(NamedTuple):
    """How long steps took.

    Attributes:
        took_ns: each of them.
        on_device: by the device's clock, and not by the program's.
    """

    took_ns: tuple[int, ...] = ()
    on_device: bool = False


class Mark(NamedTuple):
    """A point of the program.

    Attributes:
        time_ns: by the program's clock.
        device: the mark on the device's stream, where there is one.
    """

    time_ns: int
    device: Any | None

    @classmethod
    def here(cls) -> Mark:
        """Return a mark of this point."""
        return cls(perf_counter_ns(), device_event())

    def until_ns(self, end: Mark) -> int | None:
        """Return the time to a later mark, by the device; ``None`` while it is not there yet."""
        if self.device is None or end.device is None:
            return end.time_ns - self.time_ns
        return elapsed_ns(self.device, end.device)


class UnrecordedSteps:
    """Times the steps in which nobody records, and remembers the last ones."""

    def __init__(self, is_recorded: Callable[[], bool] = lambda: USE.is_in_use) -> None:
        self._is_recorded = is_recorded
        self._steps: deque[tuple[Mark, Mark]] = deque(maxlen=_MAX_STEPS)
        self._open_step: Mark | None = None

    def begin(self) -> None:
        """Begin a step."""
        self._open_step = None if self._is_recorded() else Mark.here()

    def end(self) -> None:
        """End a step; it counts where no profiler was on at either end."""
        if self._open_step is not None and not self._is_recorded():
            self._steps.append((self._open_step, Mark.here()))
        self._open_step = None

    @property
    def times(self) -> StepTimes:
        """How long the last ones took, as far as the device is through with them."""
        on_device = [each for each in self._steps if None not in (each[0].device, each[1].device)]
        took = [start.until_ns(ended) for start, ended in on_device or self._steps]
        return StepTimes(tuple(each for each in took if each is not None), bool(on_device))
