"""Owns that a command which a signal ends leaves nothing behind: no temporary file, no process.

SIGTERM and SIGHUP would end it where it stands. So they are heard while it works: what is open is
closed, and then the process ends by the signal after all.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_COMMAND_SIGNALS = ("SIGTERM", "SIGHUP")  # the second is not on every system


class _SignalReceivedError(BaseException):
    """A signal ends the command."""


@contextmanager
def cleaned_up_on_signal() -> Iterator[None]:
    """Close what is open before a signal ends the process; a second one ends it at once."""
    received: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        received.append(number)
        raise _SignalReceivedError

    signals = _default_signals()
    for number in signals:
        signal.signal(number, end)
    try:
        yield
    except _SignalReceivedError:
        signal.raise_signal(received[0])
    finally:
        for number in signals:
            signal.signal(number, signal.SIG_DFL)


def _default_signals() -> list[signal.Signals]:
    """Return the signals that the system would answer; only the main thread can hear them."""
    if threading.current_thread() is not threading.main_thread():
        return []
    numbers = (getattr(signal, name) for name in _COMMAND_SIGNALS if hasattr(signal, name))
    return [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
