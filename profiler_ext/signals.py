"""Finishes work before SIGTERM and SIGHUP end a process.

They are handled only while there is something to keep; then the process ends by the signal after
all. A handler that the program sets replaces this one.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_NAMES = ("SIGTERM", "SIGHUP")  # the second is not on every system


class SignalReceivedError(BaseException):
    """A signal ends the command."""


@contextmanager
def cleaned_up_on_signal() -> Iterator[None]:
    """Close what is open before a signal ends the process; a second one ends it at once.

    Raises:
        SignalReceivedError: Within the context; who catches it may say what there is so far.
    """
    received: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        received.append(number)
        raise SignalReceivedError(signal.Signals(number).name)

    signals = _default_signals()
    for number in signals:
        signal.signal(number, end)
    try:
        yield
    except SignalReceivedError:
        pass
    finally:
        for number in signals:
            signal.signal(number, signal.SIG_DFL)
        if received:
            signal.raise_signal(received[0])


def _default_signals() -> list[signal.Signals]:
    """Return the signals with the default action; only the main thread can handle them."""
    if threading.current_thread() is not threading.main_thread():
        return []
    numbers = (getattr(signal, name) for name in _NAMES if hasattr(signal, name))
    return [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]


class TerminationSignals:
    """Handles the signals that would end the process."""

    def __init__(self, before_end: Callable[[str], None]) -> None:
        self._before_end = before_end
        self._numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]

    def install(self) -> None:
        """Handle those without a handler; only the main thread may install one."""
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                if signal.getsignal(number) is signal.SIG_DFL:
                    signal.signal(number, self._end)

    def leave(self) -> None:
        """Leave them to the system again; where this is another thread, they end all the same."""
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                if signal.getsignal(number) == self._end:
                    signal.signal(number, signal.SIG_DFL)

    def _end(self, number: int, _: FrameType | None) -> None:
        try:
            self._before_end(signal.Signals(number).name)
        finally:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
