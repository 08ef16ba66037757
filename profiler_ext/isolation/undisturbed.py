"""Owns the moments in which this package works amid the user's program.

What was recorded is made a session and written on the program's own thread. Meanwhile a signal
that the program answers waits until the work is done, and is then answered as ever; a second
Ctrl-C ends the work at once. What the program set for its own code does not reach ours: warnings
that are errors, a low recursion limit, tracers, modules taken out of ``sys.modules``.
"""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import FrameType, FunctionType, MethodType
from typing import Any

from profiler_ext.isolation.own_modules import own_modules
from profiler_ext.isolation.signal_answers import is_raised_by_program
from profiler_ext.isolation.stack_room import set_own_limit

_EXTRA_FRAMES = 2000  # frames that our work may need above those that are there


class Interrupted(BaseException):
    """A second Ctrl-C ends what is under way."""


def undisturbed() -> AbstractContextManager[None]:
    """Work of ours: signals wait, and the program's settings are not in force.

    Within another such moment only the outer one counts. What of it fails is not set aside, and
    the work is done all the same.

    Returns:
        A context manager for the work; what ends it by a second Ctrl-C goes no further.
    """
    is_nested = _thread_state.__dict__.get("moment") is not None
    return nullcontext() if is_nested else _Isolation()


@contextmanager
def user_code() -> Iterator[None]:
    """Let the program in amid work of ours: a callback of its own."""
    moment: _Isolation | None = _thread_state.__dict__.get("moment")
    if moment is None:
        yield
        return
    moment.end()
    try:
        yield
    finally:
        moment.begin()


class _Isolation:
    """What is set aside of the program's, and the signals that wait.

    Each piece that is set aside has put what gives it back onto one stack first; nothing on that
    stack is code of ours that could fail. No generator makes it: a tracer would see it begin, and
    not go on.
    """

    def __init__(self) -> None:
        self._back = ExitStack()
        self._pending_signals: tuple[int, ...] = ()
        self._is_work = False  # what a second Ctrl-C ends; else nobody would catch that end

    def __enter__(self) -> None:
        try:
            self.begin()
        except BaseException:
            self.end()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        try:
            self.end()
        except Interrupted:  # before it had begun to end
            self.end()
        return kind is not None and issubclass(kind, Interrupted)

    def begin(self) -> None:
        """Set the program's own aside; only the main thread can hold signals back."""
        _thread_state.__dict__["moment"] = self
        self._back.callback(_thread_state.__dict__.pop, "moment", None)
        is_main = threading.current_thread() is threading.main_thread()
        signals = (self._hold_signals, _survive_writes) if is_main else ()
        for set_aside in (*signals, *_SETTINGS):
            try:
                set_aside(self._back)
            except Exception as error:
                if is_raised_by_program(error):
                    raise
        self._is_work = True

    def end(self) -> None:
        """Give everything back, and answer the signals that came."""
        self._is_work = False
        try:
            self._back.close()
        finally:
            pending, self._pending_signals = tuple(dict.fromkeys(self._pending_signals)), ()
            if pending:
                _raise(pending)

    def _hold_signals(self, back: ExitStack) -> None:
        """Hold back each signal that Python code would answer, and what wakes a loop for it."""
        wakeup = signal.set_wakeup_fd(-1)
        back.callback(signal.set_wakeup_fd, wakeup, warn_on_full_buffer=False)
        for number in signal.valid_signals():
            if callable(handler := signal.getsignal(number)):
                back.callback(signal.signal, number, handler)
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        is_second = number == signal.SIGINT and number in self._pending_signals
        self._pending_signals = (*self._pending_signals, number)
        if is_second and self._is_work:
            raise Interrupted


_thread_state = threading.local()


def _survive_writes(back: ExitStack) -> None:
    """Have a write of ours past ``ulimit -f`` fail, as in Python, where the program shall end."""
    number = getattr(signal, "SIGXFSZ", None)  # not on every system
    if number is not None and signal.getsignal(number) is signal.SIG_DFL:
        back.callback(signal.signal, number, signal.SIG_DFL)
        signal.signal(number, signal.SIG_IGN)


def _no_tracer(back: ExitStack) -> None:
    """Let a tracer of Python's hear nothing of our work.

    It hears the end of each frame that it saw begin: coverage and debuggers count on that. One of
    C's own (coverage's, torch's for ``with_stack``) stays: given back from Python, it would not
    hear of the frames that are open, and costs our work only time. One that torch sets meanwhile
    stays too, and so does a profiler, which no frame could keep.
    """
    tracer = sys.gettrace()
    if _is_python(tracer):
        back.callback(_restore_tracer, tracer)
        sys.settrace(_null_tracer)


def _is_python(tracer: Any) -> bool:
    """Tell whether a tracer is written in Python: a function, a method, a class that is called."""
    functions = (FunctionType, MethodType)
    return isinstance(tracer, functions) or isinstance(type(tracer).__call__, FunctionType)


def _null_tracer(_: FrameType, __: str, ___: Any) -> None:
    """Trace no frame that begins."""


def _restore_tracer(tracer: Any) -> None:
    if sys.gettrace() in (None, _null_tracer):
        sys.settrace(tracer)


def _deep_stack(back: ExitStack) -> None:
    set_own_limit(max(sys.getrecursionlimit(), _depth() + _EXTRA_FRAMES), back)


def _raise(numbers: Sequence[int]) -> None:
    """Raise signals one after the other, though the program's answer may be an exception."""
    if numbers:
        try:
            signal.raise_signal(numbers[0])
        finally:
            _raise(numbers[1:])


def _filters_kept(back: ExitStack) -> None:
    """Let filters of warnings count as changed only where they are others in the end.

    pandas changes and restores them all the time, and Python shows anew what it showed once.
    Source: ``warnings.py``, ``_filters_mutated``.
    """
    notify = vars(warnings).get("_filters_mutated")
    if notify not in (None, _ignore_filter_change):  # a moment of another thread's keeps them
        back.callback(_notify_if_changed, notify, list(warnings.filters))
        vars(warnings)["_filters_mutated"] = _ignore_filter_change


def _ignore_filter_change() -> None:
    """Stands for what tells Python that filters of warnings have changed."""


def _notify_if_changed(notify: Callable[[], None], before: list[Any]) -> None:
    vars(warnings)["_filters_mutated"] = notify
    if warnings.filters != before:
        notify()


def _no_errors(back: ExitStack) -> None:
    """Silence warnings that would be errors."""
    if any(action == "error" for action, *_ in warnings.filters):
        back.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")


def _own_modules(back: ExitStack) -> None:
    back.enter_context(own_modules())


def _depth() -> int:
    depth, frame = 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


_SETTINGS = (_no_tracer, _deep_stack, _filters_kept, _no_errors, _own_modules)
