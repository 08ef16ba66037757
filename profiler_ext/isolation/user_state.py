"""Work of this package inside the user's program, whose signals and settings are set aside."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has none
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from operator import is_
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from profiler_ext.isolation.failures import is_raised_by_program

_HEADROOM_FRAMES = 100
"""More than any callback of this package needs."""


class RecursionHeadroom:
    """Room for our own frames above the program's deepest.

    A ``sys.monitoring`` callback is on the stack of its frame; if Python finds that too deep, the
    program gets a RecursionError that nothing can catch before it.
    """

    _limit: int | None = None

    def make(self) -> None:
        """Raise the recursion limit."""
        self._limit = program_limit() + _HEADROOM_FRAMES
        set_program_limit(self._limit)

    def restore(self) -> None:
        """Lower it again, unless the program has set another one meanwhile."""
        if self._limit is not None and program_limit() == self._limit:
            set_program_limit(self._limit - _HEADROOM_FRAMES)
        self._limit = None


def program_limit() -> int:
    """Return the recursion limit of the program's own code."""
    limits = _thread.limits
    return limits[0] if limits else sys.getrecursionlimit()


def set_program_limit(limit: int) -> None:
    """Set the recursion limit of the program's own code."""
    limits = _thread.limits
    if limits:
        limits[0] = limit
    else:
        sys.setrecursionlimit(limit)


class _Thread(threading.local):
    """The program's limits to restore in this thread, while work of ours is running."""

    limits: list[int] | None = None


_thread = _Thread()


_PACKAGE = __name__.partition(".")[0]


class _Loaded:
    """The modules of this package, as they were loaded first.

    A program may remove modules to reload them or others of the same name. What we import or look
    up later must be what we began with.
    """

    def __init__(self) -> None:
        self._modules = {_PACKAGE: sys.modules[_PACKAGE]}
        self._counted = 0

    def update(self) -> None:
        """Add those loaded since, if any module was."""
        if len(sys.modules) == self._counted:
            return
        for name, module in tuple(sys.modules.items()):
            if name.startswith(f"{_PACKAGE}."):
                self._modules.setdefault(name, module)
        self._counted = len(sys.modules)

    def displaced(self) -> dict[str, ModuleType | None]:
        """Return what the program has under our modules' names."""
        if sys.modules.get(_PACKAGE) is self._modules[_PACKAGE]:
            self.update()
        current = [*map(sys.modules.get, self._modules)]
        if all(map(is_, current, self._modules.values())):  # at each step of the program
            return {}
        pairs = zip(self._modules.items(), current, strict=True)
        return {name: module for (name, own), module in pairs if module is not own}

    def install(self, restores: ExitStack) -> None:
        """Put them under their names until ``restores`` is closed."""
        for name, module in self.displaced().items():
            if module is None:
                restores.callback(sys.modules.pop, name, None)
            else:
                restores.callback(sys.modules.__setitem__, name, module)
            sys.modules[name] = self._modules[name]


_LOADED = _Loaded()


@contextmanager
def own_modules() -> Iterator[None]:
    """Have this package's modules under their names, then the program's again."""
    with ExitStack() as restores:
        _LOADED.install(restores)
        try:
            yield
        finally:
            with suppress(Exception):
                _LOADED.update()


_EXTRA_FRAMES = 2000  # that our work may need


class Interrupted(BaseException):
    """A second Ctrl-C ends the work."""


def isolated() -> AbstractContextManager[None]:
    """Return a context for work of ours: signals wait, and the program's settings are off.

    Signals are handled when it ends; a second Ctrl-C ends it at once. Off are warnings as errors, a
    low recursion limit, tracers, and removed modules. Only the outermost counts. If a setting
    cannot be set aside, the work is done all the same.
    """
    is_nested = _thread_state.__dict__.get("moment") is not None
    return nullcontext() if is_nested else _Isolation()


