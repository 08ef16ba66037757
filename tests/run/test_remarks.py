"""What is said of slow steps that no recording has."""

from __future__ import annotations

from profiler_ext.run.pace import Missed
from profiler_ext.run.remarks import slow_ones_missed


def test_nothing_is_said_where_none_was_missed() -> None:
    assert slow_ones_missed(Missed()) == ()


def test_the_number_the_last_one_and_the_reason_are_told() -> None:
    missed = Missed()
    missed.add(12, was_held=True)
    missed.add(30, was_held=False)
    assert slow_ones_missed(missed) == (
        "2 slow steps are in no recording, last step 30: it fell between two: a larger --steps, or "
        "a smaller --every, leaves fewer between",
    )
