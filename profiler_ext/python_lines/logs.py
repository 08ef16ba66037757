"""Owns what the watch writes down: for each thread what happened, in order, as cheap as can be."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import CodeType
from typing import Any

Entry = tuple[int, Any, int]
"""Time in nanoseconds, what it is about (code, or a reference to a module), and the line or:"""

ENTERED = 0
LEFT = -1
CALLED = -2
SILENCED = -3
NO_LINE = -4


class ThreadLog:
    """What happened in one thread.

    Attributes:
        thread: the system's id of the thread.
        entries: the entries so far.
        checked: how many of them were looked at, as to whether they come too fast.
    """

    __slots__ = ("checked", "entries", "thread")

    def __init__(self, thread: int, entries: list[Entry]) -> None:
        """Begin with what is known of the thread.

        Args:
            thread: the system's id of the thread.
            entries: what led to where it stands.
        """
        self.thread = thread
        self.entries = entries
        self.checked = 0


class Logs(threading.local):
    """The log of each thread; it is made when the thread first has something to write down."""

    def __init__(self, known: dict[int, ThreadLog], begun: list[ThreadLog]) -> None:
        """Make this thread's log.

        Args:
            known: logs of threads that ran when the watch began, by Python's ids of them.
            begun: gets the logs of all others.
        """
        log = known.get(threading.get_ident())
        if log is None or log.thread != threading.get_native_id():
            log = ThreadLog(threading.get_native_id(), [])
            begun.append(log)
        self.log = log
        self.entries = log.entries


def frequent(entries: list[Entry], fraction: float) -> Iterator[CodeType]:
    """Yield the code whose lines are at least such a part of some entries.

    Args:
        entries: the entries.
        fraction: the part.
    """
    counts: dict[int, int] = {}
    codes: dict[int, CodeType] = {}
    for _, subject, number in entries:
        if number > 0:
            counts[id(subject)] = counts.get(id(subject), 0) + 1
            codes[id(subject)] = subject
    for code, count in counts.items():
        if count >= fraction * len(entries):
            yield codes[code]
