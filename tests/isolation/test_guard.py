"""The door between torch and this package: what is called, what is caught, what passes."""

from __future__ import annotations

import linecache
import traceback
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from profiler_ext.errors import CaptureWarning
from profiler_ext.isolation.failures import Failure
from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.isolation.hook_protocols import Ranges, Sorting

ON = SimpleNamespace(is_on=True, is_persistent=False)


def add(a: int, b: int = 1, *, c: int = 0) -> int:
    return a + b + c


def observed(guard: Guard, observe: Callable[[Observed], Observation]) -> Callable[..., Any]:
    return guard.wrap(add, "add", observe, ON)


def test_an_observation_has_the_arguments_by_name_and_the_result_after_the_call():
    seen: list[object] = []

    def observe(call: Observed) -> Observation:
        seen.append((dict(call.arguments), call.result))
        yield
        seen.append(call.result)

    assert observed(Guard(), observe)(1, c=2) == 4
    assert seen == [({"a": 1, "c": 2}, None), 4]


def test_an_observation_may_end_before_the_call_and_the_call_is_made_once():
    calls: list[int] = []

    def original(value: int) -> int:
        calls.append(value)
        return value

    def observe(call: Observed) -> Observation:
        yield from ()

    assert Guard().wrap(original, "original", observe, ON)(3) == 3
    assert calls == [3]


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, RecursionError])
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_fails_is_kept_and_the_result_is_the_originals(error, when):
    guard = Guard(scope=lambda: "0/0")

    def observe(call: Observed) -> Observation:
        if when == "before":
            raise error("why")
        yield
        raise error("why")

    with pytest.warns(CaptureWarning, match="add: .* why"):
        assert observed(guard, observe)(1) == 2
    (failure,) = guard.failures
    assert (failure.hook, failure.scope) == ("add", "0/0")
    assert failure.detail.startswith(f"{error.__name__} at test_guard.py:")
    assert failure.detail.endswith(" (observe): why")
    assert guard.has_failed("0/0")
    assert not guard.has_failed("0/1")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_the_users_and_passes(error):
    guard = Guard()

    def observe(call: Observed) -> Observation:
        yield from ()
        raise error

    with pytest.raises(error):
        observed(guard, observe)(1)
    assert guard.failures == ()


def test_an_error_of_the_original_is_the_callers_and_the_observation_is_reported():
    ended: list[BaseException | None] = []

    def original() -> None:
        raise ValueError("the user's")

    def observe(call: Observed) -> Observation:
        try:
            yield
        finally:
            ended.append(call.error)
            _fail()

    guard = Guard()
    with pytest.warns(CaptureWarning), pytest.raises(ValueError, match="the user's") as caught:
        guard.wrap(original, "original", observe, ON)()
    assert ended == [caught.value]
    assert caught.value.__context__ is None
    assert [failure.hook for failure in guard.failures] == ["original"]


def _fail() -> None:
    raise RuntimeError("ours")


@pytest.mark.filterwarnings("ignore::profiler_ext.errors.CaptureWarning")
@pytest.mark.parametrize("fails", ["nothing", "before", "close"])
def test_an_error_of_the_original_is_as_it_was_but_for_one_frame_of_the_guard(fails):
    """That one frame Python adds to what passes through a function, and no function can take it."""
    cause = KeyError("cause")

    def original() -> None:
        raise ValueError("theirs") from cause

    def observe(call: Observed) -> Observation:
        if fails == "before":
            raise RuntimeError("ours")
        try:
            yield
        finally:
            if fails == "close":
                raise RuntimeError("ours")

    guard = Guard()
    with pytest.raises(ValueError, match=r"^theirs$") as raised:
        guard.wrap(original, "original", observe, ON)()
    error = raised.value
    assert (error.args, error.__cause__, error.__context__) == (("theirs",), cause, None)
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:]
    assert frames == ["guarded", "original"]
    assert len(guard.failures) == (0 if fails == "nothing" else 1)


def test_an_observation_that_yields_twice_is_a_failure():
    def observe(call: Observed) -> Observation:
        yield
        yield

    with pytest.warns(CaptureWarning, match="yields once"):
        assert observed(Guard(), observe)(1) == 2


def failing(call: Observed) -> Observation:
    _fail()
    yield


def test_strict_raises_what_fails():
    with pytest.raises(RuntimeError, match="ours"):
        observed(Guard(strict=True), failing)(1)


def test_where_warnings_are_errors_a_failure_is_kept_all_the_same():
    guard = Guard()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert guard.run("part", _fail) is None
    assert [failure.hook for failure in guard.failures] == ["part"]


def test_a_failure_is_noted_where_the_program_lets_nobody_read_a_file(monkeypatch):
    monkeypatch.setattr(linecache, "checkcache", lambda *_: 1 / 0)  # as an audit hook refuses it
    guard = Guard()
    guard.run("hook", int, "x")
    (failure,) = guard.failures
    assert failure.detail.startswith("ValueError at guard.py:")


