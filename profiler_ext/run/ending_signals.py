"""Owns the signals that end a program at once, while something of it is recorded.

SIGTERM and SIGHUP are the system's to answer where the program does not, and no Python code of
the program would run. So they are heard only while there is something to keep, and then end the
program as they would have. A handler that the program sets takes their place.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

_RUN_SIGNALS = ("SIGTERM", "SIGHUP")  # the second is not on every system


class TerminationSignals:
    """Hears the signals that would end the process."""

    def __init__(self, before_end: Callable[[str], None]) -> None:
        """Hear nothing yet.

        Args:
            before_end: called with the signal's name before it ends the process.
        """
        self._before_end = before_end
        self._numbers = [getattr(signal, name) for name in _RUN_SIGNALS if hasattr(signal, name)]

    def install(self) -> None:
        """Hear those that nobody answers; only the main thread can ask for it."""
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
