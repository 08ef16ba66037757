"""The record of a failure in this package, and which exceptions are the program's own."""

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
    """A failure of an observation."""

    hook: str  # ``CompiledFxGraph.post_compile``
    detail: str  # the error and its place
    scope: str | None  # the compile id that is affected; ``None`` outside any compile
    subject: Callable[[], Any] = _no_object  # the object observed, while it lives
    lost: str | None = None  # what alone was lost; ``None`` if it may be all of the hook's

    def is_repeated_by(self, other: Failure, is_disabled: bool) -> bool:
        """Tell whether another one loses nothing more: the same, in the same compile."""
        if is_disabled and other.lost is None:
            return self.hook == other.hook
        same = (self.hook, self.detail, self.scope) == (other.hook, other.detail, other.scope)
        return same and (self.scope is not None or self.lost is not None)


def reference_to(subject: Any) -> Callable[[], Any]:
    """Return a weak reference, if possible."""
    with suppress(TypeError):
        return _no_object if subject is None else weakref.ref(subject)
    return _no_object


def failure_detail(error: BaseException) -> str:
    """Return what failed and where, in one short line, without reading files."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    text = str(error).partition("\n")[0][:200]
    where = f"{Path(frame.f_code.co_filename).name}:{line} ({frame.f_code.co_name})"
    return f"{type(error).__name__} at {where}: {text}"


_OWN_EXCEPTION_MODULES = {
    *("profiler_ext", "_profiler_ext_of_run", "exporters", "builtins"),
    *("torch", "numpy", "pandas", "msgspec", "perfetto", "google", "rich"),
}
"""With Python's own modules, those whose exceptions our code can raise."""
_RAISE_OPCODES = frozenset(opmap[name] for name in ("RAISE_VARARGS", "RERAISE"))
_RAISED_WITHOUT_ARGS = (
    *(MemoryError, StopIteration, StopAsyncIteration, EOFError, LookupError),
    *(AttributeError, AssertionError, NotImplementedError),
)
"""C code raises these without arguments."""
_STUB_CODE_BYTES = 6
"""The length of a C function's stub code, as Cython's (``Objects/codeobject.c``,
``PyCode_NewEmpty``)."""


def is_raised_by_program(error: BaseException) -> bool:
    """Tell whether an exception came from the program's signal handler or another thread.

    A signal handler (a time limit by SIGALRM) raises in whatever runs, and so does
    ``PyThreadState_SetAsyncExc``. That is no failure of ours.
    """
    try:
        codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
        entries = list(_entries(error.__traceback__))
        frames = [each.tb_frame for each in entries]
        is_handled = any(each.f_code in codes or _is_handler(each) for each in frames)
        return is_handled or _is_injected(error, entries[-1])
    except Exception:  # no memory or stack is left: it was no handler
        return False


def _is_handler(frame: FrameType) -> bool:
    """Tell whether a frame was called with a signal and the interrupted frame, as by Python."""
    # The program may have set another handler since, or this one is inside a ``partial``.
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
    """Tell whether a builtin exception was thrown in: as a class, and at no ``raise``."""
    is_bare = not error.args and not isinstance(error, _RAISED_WITHOUT_ARGS)
    code = last.tb_frame.f_code.co_code
    is_python = len(code) > _STUB_CODE_BYTES
    return is_bare and is_python and code[last.tb_lasti] not in _RAISE_OPCODES


def _is_own_module(module: object) -> bool:
    name = str(module).partition(".")[0]
    is_stdlib = name in sys.stdlib_module_names and name != "__main__"
    return is_stdlib or name in _OWN_EXCEPTION_MODULES


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
