"""The use of ``sys.monitoring``: one tool among others, that leaves nothing behind.

Source: PEP 669. Events of a code object are "local": code that is not watched runs as ever. An id
that is given back keeps its callbacks and events (``Python/instrumentation.c``,
``monitoring_free_tool_id_impl``), so they are taken away first.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from profiler_ext.errors import LinesUnavailableError

NAME = "profiler_ext"
_UNRESERVED_IDS = (3, 4)
"""The others have an owner that takes no other: debuggers 0, coverage 1, cProfile 2, Python 5."""

Callback = Callable[..., Any]


def python_without_monitoring() -> str | None:
    """Return the version of this Python where it has no ``sys.monitoring``, else ``None``."""
    has_it = hasattr(sys, "monitoring")
    return None if has_it else ".".join(map(str, sys.version_info[:2]))


class _Returning(threading.local):
    """The frame that returns now on a thread, by its identity: an event of that calls a tool.

    Tools hear of one event one after the other, so that one may have heard of the return before
    another begins something at it; the frame is among the open ones until all have.
    """

    frame: int | None = None


RETURNING = _Returning()


@contextmanager
def returning(frame: FrameType | None) -> Iterator[None]:
    """Have a frame return, for what is called from the event of it."""
    RETURNING.frame = None if frame is None else id(frame)
    try:
        yield
    finally:
        RETURNING.frame = None


class Tool:
    """One tool of ``sys.monitoring``.

    Attributes:
        disable: what a callback returns to hear no more of a place.
    """

    def __init__(self) -> None:
        """Take the first id that is free.

        Raises:
            LinesUnavailableError: This Python has no ``sys.monitoring``, or no id is free.
        """
        if (version := python_without_monitoring()) is not None:
            raise LinesUnavailableError(f"Python {version} has no sys.monitoring", is_old=True)
        self._monitoring: Any = vars(sys)["monitoring"]
        self.disable = self._monitoring.DISABLE
        self._codes: dict[int, CodeType] = {}
        self._registered_events: list[int] = []
        self._is_ended = self._is_removed = False
        self._id = self._acquire_id()

    def _acquire_id(self) -> int:
        others = [self._monitoring.get_tool(each) for each in _UNRESERVED_IDS]
        for each, other in zip(_UNRESERVED_IDS, others, strict=True):
            if other is None:
                self._monitoring.use_tool_id(each, NAME)
                return each
        raise LinesUnavailableError(f"sys.monitoring serves {', '.join(map(str, others))} already")

    def listen(self, callbacks: dict[str, Callback], everywhere: tuple[str, ...]) -> None:
        """Begin to call back."""
        for name, callback in callbacks.items():
            self._registered_events.append(self._event(name))
            self._monitoring.register_callback(self._id, self._registered_events[-1], callback)
        self._monitoring.set_events(self._id, self._sum(everywhere))

    def watch(self, code: CodeType, events: tuple[str, ...]) -> None:
        """Call back at events within a code object, and at no others there.

        Another thread may leave meanwhile, and the id be another tool's: no thread runs between
        the last two steps, and no lock is there that a fork or a signal handler could find held.
        """
        self._codes[id(code)] = code
        set_events, events_here = self._monitoring.set_local_events, self._sum(events)
        if not self._is_ended:
            set_events(self._id, code, events_here)

    def leave(self) -> None:
        """Leave Python as it was found; where that was interrupted, it is done when called again.

        Raises:
            ValueError: Python refuses, and not because another thread did it meanwhile.
        """
        self._is_ended = True
        try:
            self._unregister()
        except ValueError:
            if not self._is_removed:
                raise

    def restart_events(self) -> None:
        """Have no place silent that a callback heard no more of; its id may be another tool's next.

        Others hear once more of what they disabled: Python knows no less.
        """
        self._monitoring.restart_events()

    def _unregister(self) -> None:
        if self._is_removed:
            return
        self._monitoring.set_events(self._id, 0)
        for code in tuple(self._codes.values()):
            self._monitoring.set_local_events(self._id, code, 0)
        for event in tuple(self._registered_events):
            self._monitoring.register_callback(self._id, event, None)
        self._monitoring.free_tool_id(self._id)
        self._is_removed = True

    def _sum(self, names: tuple[str, ...]) -> int:
        return sum(map(self._event, names))

    def _event(self, name: str) -> int:
        return int(getattr(self._monitoring.events, name))
