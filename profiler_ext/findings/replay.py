"""Owns the replay of recorded steps: how long they would take with a quicker CPU, or without waits.

A recording has when the CPU gave a device what, how long each of it ran, and when the CPU waited
for the device. What the CPU does between its launches takes it less time when nobody records; a
launch runs when the CPU has come to it and the device is through with what it got before; and a
wait is over when the device is through with all. So the same steps can be laid out in time anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median_low
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profiler_ext.findings.pace import NO_ROW, CriticalPath, is_wait
from profiler_ext.records import Analysis, Ints

MAX_REPLAY_ERROR: Final = 0.1
"""Steps whose replay as they were recorded is off by more than this part are not understood."""
_TRIES = 24
Floats = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Waits:
    """When the CPU waited for the device, none before the last one was over.

    Attributes:
        start_ns: when each began.
        end_ns: when it was over.
        lag_ns: how long after the device was through.
        is_for_value: it is not the wait for a copy to the device.
    """

    start_ns: Ints
    end_ns: Ints
    lag_ns: Ints
    is_for_value: BoolArray


class Replay:
    """The steps of a recording on one device, to be laid out in time anew.

    Attributes:
        recorded_ns: the usual step as it was recorded, from one to the next on the device.
    """

    def __init__(self, analysis: Analysis, pace: CriticalPath, device: int) -> None:
        """Take what was recorded.

        Args:
            analysis: what attribution found; it has steps.
            pace: when each launch was enqueued.
            device: the device.
        """
        start_ns = np.minimum(pace.enqueued_ns, analysis.launches.start_ns)
        self._begin_ns = analysis.steps[0].cpu_start_ns
        is_own = (analysis.launches.device == device) & (start_ns >= self._begin_ns)
        rows = np.flatnonzero(is_own)
        copies = _awaited_copies(analysis, pace)
        events = analysis.recording.trace.events
        start_ns[copies] = events.start_ns[pace.call[copies]]
        rows = rows[np.argsort(start_ns[rows], kind="stable")]
        self._start_ns, self._busy_ns = start_ns[rows], pace.busy_ns[rows]
        # Of a launch that others were before, nobody knows how long it was on its way.
        late_ns = (analysis.launches.start_ns - start_ns)[rows]
        self._launch_delay_ns = np.where(pace.waited_ns[rows] > 0, late_ns, 0)
        self._waits = _waits(analysis, start_ns, copies)
        self._work_ns, self._waited = self._worked_ns(self._start_ns), self._number(self._start_ns)
        self._steps = np.array([(each.cpu_start_ns, each.cpu_end_ns) for each in analysis.steps]).T
        self._of_steps = np.searchsorted(self._start_ns, self._steps[1], side="right")
        through_ns = (analysis.launches.start_ns + analysis.launches.duration_ns)[rows]
        self.recorded_ns = self._usual(np.maximum.accumulate(through_ns) - self._begin_ns)

    def step_ns(self, slowdown: float, *, waits: bool = True) -> int:
        """Return how long the usual step would take, from one to the next on the device.

        The CPU is ahead of it by more or less, so its own steps are now shorter, now longer.

        Args:
            slowed: how many times as long the CPU took while it was recorded.
            waits: whether the CPU would still wait for values of the device.
        """
        waited = self._waited_ns(slowdown, waits=waits)
        ready_ns = self._work_ns / slowdown + self._launch_delay_ns + waited[self._waited]
        run_ns = np.cumsum(self._busy_ns)
        return self._usual(np.maximum.accumulate(ready_ns - run_ns + self._busy_ns) + run_ns)

    def _usual(self, through_ns: Floats | Ints) -> int:
        """Return the usual time of a step, given when the device was through with each launch."""
        ends_ns = np.append(0, through_ns)[self._of_steps]
        times_ns = np.diff(ends_ns) if len(ends_ns) > 1 else ends_ns
        return int(median_low(times_ns.tolist()))

    def slowdown(self, step_ns: int, most: float) -> float | None:
        """Return how many times as long the CPU took while it was recorded, at least.

        Args:
            step_ns: how long the usual step takes when it is not.
            most: no more than that.

        Returns:
            The least with which the replayed step takes no longer; ``None`` where none does.
        """
        least, upper = 1.0, most
        if self.step_ns(upper) > step_ns:
            return None
        for _ in range(_TRIES):
            middle = (least + upper) / 2
            if self.step_ns(middle) > step_ns:
                least = middle
            else:
                upper = middle
        return upper

    @property
    def worked_ns(self) -> int:
        """How long the CPU works in the usual step: it waits neither for values nor for copies."""
        begins, ends = self._worked_ns(self._steps).reshape(2, -1)
        return int(median_low((ends - begins).tolist()))

    @property
    def is_accurate(self) -> bool:
        """Whether the steps, replayed as they were recorded, take as long as recorded."""
        return abs(self.step_ns(1.0) - self.recorded_ns) <= MAX_REPLAY_ERROR * self.recorded_ns

    def _waited_ns(self, slowdown: float, *, waits: bool) -> Floats:
        """Return how long the CPU has waited in all, before the first wait and after each."""
        own, waited, through = self._waits, [0.0], 0.0
        at_wait = self._worked_ns(own.start_ns) / slowdown
        at_launch = self._work_ns / slowdown + self._launch_delay_ns
        bounds = np.searchsorted(self._start_ns, own.start_ns, side="right")
        begins, runs = _schedule_launches(at_launch, self._busy_ns, bounds)
        counts = ~own.is_for_value | waits
        for begin, run, at, lag, is_there in _rows(begins, runs, at_wait, own.lag_ns, counts):
            through = max(begin + waited[-1], through) + run
            left = max(through - at - waited[-1], 0.0) + lag
            waited.append(waited[-1] + left * is_there)
        return np.array(waited)

    def _number(self, times_ns: Ints) -> Ints:
        """Return how many waits had begun before each time."""
        number: Ints = np.searchsorted(self._waits.start_ns, times_ns.ravel(), side="left")
        return number

    def _worked_ns(self, times_ns: Ints) -> Ints:
        """Return how long the CPU had worked until each time, and not waited."""
        own, number = self._waits, self._number(times_ns)
        waited = np.append(0, np.cumsum(own.end_ns - own.start_ns))
        open_until = np.append(0, own.end_ns)[number]
        worked: Ints = times_ns.ravel() - self._begin_ns - waited[number]
        return np.where(
            times_ns.ravel() < open_until, worked + open_until - times_ns.ravel(), worked
        )


def _rows(*columns: npt.NDArray[Any]) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _schedule_launches(ready_ns: Floats, busy_ns: Ints, bounds: Ints) -> tuple[Floats, Ints]:
    """Return for the launches before each wait when they can begin at the latest, and run how long.

    They run one after the other without a break to the end of the last one, if they begin then.

    Args:
        ready_ns: when the CPU comes to each launch.
        busy_ns: how long each of them runs.
        bounds: how many launches were enqueued before each wait.
    """
    run_ns = np.append(0, np.cumsum(busy_ns))
    firsts = np.append(0, bounds)[: len(bounds)]
    begins_ns, is_any = np.full(len(bounds), -np.inf), firsts < bounds
    if is_any.any():
        slack_ns = (ready_ns - run_ns[:-1])[: bounds[-1]]
        begins_ns[is_any] = np.maximum.reduceat(slack_ns, firsts[is_any])
    return begins_ns + run_ns[firsts], run_ns[bounds] - run_ns[firsts]


def _awaited_copies(analysis: Analysis, pace: CriticalPath) -> Ints:
    """Return the copies whose call returned only after them: the CPU waited in it."""
    launches, events = analysis.launches, analysis.recording.trace.events
    call, end_ns = np.maximum(pace.call, 0), launches.start_ns + launches.duration_ns
    is_copy = _named(analysis, "Memcpy") & (pace.call != NO_ROW) & ~pace.replayed
    is_within = (end_ns <= events.end_of(call)) & (launches.start_ns >= events.start_ns[call])
    return np.flatnonzero(is_copy & is_within & ~is_wait(events.name)[call])


def _named(analysis: Analysis, part: str) -> BoolArray:
    """Tell of each launch whether its name has a part."""
    name = analysis.launches.name
    flags = np.array([part in text for text in name.strings], np.bool_)
    return flags[name.codes]


def _waits(analysis: Analysis, start_ns: Ints, copies: Ints) -> Waits:
    """Return the waits within the steps; of one within another only the first counts."""
    launches, events = analysis.launches, analysis.recording.trace.events
    rows = np.flatnonzero(is_wait(events.name))
    ends_ns = launches.start_ns + launches.duration_ns
    begin_ns = np.append(events.start_ns[rows], start_ns[copies])
    over = np.append(events.end_of(rows), ends_ns[copies])
    order = _disjoint_spans(begin_ns, over, analysis.steps[0].cpu_start_ns, analysis.steps[-1].cpu_end_ns)
    begin_ns, over = begin_ns[order], over[order]
    through = np.append(0, np.sort(ends_ns))[np.searchsorted(np.sort(ends_ns), over, side="right")]
    in_order = np.argsort(start_ns, kind="stable")
    last = np.searchsorted(start_ns[in_order], begin_ns, side="right") - 1
    is_to_device = _named(analysis, "HtoD")[in_order][last] & (last >= 0)
    return Waits(begin_ns, over, over - np.maximum(begin_ns, through), ~is_to_device)


def _disjoint_spans(begin_ns: Ints, over: Ints, least_ns: int, most_ns: int) -> Ints:
    """Return the rows of spans between two times, in order, none that begins within another."""
    order = np.lexsort((over, begin_ns))
    order = order[(begin_ns[order] >= least_ns) & (over[order] <= most_ns)]
    reached = np.append(least_ns, np.maximum.accumulate(over[order]))[: len(order)]
    return order[begin_ns[order] >= reached]
