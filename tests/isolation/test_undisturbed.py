"""Work of ours amid the program: signals wait for its end, the program's settings are aside."""

import collections
import ctypes
import itertools
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Literal

import pytest
from pandas.errors import OutOfBoundsDatetime

from profiler_ext.isolation import undisturbed as undisturbing
from profiler_ext.isolation.failures import failure_detail
from profiler_ext.isolation.guard import Guard
from profiler_ext.isolation.signal_answers import is_answer
from profiler_ext.isolation.undisturbed import disturbed, undisturbed


class Late(Exception):
    pass


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch):
    """What the handler of a signal noted."""
    found: list[str] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: found.append("answered"))
    yield found
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_is_answered_once_when_the_work_is_done(heard: list[str]) -> None:
    handler = signal.getsignal(signal.SIGUSR1)
    with undisturbed():
        with undisturbed():
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR1)
        heard.append("worked")
    assert heard == ["worked", "answered"]
    assert signal.getsignal(signal.SIGUSR1) is handler


def test_a_callback_of_the_program_is_run_with_its_signals(heard: list[str]) -> None:
    with undisturbed():
        with disturbed():
            signal.raise_signal(signal.SIGUSR1)
            heard.append("called")
        signal.raise_signal(signal.SIGUSR1)
        heard.append("worked")
    assert heard == ["answered", "called", "worked", "answered"]


def test_the_first_ctrl_c_waits_and_the_second_ends_the_work() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), undisturbed():
        signal.raise_signal(signal.SIGINT)
        done.append(1)
        signal.raise_signal(signal.SIGINT)
        done.append(2)
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("when", ["while it is set aside", "while it is given back"])
def test_a_second_ctrl_c_beside_the_work_is_the_program_s_alone(when, monkeypatch) -> None:
    """Its handler goes on; nothing of ours comes out, and all that was set aside is back."""
    heard = list[int]()

    def pressed() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    def set_aside(back: ExitStack) -> None:
        pressed() if when == "while it is set aside" else back.callback(pressed)

    monkeypatch.setattr(undisturbing, "_SETTINGS", (*undisturbing._SETTINGS, set_aside))
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    handler, limit = signal.getsignal(signal.SIGINT), sys.getrecursionlimit()
    try:
        with undisturbed():
            pass
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert (heard, sys.getrecursionlimit()) == ([signal.SIGINT], limit)


def test_each_signal_is_answered_though_the_first_answer_is_an_exception(heard: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt), undisturbed():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGUSR1)
    assert heard == ["answered"]


def test_work_of_ours_is_done_though_the_program_took_builtins_away(monkeypatch) -> None:
    done = []
    with monkeypatch.context() as patched:
        for name in ("vars", "sorted", "open", "print"):
            patched.delattr(f"builtins.{name}")
        with undisturbed():
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
        with undisturbed():
            assert deep(500) == 0
        assert sys.getrecursionlimit() == depth + 100
    finally:
        sys.setrecursionlimit(limit)


def ours() -> None:
    pass


def test_a_tracer_hears_nothing_of_our_work_and_the_end_of_all_that_it_saw_begin() -> None:
    heard: list[tuple[str, str]] = []

    def tracer(frame, event, argument):
        heard.append((frame.f_code.co_name, event))
        return tracer

    def theirs() -> None:
        with undisturbed():
            ours()
        ours()

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        theirs()
        kept = sys.gettrace()
    finally:
        sys.settrace(before)
    assert kept is tracer
    assert heard.count(("ours", "call")) == 1
    begun, ended = ([name for name, told in heard if told == event] for event in ("call", "return"))
    assert sorted(begun) == sorted(ended)


def test_a_profiler_hears_of_every_frame_its_end() -> None:
    heard: list[tuple[int, str]] = []

    def profiler(frame, event, argument):
        heard.append((id(frame), event))

    def theirs() -> None:
        with undisturbed():
            ours()

    before = sys.getprofile()
    sys.setprofile(profiler)
    try:
        theirs()
        kept = sys.getprofile()
    finally:
        sys.setprofile(before)
    assert kept is profiler
    assert len([1 for _, event in heard if event == "call"]) == len(
        [1 for _, event in heard if event == "return"]
    )


def test_a_file_that_gets_too_long_is_an_error_of_ours_and_ends_no_program() -> None:
    before = signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        with undisturbed():
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
            with undisturbed():
                with warnings.catch_warnings():
                    warnings.simplefilter("always")
                warnings.simplefilter(action)
    assert len(seen) == shown


def test_a_warning_of_ours_is_no_error_where_warnings_are() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with undisturbed():
            warnings.warn("ours", stacklevel=1)
        with pytest.raises(UserWarning, match="theirs"):
            warnings.warn("theirs", stacklevel=1)


