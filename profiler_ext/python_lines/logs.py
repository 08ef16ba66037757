"""Owns what the watch writes down: what happened in all threads, in order, as cheap as can be."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

ENTERED = 0
EXITED = -1
CALLED = -2
LINES_DISABLED = -3
NO_LINE = -4
THREAD_STARTED = -5
SNAPSHOT = -6

Log = list[Any]
"""Four for each entry: the time in nanoseconds, Python's id of the thread, what it is about, and
the line or one of the numbers above.

It is about code; where a module is ``CALLED`` about a reference to it, and where a thread has
``BEGUN``, or ``STANDS`` where the entries after it lead to, about the system's id of it, since
Python's is given again when a thread is over. One flat list costs less than a tuple for each: it
makes no work for the garbage collector.
"""
WIDTH = 4

Entry = tuple[int, int, Any, int]


def entries(log: Iterable[Any]) -> Iterator[Entry]:
    """Yield the entries of a log, or of a part of it."""
    return zip(*[iter(log)] * WIDTH, strict=True)


class ThisThread(threading.local):
    """Writes down that a thread has begun, when it is first asked for in it.

    Attributes:
        is_known: it is written down.
    """

    def __init__(self, log: Log, clock_ns: Callable[[], int]) -> None:
        """Write it down.

        Args:
            log: where.
            clock_ns: tells the time.
        """
        log.extend((clock_ns(), threading.get_ident(), threading.get_native_id(), THREAD_STARTED))
        self.is_known = True


def persistent_entries(log: Log) -> Log:
    """Return the entries of a log that hold on: which threads there are, which code is silenced."""
    return [part for entry in entries(log) if entry[3] in (THREAD_STARTED, LINES_DISABLED) for part in entry]


def frequent_code(some: Iterable[Entry], fraction: float) -> Iterator[CodeType]:
    """Yield the code whose lines are at least such a part of some entries.

    Args:
        some: the entries.
        fraction: the part.
    """
    counts: dict[int, int] = {}
    codes: dict[int, CodeType] = {}
    total = 0
    for _, _, subject, number in some:
        total += 1
        if number > 0:
            counts[id(subject)] = counts.get(id(subject), 0) + 1
            codes[id(subject)] = subject
    for code, count in counts.items():
        if count >= fraction * total:
            yield codes[code]
