"""Work of ours amid the user's program.

Its signals, tracer, warnings, recursion limit and modules are set aside.

A callback of ``sys.monitoring`` stands on the stack of the frame that it is called in, and where
Python finds that too deep, the program has the RecursionError before anything can catch it.

A program may take modules out, to load them anew or to load others of the same names. What we
import or look up by name later must be what we began with, and no second copy.

What was recorded is made a session and written on the program's own thread. Meanwhile a signal
that the program answers waits until the work is done, and is then answered as ever; a second
Ctrl-C ends the work at once. What the program set for its own code does not reach ours: warnings
that are errors, a low recursion limit, tracers, modules taken out of ``sys.modules``.
"""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from profiler_ext.isolation.failures import is_raised_by_program

_HEADROOM_FRAMES = 100
"""More than any callback of ours and what it calls."""


class RecursionHeadroom:
    """Room for our own frames above the deepest of the program's."""

    _limit: int | None = None

    def make(self) -> None:
        """Raise the limit of recursion."""
        self._limit = program_limit() + _HEADROOM_FRAMES
        set_program_limit(self._limit)

    def restore(self) -> None:
        """Lower it again, unless the program has set another one meanwhile."""
        if self._limit is not None and program_limit() == self._limit:
            set_program_limit(self._limit - _HEADROOM_FRAMES)
        self._limit = None


def program_limit() -> int:
    """Return the limit of recursion that the program's own code has."""
    limits = _thread.limits
    return limits[0] if limits else sys.getrecursionlimit()


def set_program_limit(limit: int) -> None:
    """Set the limit of recursion that the program's own code has."""
    limits = _thread.limits
    if limits:
        limits[0] = limit
    else:
        sys.setrecursionlimit(limit)


def set_own_limit(limit: int, back: ExitStack) -> None:
    """Set a limit for work of ours.

    Args:
        back: is given what puts the program's into force again, as it stands then.
    """
    limits = [sys.getrecursionlimit()]
    back.callback(list, map(sys.setrecursionlimit, limits))  # no code of ours, which could fail
    back.callback(setattr, _thread, "limits", _thread.limits)
    _thread.limits = limits
    sys.setrecursionlimit(limit)


class _Thread(threading.local):
    """What work of ours in this thread puts back: the limit of the program's own code."""

    limits: list[int] | None = None


_thread = _Thread()


_PACKAGE = __name__.partition(".")[0]


class _Loaded:
    """The modules of this package, as they were loaded first."""

    def __init__(self) -> None:
        self._modules = {_PACKAGE: sys.modules[_PACKAGE]}
        self._counted = 0

    def update(self) -> None:
        """Look for those that were loaded since, where any module was."""
        if len(sys.modules) == self._counted:
            return
        for name, module in tuple(sys.modules.items()):
            if name.startswith(f"{_PACKAGE}."):
                self._modules.setdefault(name, module)
        self._counted = len(sys.modules)

    def displaced(self) -> dict[str, ModuleType | None]:
        """Return what the program has under the names of ours."""
        if sys.modules.get(_PACKAGE) is self._modules[_PACKAGE]:
            self.update()
        current = {name: sys.modules.get(name) for name in self._modules}
        return {name: m for name, m in current.items() if m is not self._modules[name]}

    def install(self, restores: ExitStack) -> None:
        """Have them under their names until what gives back is closed."""
        for name, module in self.displaced().items():
            if module is None:
                restores.callback(sys.modules.pop, name, None)
            else:
                restores.callback(sys.modules.__setitem__, name, module)
            sys.modules[name] = self._modules[name]


_LOADED = _Loaded()


@contextmanager
def own_modules() -> Iterator[None]:
    """Have this package's modules under their names, and then again what the program has there."""
    with ExitStack() as restores:
        _LOADED.install(restores)
        try:
            yield
        finally:
            with suppress(Exception):
                _LOADED.update()


_EXTRA_FRAMES = 2000  # frames that our work may need above those that are there


class Interrupted(BaseException):
    """A second Ctrl-C ends what is under way."""


def isolated() -> AbstractContextManager[None]:
    """Work of ours: signals wait, and the program's settings are not in force.

    Within another such moment only the outer one counts. What of it fails is not set aside, and
    the work is done all the same.

    Returns:
        A context manager for the work; what ends it by a second Ctrl-C goes no further.
    """
    is_nested = _thread_state.__dict__.get("moment") is not None
    return nullcontext() if is_nested else _Isolation()


@contextmanager
def user_code() -> Iterator[None]:
    """Let the program in amid work of ours: a callback of its own."""
    moment: _Isolation | None = _thread_state.__dict__.get("moment")
    if moment is None:
        yield
        return
    moment.end()
    try:
        yield
    finally:
        moment.begin()


