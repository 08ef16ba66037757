"""The times of the steps before a recording, in which no profiler was on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from statistics import median_low
from time import perf_counter_ns
from typing import Any, NamedTuple

from profiler_ext.records.recording import StepCall, StepCalls
from profiler_ext.records.step_kinds import kind_of
from profiler_ext.records.vocabulary import StepKind
from profiler_ext.torch_compat.accelerator import device_event, elapsed_ns
from profiler_ext.torch_compat.profilers import USE

_MAX_STEPS = 50
_MIN_STEPS = 3  # for a median
_AHEAD = 0.95  # of the device's step, at most: then the launches have room in its queue


class StepTimes(NamedTuple):
    """How long steps took."""

    took_ns: tuple[int, ...] = ()  # of the kind that most steps are of
    on_device: bool = False  # by the device's clock
    cpu_ns: int | None = None  # by the program's clock, of those in which it ran ahead of a device
    calls: tuple[StepCalls, ...] = ()  # of each kind, those with tokens


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
    clock is used. Steps of inference that are of several kinds, prefill and decode, are kept apart.
    """

    def __init__(self, is_recorded: Callable[[], bool] = lambda: USE.is_in_use) -> None:
        self._is_recorded = is_recorded
        self._steps: dict[StepKind, deque[_TimedStep]] = {}
        self._open_step: Mark | None = None

    def begin(self) -> None:
        """Begin a step."""
        self._open_step = None if self._is_recorded() else Mark.here()

    def end(self, calls: tuple[StepCall, ...] = ()) -> None:
        """End a step, of calls with tokens; it counts if no profiler was on at either end."""
        if self._open_step is not None and not self._is_recorded():
            own = self._steps.setdefault(kind_of(calls), deque(maxlen=_MAX_STEPS))
            own.append(_TimedStep(self._open_step, Mark.here(), calls))
        self._open_step = None

    @property
    def times(self) -> StepTimes:
        """The times of the last steps that the device has finished.

        The first half is left out where enough are left: a program gets faster for some ten steps.
        """
        most = max(self._steps.values(), key=len, default=deque[_TimedStep]())
        on_device = any(each.on_device for each in most)
        took_ns = [took_ns for _, took_ns in _last(most, on_device)]
        calls = [
            StepCalls(None, step.calls, step_ns)
            for own in self._steps.values()
            for step, step_ns in _last(own, on_device)
            if step.calls
        ]
        cpu_ns = _ahead_ns(most, median_low(took_ns)) if on_device and took_ns else None
        return StepTimes(tuple(took_ns), on_device, cpu_ns, tuple(calls))


class _TimedStep(NamedTuple):
    begun: Mark
    ended: Mark
    calls: tuple[StepCall, ...]

    @property
    def on_device(self) -> bool:
        return None not in (self.begun.device, self.ended.device)


def _ahead_ns(steps: Iterable[_TimedStep], device_ns: int) -> int | None:
    """Return the usual time of the program in the steps in which it had not to wait for room."""
    own_ns = [each.ended.time_ns - each.begun.time_ns for each in steps]
    ahead_ns = [each for each in own_ns if each < _AHEAD * device_ns]
    return median_low(ahead_ns) if ahead_ns else None


def _last(steps: Iterable[_TimedStep], on_device: bool) -> list[tuple[_TimedStep, int]]:
    ended = [
        (each, took_ns)
        for each in steps
        if each.on_device >= on_device and (took_ns := each.begun.until_ns(each.ended)) is not None
    ]
    return ended[-max(_MIN_STEPS, len(ended) // 2) :]
