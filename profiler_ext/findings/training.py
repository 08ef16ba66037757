"""Owns how long a step takes in training, where nobody records, and how much quicker its CPU is.

A recording slows the CPU, by 1.1 to 2.0 times in what was measured. Steps before it, in which no
profiler was on, tell how long a step takes without; where there are none, an estimate does.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median_low
from typing import Final

from profiler_ext.findings.replay import MAX_REPLAY_ERROR, Replay

PROFILING_SLOWDOWN: Final = 1.45
"""How many times as long the CPU takes to launch while it is recorded, where nothing tells.

Measured on an H200's host (torch 2.11, Python 3.12): an eager step of a GPT with 12 layers that
waits for the CPU takes 36.6 ms recorded, and 25.4 ms without a profiler.
"""
MIN_UNPROFILED_STEPS: Final = 3
"""Of so many steps one may be unlike the others, and the median holds."""
_MAX_SLOWDOWN = 3.0
_NEAR = 1.05
"""Steps differ from each other by as much."""
_UNLIKE = 2
"""What takes more than so many times as long as the median is no such step."""


@dataclass(frozen=True, slots=True)
class ProfiledStep:
    """The usual step as it was recorded.

    Attributes:
        step_ns: its time.
        busy_ns: how long the busiest device ran what it enqueued.
        cpu_ns: how long the CPU works in it.
        profiler_ns: how long of that a device idles as the profiler is at its own work.
    """

    step_ns: int
    busy_ns: int
    cpu_ns: int
    profiler_ns: int


@dataclass(frozen=True, slots=True)
class Training:
    """The usual step where nobody records.

    Attributes:
        is_known: steps before the recording tell of it; else all of it is an estimate.
        is_device_bound: it is known that a device is busy all the while, and so sets the pace.
        slowed: how many times as long the CPU took while it was recorded.
        step_ns: its time, as the steps before tell it; of an estimate that of the recorded step.
        most_ns: its time at most: from one to the next on the device it may take longer than the
            program is at it, as the CPU is now more, now less ahead.
        overhead_ns: how much longer the recorded step is for the CPU.
        cpu_ns: how long the CPU works in it.
    """

    is_known: bool
    is_device_bound: bool
    slowdown: float
    step_ns: int
    most_ns: int
    overhead_ns: int
    cpu_ns: int


def unprofiled_step(
    recorded: ProfiledStep, steps_ns: tuple[int, ...], replay: Replay | None, *, on_device: bool
) -> Training:
    """Tell how long the usual step takes in training.

    Args:
        recorded: the step as it was recorded.
        steps_ns: how long steps took before it, as :func:`unprofiled_steps_ns` has them.
        replay: the recorded steps, to be laid out in time anew.
        on_device: these are times of the device; those of the program are believed only where a
            quicker CPU would bring the replay there.
    """
    step_ns = median_low(steps_ns) if steps_ns else None
    slowdown = None if step_ns is None or replay is None else _slowed(replay, step_ns)
    is_known = step_ns is not None and (on_device or slowdown is not None)
    cpu_ns = int((recorded.cpu_ns - recorded.profiler_ns) / PROFILING_SLOWDOWN)
    if step_ns is None or not is_known:
        least_ns = recorded.step_ns
        overhead_ns = recorded.cpu_ns - cpu_ns
        return Training(False, False, PROFILING_SLOWDOWN, least_ns, least_ns, overhead_ns, cpu_ns)
    fills = step_ns <= _NEAR * recorded.busy_ns
    if fills:  # which says no more than that the CPU is quick enough
        slowdown = max(slowdown or PROFILING_SLOWDOWN, PROFILING_SLOWDOWN)
    if replay is not None and slowdown is not None:
        cpu_ns = int(replay.worked_ns / slowdown)
    return Training(
        is_known=True,
        is_device_bound=fills,
        slowdown=slowdown or PROFILING_SLOWDOWN,
        step_ns=step_ns,
        most_ns=max(step_ns, sum(steps_ns) // len(steps_ns)),
        overhead_ns=max(recorded.step_ns - step_ns, 0),
        cpu_ns=cpu_ns,
    )


def unprofiled_steps_ns(
    recorded: ProfiledStep, before_ns: tuple[int, ...], *, on_device: bool
) -> tuple[int, ...]:
    """Return how long each of the steps before took, where they tell of the recorded ones.

    What takes over twice the median is left out: something else, as a compile, was in it. By the
    program's clock a step is shorter than on the device where the CPU runs ahead, so it is bounded
    by what the device ran.

    Args:
        recorded: the step as it was recorded.
        before_ns: how long the steps before it took, in which no profiler was on.
        on_device: by the device's clock.

    Returns:
        The times; none where they are few, or unlike the recorded step.
    """
    if len(before_ns) < MIN_UNPROFILED_STEPS:
        return ()
    usual_ns = median_low(before_ns)
    alike_ns = tuple(each for each in before_ns if each <= _UNLIKE * usual_ns)
    usual_ns = median_low(alike_ns)
    least_ns = 0 if on_device else recorded.cpu_ns / _MAX_SLOWDOWN
    if not least_ns <= usual_ns <= _NEAR * recorded.step_ns:
        return ()
    if on_device:
        return alike_ns
    return tuple(min(max(each, recorded.busy_ns), recorded.step_ns) for each in alike_ns)


def _slowed(replay: Replay, step_ns: int) -> float | None:
    """Return how many times as long the CPU took; ``None`` where no such CPU gives that step.

    Where the quickest one comes near it, nothing but its waits is left of what the CPU did, and
    the steps before do not tell how quick it was: an estimate does.
    """
    slowdown = replay.slowdown(step_ns, _MAX_SLOWDOWN)
    if slowdown is None and replay.step_ns(_MAX_SLOWDOWN) <= (1 + MAX_REPLAY_ERROR) * step_ns:
        return PROFILING_SLOWDOWN
    return slowdown