@contextmanager
def user_code() -> Iterator[None]:
    """Restore the program's state inside work of ours, for a callback of its own."""
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
    """The program's state that is set aside, and the pending signals.

    Each piece first puts its restore onto one stack, without code of ours that could fail. It is no
    generator: a tracer would see that begin, and not go on.
    """

    def __init__(self) -> None:
        self._back = ExitStack()
        self._pending_signals: tuple[int, ...] = ()
        self._is_work = False  # a second Ctrl-C ends it; else nothing would catch that

    def __enter__(self) -> None:
        try:
            self.begin()
        except BaseException:
            self.end()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        try:
            self.end()
        except Interrupted:  # before ``end`` had begun
            self.end()
        return kind is not None and issubclass(kind, Interrupted)

    def begin(self) -> None:
        """Set the program's state aside; only the main thread can hold signals."""
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
        """Restore everything, and handle the pending signals."""
        self._is_work = False
        try:
            self._back.close()
        finally:
            pending, self._pending_signals = tuple(dict.fromkeys(self._pending_signals)), ()
            if pending:
                _raise(pending)

    def _hold_signals(self, back: ExitStack) -> None:
        """Hold each signal with a Python handler, and the wakeup for it."""
        wakeup = signal.set_wakeup_fd(-1)
        back.callback(signal.set_wakeup_fd, wakeup, warn_on_full_buffer=False)
        for number in _SIGNALS:
            if callable(handler := _signal.getsignal(number)):
                back.callback(signal.signal, number, handler)
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        is_second = number == signal.SIGINT and number in self._pending_signals
        self._pending_signals = (*self._pending_signals, number)
        if is_second and self._is_work:
            raise Interrupted


# ``signal.getsignal`` makes enums of numbers, which takes a hundred times as long (Lib/signal.py)
_SIGNALS = tuple(map(int, signal.valid_signals()))
_thread_state = threading.local()


def _survive_writes(back: ExitStack) -> None:
    """Let a write past ``ulimit -f`` fail, as in Python, instead of ending the program."""
    number = getattr(signal, "SIGXFSZ", None)  # not on every system
    if number is not None and signal.getsignal(number) is signal.SIG_DFL:
        back.callback(signal.signal, number, signal.SIG_DFL)
        signal.signal(number, signal.SIG_IGN)


def _no_tracer(back: ExitStack) -> None:
    """Keep a Python tracer from seeing our work.

    It sees the end of each frame whose begin it saw: coverage and debuggers rely on that. A C
    tracer (coverage's, torch's for ``with_stack``) stays: restored from Python it would miss the
    open frames, and it only costs time. One that torch sets meanwhile stays too, and so does a
    profiler.
    """
    tracer = sys.gettrace()
    functions = (FunctionType, MethodType)
    is_python = isinstance(tracer, functions) or isinstance(type(tracer).__call__, FunctionType)
    if tracer is None or not is_python:
        return

    def quiet(frame: FrameType, event: Any, argument: Any) -> Any:
        # No new frame; a generator that it saw begin goes on, and it will see its next return
        return None if frame.f_trace is None else tracer(frame, event, argument)

    def restore() -> None:
        if sys.gettrace() in (None, quiet):
            sys.settrace(tracer)

    back.callback(restore)
    sys.settrace(quiet)


def _deep_stack(back: ExitStack) -> None:
    limit = max(sys.getrecursionlimit(), _depth() + _EXTRA_FRAMES)
    limits = [sys.getrecursionlimit()]
    back.callback(list, map(sys.setrecursionlimit, limits))  # no code of ours, as it could fail
    back.callback(setattr, _thread, "limits", _thread.limits)
    _thread.limits = limits
    sys.setrecursionlimit(limit)


def _raise(numbers: Sequence[int]) -> None:
    """Raise signals one after the other, though a handler may raise an exception."""
    if numbers:
        try:
            signal.raise_signal(numbers[0])
        finally:
            _raise(numbers[1:])


def _filters_kept(back: ExitStack) -> None:
    """Let warning filters count as changed only if they differ in the end.

    pandas changes and restores them all the time, and Python repeats warnings after each change.

    Source: ``warnings.py``, ``_filters_mutated``.
    """
    notify = vars(warnings).get("_filters_mutated")
    if notify not in (None, _ignore_filter_change):  # another thread's isolation keeps them
        back.callback(_notify_if_changed, notify, list(warnings.filters))
        vars(warnings)["_filters_mutated"] = _ignore_filter_change


def _ignore_filter_change() -> None:
    """Replaces the function that tells Python of changed warning filters."""


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
