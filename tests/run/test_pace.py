"""Which steps are slow."""

from __future__ import annotations

from profiler_ext.run.pace import Pace


def test_a_step_is_compared_with_the_median_of_those_before_it() -> None:
    pace = Pace()
    for seconds in (1.0, 1.0, 9.0, 1.0, 1.0):
        pace.step(seconds)
    assert pace.worst == 0.0  # too few are known
    pace.step(3.0)
    assert pace.worst == 3.0
    pace.step(2.0)
    assert pace.worst == 3.0
    pace.begin()
    pace.step(0.5)
    assert pace.worst == 0.5


def test_only_the_last_steps_are_remembered() -> None:
    pace = Pace()
    for seconds in (*[1.0] * 60, *[4.0] * 60):
        pace.step(seconds)
    pace.begin()
    pace.step(4.0)
    assert pace.worst == 1.0
