"""Steps are timed in which nobody records, and the later half of the last fifty counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from profiler_ext.profiling import unrecorded_steps
from profiler_ext.profiling.unrecorded_steps import UnrecordedSteps
from profiler_ext.records.recording import StepCall


def timed(
    monkeypatch: pytest.MonkeyPatch, times_ns: Iterator[int], recorded: set[int]
) -> tuple[int, ...]:
    """Return what is remembered of steps that begin and end at these times."""
    now = [0]

    def clock() -> int:
        return now[0]

    monkeypatch.setattr(unrecorded_steps, "perf_counter_ns", clock)
    steps = UnrecordedSteps(lambda: now[0] in recorded)
    for now[0] in times_ns:
        steps.end()
        steps.begin()
    return steps.times.took_ns


def test_a_step_takes_from_the_end_of_the_one_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert timed(monkeypatch, iter([5, 7, 10]), set()) == (2, 3)


def test_a_step_with_a_profiler_at_either_end_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert timed(monkeypatch, iter([5, 7, 10, 14, 19]), {10}) == (2, 5)


def test_of_the_last_fifty_the_later_half_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    squares = [at * at for at in range(100)]
    assert timed(monkeypatch, iter(squares), set()) == tuple(2 * at + 1 for at in range(74, 99))


def test_the_half_is_at_least_three_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert timed(monkeypatch, iter([0, 9, 16, 21, 24]), set()) == (7, 5, 3)


def test_on_a_device_the_time_between_its_marks_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    device = iter([100, 130, 130, 170, None, 200, 200, 250])
    monkeypatch.setattr(unrecorded_steps, "device_event", lambda: next(device))
    monkeypatch.setattr(
        unrecorded_steps, "elapsed_ns", lambda begin, end: None if end == 250 else end - begin
    )
    clock = iter([1, 10, 10, 24, 24, 54, 54, 114])  # in two of them the program ran ahead
    monkeypatch.setattr(unrecorded_steps, "perf_counter_ns", lambda: next(clock))
    steps = UnrecordedSteps(lambda: False)
    for _ in range(4):  # one while a stream was captured; the device is not through with the last
        steps.begin()
        steps.end()
    assert steps.times == ((30, 40), True, 9, ())


def test_steps_of_several_kinds_are_timed_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefill among tokens is no token that took long."""
    clock = iter([0, 50, 50, 51, 51, 53, 53, 56, 56, 60])
    monkeypatch.setattr(unrecorded_steps, "device_event", lambda: None)
    monkeypatch.setattr(unrecorded_steps, "perf_counter_ns", lambda: next(clock))
    steps = UnrecordedSteps(lambda: False)
    for length in (64, 1, 1, 1, 1):
        steps.begin()
        steps.end((StepCall("the module `M`", 2, length),))
    took_ns, _, _, calls = steps.times
    assert took_ns == (2, 3, 4)
    assert [(each.calls[0].length, each.unprofiled_ns) for each in calls] == [
        *((64, 50), (1, 2), (1, 3), (1, 4)),
    ]
