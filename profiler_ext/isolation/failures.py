"""What is kept of a failure of ours, and how an exception is known as the program's own.

A handler that raises (a time limit by SIGALRM) raises out of whatever runs, also out of code of
ours; and so does what is thrown into a thread from another (a time limit by
``PyThreadState_SetAsyncExc``). It is the program's, and no failure.
"""

from __future__ import annotations

import inspect
import signal
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from opcode import opmap
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any


def _no_object() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong in an observation.

    Attributes:
        hook: what was observed, ``CompiledFxGraph.post_compile``.
        detail: the error and its place, in one line.
        scope: what may have lost something by it, a compile id; ``None`` outside any compile.
        subject: whose method was observed, while it lives.
        lost: what alone was lost by it; ``None`` where that may be all that the hook had to tell.
    """

    hook: str
    detail: str
    scope: str | None
    subject: Callable[[], Any] = _no_object
    lost: str | None = None

    def is_repeated_by(self, other: Failure, is_disabled: bool) -> bool:
        """Tell whether another one loses nothing more: the same, in the same compile."""
        if is_disabled and other.lost is None:
            return self.hook == other.hook
        same = (self.hook, self.detail, self.scope) == (other.hook, other.detail, other.scope)
        return same and (self.scope is not None or self.lost is not None)


def reference_to(subject: Any) -> Callable[[], Any]:
    """Return a weak reference, where there may be one."""
    with suppress(TypeError):
        return _no_object if subject is None else weakref.ref(subject)
    return _no_object


def failure_detail(error: BaseException) -> str:
    """Say what failed and where, in one short line; no file is read, which may fail as well."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    text = str(error).partition("\n")[0][:200]
    where = f"{Path(frame.f_code.co_filename).name}:{line} ({frame.f_code.co_name})"
    return f"{type(error).__name__} at {where}: {text}"


_OWN_EXCEPTION_MODULES = {
    *("profiler_ext", "_profiler_ext_of_run", "exporters", "builtins"),
    *("torch", "numpy", "pandas", "msgspec", "perfetto", "google", "rich"),
}
"""With Python's own modules, all whose classes of exceptions our work can raise by itself."""
_RAISE_OPCODES = frozenset(opmap[name] for name in ("RAISE_VARARGS", "RERAISE"))
_RAISED_WITHOUT_ARGS = (
    *(MemoryError, StopIteration, StopAsyncIteration, EOFError, LookupError),
    *(AttributeError, AssertionError, NotImplementedError),
)
"""What code in C raises so."""
_STUB_CODE_BYTES = 6
"""The length of the code of a frame that stands for a function in C, as Cython's do.

Source: ``Objects/codeobject.c``, ``PyCode_NewEmpty``.
"""


def is_raised_by_program(error: BaseException) -> bool:
    """Tell whether an exception came out of a signal handler or another thread of the program's."""
    try:
        codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
        entries = list(_entries(error.__traceback__))
        frames = [each.tb_frame for each in entries]
        is_handled = any(each.f_code in codes or _is_handler(each) for each in frames)
        return is_handled or _is_injected(error, entries[-1])
    except Exception:  # no memory or stack is left; then it was no handler
        return False


def _is_handler(frame: FrameType) -> bool:
    """Tell whether it was passed a signal and the frame that it came out of, as Python alone does.

    By now the program may have set another handler, or this one be within a ``partial``.
    """
    code, before = frame.f_code, frame.f_back
    if before is None or _is_own_module(frame.f_globals.get("__name__")):
        return False
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    given = [frame.f_locals.get(name) for name in code.co_varnames[:count]]
    arguments = [*given, *(each for value in given if type(value) is tuple for each in value)]
    has_signal_number = any(type(each) is signal.Signals or type(each) is int for each in arguments)
    return has_signal_number and any(each is before for each in arguments)


def _is_injected(error: BaseException, last: TracebackType) -> bool:
    """Tell whether no code that ran can have raised it."""
    if not _is_own_module(last.tb_frame.f_globals.get("__name__")):
        return False
    module = type(error).__module__
    is_builtin = module == "builtins" and _is_raised_by_nothing(error, last)
    return is_builtin or not _is_own_module(module)


def _is_raised_by_nothing(error: BaseException, last: TracebackType) -> bool:
    """Tell whether one of Python's own was thrown in: as a class, and at no ``raise``."""
    is_bare = not error.args and not isinstance(error, _RAISED_WITHOUT_ARGS)
    code = last.tb_frame.f_code.co_code
    is_python = len(code) > _STUB_CODE_BYTES
    return is_bare and is_python and code[last.tb_lasti] not in _RAISE_OPCODES


def _is_own_module(module: object) -> bool:
    name = str(module).partition(".")[0]
    return name in _OWN_EXCEPTION_MODULES or (
        name in sys.stdlib_module_names and name != "__main__"
    )


def _entries(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _code(handler: Any) -> CodeType | None:
    """The code of a function or method; of another callable, that of its class's ``__call__``."""
    code = getattr(handler, "__code__", None)
    if code is None and callable(handler):
        code = getattr(type(handler).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None
