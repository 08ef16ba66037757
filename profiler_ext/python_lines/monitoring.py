"""One tool of ``sys.monitoring``, which leaves nothing behind.

Source: PEP 669. Events of a code object are "local": other code runs as before. A freed id keeps
its callbacks and events (``Python/instrumentation.c``, ``monitoring_free_tool_id_impl``), so they
are removed first.
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
"""The others are reserved: debuggers 0, coverage 1, cProfile 2, Python 5."""

Callback = Callable[..., Any]


def python_without_monitoring() -> str | None:
    """Return the version of a Python without ``sys.monitoring``, else ``None``."""
    has_it = hasattr(sys, "monitoring")
    return None if has_it else ".".join(map(str, sys.version_info[:2]))


class _Returning(threading.local):
    """The id of the frame whose return a tool is handling on a thread.

    Tools get an event one after the other, so one may have seen the return before another begins
    something at it; the frame is open until all have.
    """

    frame: int | None = None


RETURNING = _Returning()


@contextmanager
def returning(frame: FrameType | None) -> Iterator[None]:
    """Mark a frame as returning, for code called from that event."""
    RETURNING.frame = None if frame is None else id(frame)
    try:
        yield
    finally:
        RETURNING.frame = None


class Tool:
    """One tool of ``sys.monitoring``."""

    def __init__(self) -> None:
        if (version := python_without_monitoring()) is not None:
            raise LinesUnavailableError(f"Python {version} has no sys.monitoring", is_old=True)
        self._monitoring: Any = vars(sys)["monitoring"]
        self.disable = self._monitoring.DISABLE  # returned by a callback to disable an event
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
        """Register the callbacks."""
        for name, callback in callbacks.items():
            self._registered_events.append(self._event(name))
            self._monitoring.register_callback(self._id, self._registered_events[-1], callback)
        self._monitoring.set_events(self._id, self._sum(everywhere))

    def watch(self, code: CodeType, events: tuple[str, ...]) -> None:
        """Enable events in a code object."""
        # Another thread may leave meanwhile, and the id be another tool's: no thread switch happens
        # between the last two steps, and no lock could be held across a fork or signal handler.
        self._codes[id(code)] = code
        set_events, events_here = self._monitoring.set_local_events, self._sum(events)
        if not self._is_ended:
            set_events(self._id, code, events_here)

    def leave(self) -> None:
        """Remove everything; if that was interrupted, it is completed by the next call."""
        self._is_ended = True
        try:
            self._unregister()
        except ValueError:
            if not self._is_removed:
                raise

    def restart_events(self) -> None:
        """Enable what callbacks disabled: the id's next owner would miss it.

        Other tools' events are enabled too: Python has no finer way.
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
