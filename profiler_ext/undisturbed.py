"""Owns the moments in which this package works amid the user's program.

What was recorded is made a session and written on the program's own thread. Meanwhile a signal
that the program answers waits until the work is done, and is then answered as ever; a second
Ctrl-C ends the work at once. What the program set for its own code does not reach ours: warnings
that are errors, a low recursion limit, tracers.
"""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_DEPTH = 2000  # frames that our work may need above those that are there


class Interrupted(BaseException):
    """A second Ctrl-C ends what is under way."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """Work of ours: signals wait, and the program's settings are not in force.

    Within another such moment only the outer one counts.
    """
    if vars(_thread).get("moment") is not None:
        yield
        return
    moment = _Moment()
    moment.begin()
    try:
        with suppress(Interrupted):
            yield
    finally:
        moment.end()


@contextmanager
def disturbed() -> Iterator[None]:
    """Let the program in amid work of ours: a callback of its own."""
    moment: _Moment | None = vars(_thread).get("moment")
    if moment is None:
        yield
        return
    moment.end()
    try:
        yield
    finally:
        moment.begin()


class _Moment:
    """What is set aside of the program's, and the signals that wait."""

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}
        self._came: list[int] = []

    def begin(self) -> None:
        """Set the program's own aside; only the main thread can hold signals back."""
        vars(_thread)["moment"] = self
        if threading.current_thread() is threading.main_thread():
            self._hold_signals()
        self._tracers = [_taken(sys.gettrace, sys.settrace), _taken(sys.getprofile, sys.setprofile)]
        self._limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(self._limit, _depth() + _DEPTH))
        self._warnings = _no_errors()

    def end(self) -> None:
        """Give everything back, and answer the signals that came."""
        if self._warnings is not None:
            self._warnings.__exit__(None, None, None)
        sys.setrecursionlimit(self._limit)
        for give_back in self._tracers:
            give_back()
        vars(_thread)["moment"] = None
        self._answer_signals()

    def _hold_signals(self) -> None:
        """Hold back each signal that Python code would answer, and what wakes a loop for it."""
        self._wakeup = signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            if callable(handler := signal.getsignal(number)):
                self._handlers[number] = handler
                signal.signal(number, self._came_in)

    def _answer_signals(self) -> None:
        if not self._handlers:
            return
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        came, self._came = tuple(dict.fromkeys(self._came)), []
        _raise(came)

    def _came_in(self, number: int, _: FrameType | None) -> None:
        again = number == signal.SIGINT and number in self._came
        self._came.append(number)
        if again:
            raise Interrupted


_thread = threading.local()


def _taken(now: Callable[[], Any], set_to: Callable[[Any], None]) -> Callable[[], None]:
    """Take away a tracer of Python's; returns what gives it back.

    One that is not callable is C's own, as torch's for ``with_stack``; it cannot be given back,
    and costs our work only time. One that torch sets meanwhile stays.
    """
    tracer = now()
    if not callable(tracer):
        return lambda: None
    set_to(None)
    return lambda: set_to(tracer) if now() is None else None


def _raise(numbers: Sequence[int]) -> None:
    """Raise signals one after the other, though the program's answer may be an exception."""
    if numbers:
        try:
            signal.raise_signal(numbers[0])
        finally:
            _raise(numbers[1:])


def _no_errors() -> warnings.catch_warnings[Any] | None:
    """Silence warnings that would be errors.

    Where none would be, filters stay: Python shows anew what it showed, once they changed.
    """
    if not any(action == "error" for action, *_ in warnings.filters):
        return None
    silent = warnings.catch_warnings()
    silent.__enter__()
    warnings.simplefilter("ignore")
    return silent


def _depth() -> int:
    depth, frame = 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    return depth
