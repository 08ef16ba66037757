"""Which steps are slow."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from profiler_ext.profiling import unrecorded_steps
from profiler_ext.profiling.unrecorded_steps import Mark
from profiler_ext.run.window import FinishedStep, SlowStepDetector


def passed(
    took: int, *, recorded: bool = True, awaited: bool = True, number: int = 0
) -> FinishedStep:
    return FinishedStep(number, Mark(0, None), Mark(took, None), recorded, awaited, False)


def stepped(pace: SlowStepDetector, times: Iterable[int]) -> float:
    for took in times:
        pace.step(passed(took))
    return pace.worst


def test_a_step_is_compared_with_the_median_of_those_before_it() -> None:
    pace = SlowStepDetector(2.0)
    assert stepped(pace, (10, 10, 90, 10, 10)) == 0.0  # too few are known
    assert stepped(pace, [30]) == 3.0
    assert stepped(pace, [20]) == 3.0
    pace.begin()
    assert stepped(pace, [5]) == 0.5


def test_only_the_last_steps_are_remembered() -> None:
    pace = SlowStepDetector(2.0)
    stepped(pace, (*[10] * 60, *[40] * 60))
    pace.begin()
    assert stepped(pace, [40]) == 1.0


def test_a_slow_step_that_no_recording_has_is_missed_once_recordings_have_begun() -> None:
    pace = SlowStepDetector(2.0)
    for number, took in enumerate((10, 10, 10, 10, 10, 50, 50)):
        pace.step(passed(took, recorded=False, awaited=number == 6, number=number))
    assert (pace.missed.count, pace.missed.last, pace.worst) == (1, 6, 0.0)


def test_a_step_is_judged_when_the_device_is_through_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    through: list[int] = []
    monkeypatch.setattr(
        unrecorded_steps, "elapsed_ns", lambda begin, end: end - begin if end in through else None
    )
    pace = SlowStepDetector(2.0)
    stepped(pace, [10] * 5)
    pace.step(FinishedStep(5, Mark(0, 100), Mark(1, 140), True, True, False))
    pace.step(passed(20))
    assert pace.worst == 0.0
    through.append(140)
    pace.settle()
    assert pace.worst == 4.0