def test_a_failure_that_cannot_be_noted_may_have_been_of_any_compile():
    def scope() -> str:
        raise RuntimeError("no scope")

    guard = Guard(scope=scope)
    assert guard.run("part", _fail) is None
    assert guard.failures == (Failure("?", "1 failures could not be noted", None),)


def test_an_observation_that_runs_out_of_stack_costs_the_call_nothing():
    def observe(call: Observed) -> Observation:
        next(observe(call))
        yield

    guard = Guard()
    with pytest.warns(CaptureWarning, match="RecursionError"):
        assert observed(guard, observe)(1) == 2
    assert len(guard.failures) == 1


def test_after_too_many_failures_nothing_is_observed_any_more():
    guard = Guard()
    wrapped = observed(guard, failing)
    with pytest.warns(CaptureWarning) as reported:
        assert [wrapped(1) for _ in range(100)] == [2] * 100
    assert len(reported) == 1
    assert guard.is_disabled
    assert len(guard.failures) == 16


def test_what_serves_the_profiler_goes_on_when_capture_took_itself_out():
    guard, seen = Guard(), list[str]()
    with pytest.warns(CaptureWarning):
        for _ in range(16):
            guard.run("hook", _fail)

    def observe(call: Observed) -> Observation:
        yield
        seen.append("observed")

    lasting = SimpleNamespace(is_on=True, is_persistent=True)
    assert guard.is_disabled
    assert guard.wrap(add, "add", observe, lasting)(1) == 2
    guard.callback("step", seen.append)("called")
    guard.callback("step", _fail)()
    guard.callback("step", _fail)()
    assert seen == ["observed", "called"]
    assert [failure.hook for failure in guard.failures] == ["hook"] * 16 + ["step"]


def test_a_wrapper_that_is_off_or_given_arguments_that_do_not_fit_only_calls():
    guard = Guard()
    off = guard.wrap(add, "add", failing, SimpleNamespace(is_on=False, is_persistent=False))
    assert off(1) == 2
    assert guard.failures == ()
    with pytest.raises(TypeError, match="missing 1 required"):
        off()


def test_a_callback_gives_nothing_back_and_keeps_what_fails():
    guard = Guard()
    assert guard.callback("told", add)(1, b=2) is None
    with pytest.warns(CaptureWarning):
        assert guard.callback("told", _fail)() is None
    assert [failure.hook for failure in guard.failures] == ["told"]


def test_a_range_ends_with_its_call_whatever_that_gives_and_there_may_be_none():
    reported = list[Any]()

    def opened(text: str) -> Callable[..., Any] | None:
        reported.append(text)
        return (lambda *_: reported.append("end")) if text else None

    wrapped = Guard(strict=True).wrap_ranges(int, "int", Ranges(opened), ON)
    assert wrapped("12") == 12
    with pytest.raises(ValueError, match="invalid literal"):
        wrapped("")
    with pytest.raises(ValueError, match="invalid literal"):
        wrapped("x")
    assert reported == ["12", "end", "", "x", "end"]


@pytest.mark.parametrize("opened", [lambda _: 1 // 0, lambda _: lambda *ends: 1 // 0])
def test_a_range_that_fails_to_begin_or_to_end_costs_the_call_nothing(opened):
    guard = Guard()
    with pytest.warns(CaptureWarning):
        assert guard.wrap_ranges(abs, "abs", Ranges(opened), ON)(-3) == 3
    assert [failure.hook for failure in guard.failures] == ["abs"]


def candidates(guard: Guard, sorting: Sorting) -> list[int]:
    wrapped = guard.wrap_candidates(lambda: iter([1, 2, 3, 4]), "offered", sorting, ON)
    return list(wrapped())


def test_candidates_are_offered_last_or_not_at_all():
    assert candidates(Guard(), Sorting(lambda n: n % 2 == 1, lambda: False)) == [2, 4, 1, 3]
    assert candidates(Guard(), Sorting(lambda n: n % 2 == 1, lambda: True)) == [2, 4]


def test_candidates_stay_where_they_are_when_what_is_asked_of_them_fails():
    guard = Guard()
    with pytest.warns(CaptureWarning):
        found = candidates(guard, Sorting(lambda n: bool(n // 0), lambda: True))
    assert found == [1, 2, 3, 4]
    assert len(guard.failures) == 4


def test_the_same_failure_at_each_kernel_of_a_compile_counts_as_one() -> None:
    guard = Guard(scope=lambda: "0/0")

    def fail() -> None:
        raise KeyError("mutation_real_name")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(40):
            guard.run("hook", fail)
    assert len(guard.failures) == 1
    assert not guard.is_disabled
