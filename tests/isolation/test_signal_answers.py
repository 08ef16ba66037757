"""What a signal handler or another thread of the program raises is known as the program's."""

import collections
import ctypes
import functools
import itertools
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pandas.errors import OutOfBoundsDatetime

from profiler_ext.isolation.failures import failure_detail, is_raised_by_program
from profiler_ext.isolation.guard import Guard


class Late(Exception):
    pass


class Handler:
    def method(self, number, frame):
        raise Late

    def __call__(self, number, frame):
        raise Late


def function(number, frame):
    raise Late


def once(number, frame):
    signal.signal(number, signal.SIG_DFL)
    raise TimeoutError("too late")


def of_any(*passed):
    signal.signal(passed[0], signal.SIG_IGN)
    raise TimeoutError("too late")


def with_words(name, number, frame):
    raise TimeoutError(name)


HANDLERS = [
    *(function, Handler(), Handler().method),
    *(
        once,
        of_any,
        functools.partial(with_words, "late"),
        lambda number, frame: once(number, frame),
    ),
]


@pytest.mark.parametrize("handler", HANDLERS)
def test_what_a_handler_raises_is_known_as_the_program_s(handler) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises((Late, TimeoutError)) as raised:
            signal.raise_signal(signal.SIGUSR1)
        assert is_raised_by_program(raised.value)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not is_raised_by_program(ValueError())


def test_a_function_that_is_passed_a_number_and_some_frame_is_no_handler() -> None:
    with pytest.raises(TimeoutError) as raised:
        with_words("late", 14, sys._getframe(1))
    assert not is_raised_by_program(raised.value)


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
    assert is_raised_by_program(raised_in(module, kind)) is is_thrown


def reported(module: str, source: str) -> Callable[[], Any]:
    """Return the function ``worked`` of a module's source."""
    names: dict[str, Any] = {"__name__": module}
    exec(source, names)
    return names["worked"]


OF_OURS = "profiler_ext.kineto.reader"
WORK = {
    "in Python alone": reported(OF_OURS, "def worked():\n    at = 0\n    while True: at += 1"),
    "in C": reported(OF_OURS, "def worked():\n    while True: sorted(range(9999))"),
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
    assert is_raised_by_program(thrown_into(WORK[work], kind))


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
        reported(OF_OURS, f"def worked():\n    {statement}")()
    assert not is_raised_by_program(raised.value)


def test_what_is_raised_again_is_no_such() -> None:
    again = "def worked():\n    try: raise TimeoutError\n    except OSError: raise"
    with pytest.raises(TimeoutError) as raised:
        reported(OF_OURS, again)()
    assert not is_raised_by_program(raised.value)


def test_what_code_in_c_raises_without_words_is_no_such() -> None:
    """Cython has a frame of its own stand for its function."""
    with pytest.raises(ValueError, match="must be") as raised:
        reported(OF_OURS, "def worked(): import numpy; numpy.random.RandomState().choice(-1)")()
    raised.value.args = ()
    assert not is_raised_by_program(raised.value)


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
