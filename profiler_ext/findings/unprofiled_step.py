"""The usual step without recording: what it takes, and what of it is the CPU's work.

A recording slows the CPU, 1.1 to 2.0 times as measured. Steps before it, without a profiler, give
the real step time; without these it is estimated by a replay with a faster CPU. Where a device sets
the pace, and the CPU waits for nothing, steps in which the program ran ahead give the CPU's work.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median_low
from typing import Final

from profiler_ext.findings.critical_path import MAX_REPLAY_ERROR, MOST_SLOWDOWN, Replay
from profiler_ext.records.recording import Settings

# The CPU's slowdown by recording, where it cannot be measured in the session. Measured
# on an H200's host (torch 2.11, Python 3.12): an eager step of a GPT with 12 layers that waits for
# the CPU takes 36.6 ms recorded, and 25.4 ms without a profiler.
PROFILING_SLOWDOWN: Final = 1.45
# The same where the steps before only show that it is no less, as a device nearly fills them. Of 13
# steps that wait for the CPU the median is 2.25, of the middle half 1.9 to 2.7 (H100s' hosts, torch
# 2.11, Python 3.12, with lines; the steps before the recording are known).
SLOWDOWN_IF_FILLED: Final = 2.0
# With this many steps one outlier does not move the median
MIN_UNPROFILED_STEPS: Final = 3
MAX_SLOWDOWN: Final = 3.0
_ALIKE: Final = 1.01  # replays of one step
_NEAR = 1.05  # steps differ from each other by as much
FILLED: Final = 0.9  # of a step; a device that is busy for more waits for the CPU now and then
_OUTLIER_RATIO = 2  # a step above this multiple of the median is an outlier


@dataclass(frozen=True, slots=True)
class ProfiledStep:
    """The usual step as recorded."""

    step_ns: int
    busy_ns: int  # time of the busiest device
    cpu_ns: int  # working time of the CPU
    profiler_ns: int  # idle time of a device because the profiler works


@dataclass(frozen=True, slots=True)
class Training:
    """The usual step without recording.

    Attributes:
        slowdown: how many times as long the CPU took while it was recorded.
    """

    is_known: bool  # measured in steps before the recording; else all is estimated
    is_cpu_known: bool  # so is the CPU's work, by steps in which it ran ahead of the device
    is_device_bound: bool  # known to keep a device busy all the time
    slowdown: float
    step_ns: int  # its time, measured; estimated, that of the recorded step
    # Upper bound: on the device a step may take longer than the program, as the CPU is more or less
    # ahead
    most_ns: int
    overhead_ns: int  # the CPU's overhead of recording
    cpu_ns: int  # working time of the CPU


def unprofiled_step(
    recorded: ProfiledStep, steps_ns: tuple[int, ...], replay: Replay | None, settings: Settings
) -> Training:
    """Return the usual step without recording."""
    # Times of the program count only where a faster CPU could reach them in the replay
    step_ns = median_low(steps_ns) if steps_ns else None
    slowdown = None if step_ns is None or replay is None else _slowed(replay, step_ns)
    is_on_device = settings.unprofiled_steps_on_device
    is_known = step_ns is not None and (is_on_device or slowdown is not None)
    cpu_ns = int((recorded.cpu_ns - recorded.profiler_ns) / PROFILING_SLOWDOWN)
    if step_ns is None or not is_known:
        least_ns = recorded.step_ns
        overhead_ns = recorded.cpu_ns - cpu_ns
        slowdown = PROFILING_SLOWDOWN
        return Training(False, False, False, slowdown, least_ns, least_ns, overhead_ns, cpu_ns)
    fills = step_ns <= _NEAR * recorded.busy_ns
    is_cpu_known = False
    if recorded.busy_ns >= FILLED * step_ns:  # which only shows that the CPU is fast enough
        slowdown = max(slowdown or SLOWDOWN_IF_FILLED, SLOWDOWN_IF_FILLED)
        measured = _measured(replay, settings.unprofiled_cpu_ns)
        slowdown, is_cpu_known = measured or slowdown, measured is not None
    if replay is not None and slowdown is not None:
        cpu_ns = replay.worked_ns(slowdown)
    return Training(
        is_known=True,
        is_cpu_known=is_cpu_known,
        is_device_bound=fills,
        slowdown=slowdown or PROFILING_SLOWDOWN,
        step_ns=step_ns,
        most_ns=max(step_ns, sum(steps_ns) // len(steps_ns)),
        overhead_ns=max(recorded.step_ns - step_ns, 0),
        cpu_ns=cpu_ns,
    )


def unprofiled_steps_ns(recorded: ProfiledStep, settings: Settings) -> tuple[int, ...]:
    """Return the times of the steps before, if they are enough and match the recorded ones."""
    # Steps of more than twice the median, with a compile say, are left out. By the program's clock
    # a step is shorter than on the device where the CPU runs ahead, so the device's busy time
    # bounds it.
    before_ns, on_device = settings.unprofiled_steps_ns, settings.unprofiled_steps_on_device
    if len(before_ns) < MIN_UNPROFILED_STEPS:
        return ()
    usual_ns = median_low(before_ns)
    typical_ns = tuple(each for each in before_ns if each <= _OUTLIER_RATIO * usual_ns)
    usual_ns = median_low(typical_ns)
    least_ns = 0 if on_device else recorded.cpu_ns / MAX_SLOWDOWN
    if not least_ns <= usual_ns <= _NEAR * recorded.step_ns:
        return ()
    if on_device:
        return typical_ns
    return tuple(min(max(each, recorded.busy_ns), recorded.step_ns) for each in typical_ns)


def _measured(replay: Replay | None, cpu_ns: int | None) -> float | None:
    """Return the CPU's slowdown by what it worked in steps before, if it waited for nothing."""
    if replay is None or cpu_ns is None or len(replay.waits.start_ns):
        return None
    return replay.slowdown_of_work(cpu_ns)


def _slowed(replay: Replay, step_ns: int) -> float | None:
    """Return the CPU's slowdown; ``None`` where none gives that step."""
    slowdown, least_ns = replay.slowdown(step_ns, MOST_SLOWDOWN), replay.step_ns(MOST_SLOWDOWN)
    if slowdown is not None or least_ns > (1 + MAX_REPLAY_ERROR) * step_ns:
        return slowdown
    # Where only the CPU's waits count, the steps before do not tell its speed: an estimate does.
    # Else they do: it is as fast as the fastest that is known, if that makes the replay shorter.
    tells = replay.step_ns(PROFILING_SLOWDOWN) > (1 + MAX_REPLAY_ERROR) * least_ns
    if tells and replay.step_ns(SLOWDOWN_IF_FILLED) <= _ALIKE * least_ns:
        return SLOWDOWN_IF_FILLED
    return MOST_SLOWDOWN if tells else PROFILING_SLOWDOWN
