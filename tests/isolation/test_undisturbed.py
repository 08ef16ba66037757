"""Work of ours amid the program: signals wait for its end, the program's settings are aside."""

import signal
import sys
import warnings
from contextlib import ExitStack
from typing import Literal

import pytest

from profiler_ext.isolation import user_state
from profiler_ext.isolation.user_state import isolated, user_code


class Late(Exception):
    pass


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch):
    """What the handler of a signal noted."""
    found: list[str] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: found.append("answered"))
    yield found
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_is_answered_once_when_the_work_is_done(observed: list[str]) -> None:
    handler = signal.getsignal(signal.SIGUSR1)
    with isolated():
        with isolated():
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR1)
        observed.append("worked")
    assert observed == ["worked", "answered"]
    assert signal.getsignal(signal.SIGUSR1) is handler


def test_a_callback_of_the_program_is_run_with_its_signals(observed: list[str]) -> None:
    with isolated():
        with user_code():
            signal.raise_signal(signal.SIGUSR1)
            observed.append("called")
        signal.raise_signal(signal.SIGUSR1)
        observed.append("worked")
    assert observed == ["answered", "called", "worked", "answered"]


def test_the_first_ctrl_c_waits_and_the_second_ends_the_work() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), isolated():
        signal.raise_signal(signal.SIGINT)
        done.append(1)
        signal.raise_signal(signal.SIGINT)
        done.append(2)
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("when", ["while it is set aside", "while it is given back"])
def test_a_second_ctrl_c_next_to_the_work_is_the_program_s_alone(when, monkeypatch) -> None:
    """Its handler goes on; nothing of ours comes out, and all that was set aside is back."""
    observed = list[int]()

    def pressed() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    def set_aside(back: ExitStack) -> None:
        pressed() if when == "while it is set aside" else back.callback(pressed)

    monkeypatch.setattr(user_state, "_SETTINGS", (*user_state._SETTINGS, set_aside))
    before = signal.signal(signal.SIGINT, lambda number, _: observed.append(number))
    handler, limit = signal.getsignal(signal.SIGINT), sys.getrecursionlimit()
    try:
        with isolated():
            pass
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert (observed, sys.getrecursionlimit()) == ([signal.SIGINT], limit)


def test_each_signal_is_handled_though_the_first_handler_raises(
    observed: list[str],
) -> None:
    with pytest.raises(KeyboardInterrupt), isolated():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGUSR1)
    assert observed == ["answered"]


def test_work_of_ours_is_done_though_the_program_took_builtins_away(monkeypatch) -> None:
    done = []
    with monkeypatch.context() as patched:
        for name in ("vars", "sorted", "open", "print"):
            patched.delattr(f"builtins.{name}")
        with isolated():
            done.append(1)
    assert done == [1]


def test_a_low_recursion_limit_is_the_program_s_own() -> None:
    def deep(left: int) -> int:
        return left and deep(left - 1)

    limit = sys.getrecursionlimit()
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    sys.setrecursionlimit(depth + 100)
    try:
        with isolated():
            assert deep(500) == 0
        assert sys.getrecursionlimit() == depth + 100
    finally:
        sys.setrecursionlimit(limit)


def ours() -> None:
    pass


def test_a_tracer_hears_nothing_of_our_work_and_the_end_of_all_that_it_saw_begin() -> None:
    observed: list[tuple[str, str]] = []

    def tracer(frame, event, argument):
        observed.append((frame.f_code.co_name, event))
        return tracer

    def goes_on():
        yield
        yield

    def theirs() -> None:
        generator = goes_on()
        next(generator)
        with isolated():
            ours()
            next(generator)
        ours()

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        theirs()
        kept = sys.gettrace()
    finally:
        sys.settrace(before)
    assert kept is tracer
    assert observed.count(("ours", "call")) == 1
    begun, ended = ([n for n, what in observed if what == event] for event in ("call", "return"))
    assert sorted(begun) == sorted(ended)


def test_a_profiler_hears_of_every_frame_its_end() -> None:
    observed: list[tuple[int, str]] = []

    def profiler(frame, event, argument):
        observed.append((id(frame), event))

    def theirs() -> None:
        with isolated():
            ours()

    before = sys.getprofile()
    sys.setprofile(profiler)
    try:
        theirs()
        kept = sys.getprofile()
    finally:
        sys.setprofile(before)
    assert kept is profiler
    assert len([1 for _, event in observed if event == "call"]) == len(
        [1 for _, event in observed if event == "return"]
    )


def test_a_file_that_gets_too_long_is_an_error_of_ours_and_ends_no_program() -> None:
    before = signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        with isolated():
            assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGXFSZ, before)


@pytest.mark.parametrize(("action", "shown"), [("default", 1), ("always", 2)])
def test_what_was_shown_once_is_shown_again_only_where_filters_changed(
    action: Literal["default", "always"], shown: int
) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.resetwarnings()  # where none is an error
        warnings.simplefilter("default")
        for _ in range(2):
            warnings.warn("theirs", stacklevel=1)
            with isolated():
                with warnings.catch_warnings():
                    warnings.simplefilter("always")
                warnings.simplefilter(action)
    assert len(seen) == shown


def test_a_warning_of_ours_is_no_error_where_warnings_are() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with isolated():
            warnings.warn("ours", stacklevel=1)
        with pytest.raises(UserWarning, match="theirs"):
            warnings.warn("theirs", stacklevel=1)