class Handler:
    def method(self, number, frame):
        raise Late

    def __call__(self, number, frame):
        raise Late


def function(number, frame):
    raise Late


@pytest.mark.parametrize("handler", [function, Handler(), Handler().method])
def test_what_a_handler_raises_is_known_as_the_program_s(handler) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Late) as raised:
            signal.raise_signal(signal.SIGUSR1)
        assert is_answer(raised.value)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not is_answer(ValueError())


def raised_in(module: str, kind: type[Exception]) -> Exception:
    """Return an exception out of a frame of a module."""
    with pytest.raises(kind) as raised:
        exec("raise kind", {"__name__": module, "kind": kind})
    return raised.value


@pytest.mark.parametrize(
    ("module", "kind", "is_thrown"),
    [
        ("profiler_ext.kineto.reader", Late, True),
        ("json.decoder", Late, True),  # that ours called
        ("the_program", Late, False),  # ours called the program
        ("profiler_ext.kineto.reader", ValueError, False),
        ("pandas.core.frame", OutOfBoundsDatetime, False),
    ],
)
def test_what_only_the_program_can_have_raised_was_thrown_in(module, kind, is_thrown) -> None:
    assert is_answer(raised_in(module, kind)) is is_thrown


def named(module: str, source: str) -> Callable[[], Any]:
    """Return the function ``worked`` of a module's source."""
    names: dict[str, Any] = {"__name__": module}
    exec(source, names)
    return names["worked"]


OF_OURS = "profiler_ext.kineto.reader"
WORK = {
    "in Python alone": named(OF_OURS, "def worked():\n    at = 0\n    while True: at += 1"),
    "in C": named(OF_OURS, "def worked():\n    while True: sorted(range(9999))"),
}


def thrown_into(work: Callable[[], object], kind: type[Exception]) -> Exception:
    """Return what comes out of work in a thread that another one throws an exception into."""
    begun, found = threading.Event(), list[Exception]()

    def kept() -> None:
        begun.set()
        try:
            work()
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=kept)
    thread.start()
    begun.wait()
    throw = ctypes.pythonapi.PyThreadState_SetAsyncExc
    while thread.is_alive():
        throw(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(kind))
        thread.join(0.1)
    return found[0]


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("kind", [TimeoutError, RuntimeError, Exception])
def test_a_class_of_python_s_own_that_was_thrown_in_is_known_too(
    work: str, kind: type[Exception]
) -> None:
    assert is_answer(thrown_into(WORK[work], kind))


@pytest.mark.parametrize(
    "statement",
    [
        "raise TimeoutError",
        "raise TimeoutError()",
        "assert not 1",
        "int('one')",
        "next(iter(()))",
        "input.missing",
        "memoryview(b'')[9]",
        "eval('1 +')",
        "[0].__getitem__(1)",
        "__import__('numpy').random.RandomState().choice(-1)",
    ],
)
def test_what_a_statement_raises_is_no_such(statement: str) -> None:
    with pytest.raises(Exception) as raised:
        named(OF_OURS, f"def worked():\n    {statement}")()
    assert not is_answer(raised.value)


def test_what_is_raised_again_is_no_such() -> None:
    again = "def worked():\n    try: raise TimeoutError\n    except OSError: raise"
    with pytest.raises(TimeoutError) as raised:
        named(OF_OURS, again)()
    assert not is_answer(raised.value)


def test_what_code_in_c_raises_without_words_is_no_such() -> None:
    """Cython has a frame of its own stand for its function."""
    with pytest.raises(ValueError, match="must be") as raised:
        named(OF_OURS, "def worked(): import numpy; numpy.random.RandomState().choice(-1)")()
    raised.value.args = ()
    assert not is_answer(raised.value)


def test_a_time_limit_thrown_into_the_thread_of_a_hook_ends_what_the_program_does() -> None:
    """As func_timeout and stopit set one; ours that is under way is where it comes out."""
    guard, begun, found = Guard(), threading.Event(), list[str]()

    def worked() -> None:
        begun.set()
        collections.deque(map(failure_detail, itertools.repeat(raised_in("json", ValueError))), 0)

    def trained() -> None:
        try:
            guard.run("a hook", worked)
            found.append("went on")
        except Late:
            found.append("late")

    thread = threading.Thread(target=trained)
    thread.start()
    begun.wait()
    throw = ctypes.pythonapi.PyThreadState_SetAsyncExc
    while thread.is_alive():  # what comes to where an error is answered is lost, as anywhere
        throw(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Late))
        thread.join(0.1)
    assert found == ["late"]
    assert guard.failures == ()
