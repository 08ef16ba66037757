"""Owns who uses torch's profiler in this process: Kineto serves one at a time.

A second user is no error to Kineto: it takes over the first one's buffers, and the first
crashes or is empty. So whoever of ours profiles is told before someone else begins, and can ask
whether someone else is at it.

Source: ``torch/autograd/profiler.py``: ``profile`` and ``emit_nvtx`` call ``_prepare_profiler``,
``_enable_profiler`` and ``_disable_profiler`` by these names of the module.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import get_ident

from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.isolation.locks import Lock
from profiler_ext.torch_compat import private
from profiler_ext.torch_compat.names import running_names
from profiler_ext.torch_compat.patches import Hook, Point, installed
from profiler_ext.torch_compat.private import Member

_BEGINS = (running_names.PREPARE_PROFILER, running_names.ENABLE_PROFILER)
_ENDS = running_names.DISABLE_PROFILER


class ProfilerUse:
    """Hears who begins and ends to profile, while one of ours wants to know.

    Attributes:
        by_us: one of ours prepares to record, or records.
        was_by_us: one of ours has begun to, at any time.
    """

    def __init__(self) -> None:
        """Hear nothing yet."""
        self._listeners: list[Callable[[], None]] = []
        self._is_heard = False
        self._hooks = ExitStack()
        self._own: set[int] = set()
        self._by_others = self.by_us = self.was_by_us = False
        self._lock = Lock()

    @property
    def by_others(self) -> bool:
        """Whether someone else prepares to record, or records."""
        return self._by_others

    @property
    def is_taken(self) -> bool:
        """Whether anyone prepares to record, or records."""
        return self.by_us or self._by_others or enabled_here()

    @contextmanager
    def own(self) -> Iterator[None]:
        """What this thread begins or ends meanwhile is ours."""
        thread = get_ident()
        nested = thread in self._own
        self._own.add(thread)
        self.was_by_us = True
        try:
            yield
        finally:
            if not nested:
                self._own.discard(thread)

    def listen(self, on_others: Callable[[], None], guard: Guard) -> None:
        """Be told before someone else begins.

        Args:
            on_others: called at each beginning, until :meth:`forget`.
            guard: keeps failures from whoever begins.

        Raises:
            TorchCapabilityError: A function of torch's is not there or has another shape.
        """
        with self._lock.held():
            self._listeners.append(on_others)
            if not self._is_heard:
                self._by_others, self._is_heard = enabled_here(), True
                self._hooks.enter_context(installed(self._observations(), guard, lasting=True))

    def forget(self, on_others: Callable[[], None]) -> None:
        """Be told no more; the last one leaves torch as it was found."""
        with self._lock.held():
            if on_others in self._listeners:
                self._listeners.remove(on_others)
            self._leave_unheard()

    def _observations(self) -> list[Hook]:
        """Hear it all, or nothing in a torch that lacks a name."""
        if private.lacking((*_BEGINS, _ENDS)):
            return []
        return [*((_point(name), self._begins) for name in _BEGINS), (_point(_ENDS), self._ends)]

    def _leave_unheard(self) -> None:
        if not self._listeners and not self._by_others:
            self._is_heard = False
            self._hooks.close()

    def _begins(self, call: Observed) -> Observation:
        if get_ident() in self._own:
            return
        before, self._by_others = self._by_others, True  # who is told may listen no more
        try:
            for tell in tuple(self._listeners):
                tell()
            yield
        finally:
            if call.error is not None:
                self._by_others = before
                self._leave_unheard()

    def _ends(self, _: Observed) -> Observation:
        if get_ident() in self._own:
            return
        try:
            yield
        finally:
            self._by_others = False
            self._leave_unheard()


def _point(name: Member) -> Point:
    return Point(name.module, name.path, name.takes, name.serves)


USE = ProfilerUse()
"""The one of this process."""


def enabled_here() -> bool:
    """Tell whether torch's profiler records, on this thread or on all, as far as torch tells."""
    anywhere = running_names.PROFILER_ENABLED
    return is_heard_alone() or (anywhere.is_there() and bool(anywhere.get()))


def is_heard_alone() -> bool:
    """Tell whether torch's profiler records this thread, and not all, as far as torch tells."""
    here = running_names.PROFILER_HERE
    return here.is_there() and bool(here.get()())


def end_recording() -> None:
    """End what torch's profiler records of this thread, or of all, and drop it."""
    if _ENDS.is_there():
        _ENDS.get()()


def leave_to_parent() -> None:
    """Take a forked child out of the recording of its parent.

    The recording cannot be ended in the child, where Kineto's threads are not. It hears no more of
    what the child does, for this thread heard nothing when it forked (:func:`hear_operators`); a
    profiler that the child starts itself hears it again.
    """
    if running_names.PROFILER_ENABLED.is_there():
        running_names.PROFILER_ENABLED.set(False)
    hear_when_begun()


def hear_when_begun() -> None:
    """Have operators be heard in each thread in which the program begins a profiler."""
    USE.listen(_hear_again, Guard())


def _hear_again() -> None:
    hear_operators(True)


def can_silence() -> bool:
    """Tell whether this torch lets what is recorded hear a thread's operators no more."""
    return running_names.HEAR_OPERATORS.is_there()


def hear_operators(is_on: bool) -> None:
    """Have what is recorded hear the operators of this thread, or not.

    A forked child must not ask for it at its begin: a lock that is taken for it is never released
    there, if another thread of the parent held it.

    Args:
        is_on: whether they are heard.

    Source: ``aten/src/ATen/record_function.cpp``, ``enableRecordFunction``.
    """
    if running_names.HEAR_OPERATORS.is_there():
        running_names.HEAR_OPERATORS.get()(is_on)


def end_without_kineto() -> None:
    """Have a forked child's process end before the destructors of C++ run.

    Kineto's joins a thread that the child does not have, and aborts or hangs, once a profiler
    was on in the parent. What C has buffered is written first.

    Source: ``libkineto/src/ConfigLoader.cpp``, ``~ConfigLoader``; ``on_exit`` of the GNU C
    library calls with the exit status, the last registered first.
    """
    import ctypes

    program = ctypes.CDLL(None)
    if os.name != "posix" or not hasattr(program, "on_exit"):
        return
    for function in (program._exit, program.fcloseall):
        program.on_exit(ctypes.cast(function, ctypes.c_void_p), None)
