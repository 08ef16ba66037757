"""Owns how an exception is known as a program's own answer to a signal.

A handler that raises (a time limit by SIGALRM) raises out of whatever runs, also out of code of
ours; it is the program's, and no failure.
"""

from __future__ import annotations

import signal
from types import CodeType, TracebackType
from typing import Any


def is_answer(error: BaseException) -> bool:
    """Tell whether an exception came out of a signal handler of the program's."""
    try:
        codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
        trace: TracebackType | None = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code in codes:
                return True
            trace = trace.tb_next
    except Exception:  # no memory or stack is left; then it was no handler
        return False
    return False


def _code(handler: Any) -> CodeType | None:
    """The code of a function or method; of another callable, that of its class's ``__call__``."""
    code = getattr(handler, "__code__", None)
    if code is None and callable(handler):
        code = getattr(type(handler).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None