class _Isolation:
    """What is set aside of the program's, and the signals that wait.

    Each piece that is set aside has put what gives it back onto one stack first; nothing on that
    stack is code of ours that could fail. No generator makes it: a tracer would see it begin, and
    not go on.
    """

    def __init__(self) -> None:
        self._back = ExitStack()
        self._pending_signals: tuple[int, ...] = ()
        self._is_work = False  # what a second Ctrl-C ends; else nobody would catch that end

    def __enter__(self) -> None:
        try:
            self.begin()
        except BaseException:
            self.end()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        try:
            self.end()
        except Interrupted:  # before it had begun to end
            self.end()
        return kind is not None and issubclass(kind, Interrupted)

    def begin(self) -> None:
        """Set the program's own aside; only the main thread can hold signals back."""
        _thread_state.__dict__["moment"] = self
        self._back.callback(_thread_state.__dict__.pop, "moment", None)
        is_main = threading.current_thread() is threading.main_thread()
        signals = (self._hold_signals, _survive_writes) if is_main else ()
        for set_aside in (*signals, *_SETTINGS):
            try:
                set_aside(self._back)
            except Exception as error:
                if is_raised_by_program(error):
                    raise
        self._is_work = True

    def end(self) -> None:
        """Give everything back, and answer the signals that came."""
        self._is_work = False
        try:
            self._back.close()
        finally:
            pending, self._pending_signals = tuple(dict.fromkeys(self._pending_signals)), ()
            if pending:
                _raise(pending)

    def _hold_signals(self, back: ExitStack) -> None:
        """Hold back each signal that Python code would answer, and what wakes a loop for it."""
        wakeup = signal.set_wakeup_fd(-1)
        back.callback(signal.set_wakeup_fd, wakeup, warn_on_full_buffer=False)
        for number in signal.valid_signals():
            if callable(handler := signal.getsignal(number)):
                back.callback(signal.signal, number, handler)
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        is_second = number == signal.SIGINT and number in self._pending_signals
        self._pending_signals = (*self._pending_signals, number)
        if is_second and self._is_work:
            raise Interrupted


_thread_state = threading.local()


def _survive_writes(back: ExitStack) -> None:
    """Have a write of ours past ``ulimit -f`` fail, as in Python, where the program shall end."""
    number = getattr(signal, "SIGXFSZ", None)  # not on every system
    if number is not None and signal.getsignal(number) is signal.SIG_DFL:
        back.callback(signal.signal, number, signal.SIG_DFL)
        signal.signal(number, signal.SIG_IGN)


def _no_tracer(back: ExitStack) -> None:
    """Let a tracer of Python's hear nothing of our work.

    It hears the end of each frame that it saw begin: coverage and debuggers count on that. One of
    C's own (coverage's, torch's for ``with_stack``) stays: given back from Python, it would not
    hear of the frames that are open, and costs our work only time. One that torch sets meanwhile
    stays too, and so does a profiler, which no frame could keep.
    """
    tracer = sys.gettrace()
    if _is_python(tracer):
        back.callback(_restore_tracer, tracer)
        sys.settrace(_null_tracer)


def _is_python(tracer: Any) -> bool:
    """Tell whether a tracer is written in Python: a function, a method, a class that is called."""
    functions = (FunctionType, MethodType)
    return isinstance(tracer, functions) or isinstance(type(tracer).__call__, FunctionType)


def _null_tracer(_: FrameType, __: str, ___: Any) -> None:
    """Trace no frame that begins."""


def _restore_tracer(tracer: Any) -> None:
    if sys.gettrace() in (None, _null_tracer):
        sys.settrace(tracer)


def _deep_stack(back: ExitStack) -> None:
    set_own_limit(max(sys.getrecursionlimit(), _depth() + _EXTRA_FRAMES), back)


def _raise(numbers: Sequence[int]) -> None:
    """Raise signals one after the other, though the program's answer may be an exception."""
    if numbers:
        try:
            signal.raise_signal(numbers[0])
        finally:
            _raise(numbers[1:])


def _filters_kept(back: ExitStack) -> None:
    """Let filters of warnings count as changed only where they are others in the end.

    pandas changes and restores them all the time, and Python shows anew what it showed once.
    Source: ``warnings.py``, ``_filters_mutated``.
    """
    notify = vars(warnings).get("_filters_mutated")
    if notify not in (None, _ignore_filter_change):  # a moment of another thread's keeps them
        back.callback(_notify_if_changed, notify, list(warnings.filters))
        vars(warnings)["_filters_mutated"] = _ignore_filter_change


def _ignore_filter_change() -> None:
    """Stands for what tells Python that filters of warnings have changed."""


def _notify_if_changed(notify: Callable[[], None], before: list[Any]) -> None:
    vars(warnings)["_filters_mutated"] = notify
    if warnings.filters != before:
        notify()


def _no_errors(back: ExitStack) -> None:
    """Silence warnings that would be errors."""
    if any(action == "error" for action, *_ in warnings.filters):
        back.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")


def _own_modules(back: ExitStack) -> None:
    back.enter_context(own_modules())


def _depth() -> int:
    depth, frame = 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


_SETTINGS = (_no_tracer, _deep_stack, _filters_kept, _no_errors, _own_modules)
