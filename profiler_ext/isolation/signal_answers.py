"""Owns how an exception is known as the program's own, though it came out of code of ours.

A handler that raises (a time limit by SIGALRM) raises out of whatever runs, also out of code of
ours; and so does what is thrown into a thread from another (a time limit by
``PyThreadState_SetAsyncExc``). It is the program's, and no failure.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any

_RAISES_HERE = {
    *("profiler_ext", "_profiler_ext_of_run", "exporters", "builtins"),
    *("torch", "numpy", "pandas", "msgspec", "perfetto", "google", "rich"),
}
"""With Python's own modules, all whose classes of exceptions our work can raise by itself."""


def is_answer(error: BaseException) -> bool:
    """Tell whether an exception came out of a signal handler or another thread of the program's."""
    try:
        codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
        frames = list(_frames(error.__traceback__))
        return any(each.f_code in codes for each in frames) or _is_thrown(error, frames)
    except Exception:  # no memory or stack is left; then it was no handler
        return False


def _is_thrown(error: BaseException, frames: list[FrameType]) -> bool:
    """Tell whether no code that ran can have raised it: its class is the program's, no frame is."""
    return (
        bool(frames)
        and not _is_of_our_work(type(error).__module__)
        and _is_of_our_work(frames[-1].f_globals.get("__name__"))
    )


def _is_of_our_work(module: object) -> bool:
    name = str(module).partition(".")[0]
    return name in _RAISES_HERE or (name in sys.stdlib_module_names and name != "__main__")


def _frames(trace: TracebackType | None) -> Iterator[FrameType]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _code(handler: Any) -> CodeType | None:
    """The code of a function or method; of another callable, that of its class's ``__call__``."""
    code = getattr(handler, "__code__", None)
    if code is None and callable(handler):
        code = getattr(type(handler).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None
