"""Torch's profiler in this process.

Who uses it, what a ``profile`` keeps of its steps, which ranges are open.

A second user is no error to Kineto: it takes over the first one's buffers, and the first
crashes or is empty. So whoever of ours profiles is told before someone else begins, and can ask
whether someone else is at it.

Source: ``torch/autograd/profiler.py``: ``profile`` and ``emit_nvtx`` call ``_prepare_profiler``,
``_enable_profiler`` and ``_disable_profiler`` by these names of the module.

Source: ``torch/profiler/profiler.py``. This runs in the user's steps: in a torch without one of
these names it does nothing, and the gap that says so stands since capture began.

When a region ends, torch writes its end to where the recording of its begin had it, if any
recording is on then; one that is over has given that memory back. The program's regions are all
``torch.profiler.record_function``, an optimizer's step too.

Source: ``torch/csrc/autograd/profiler_kineto.cpp``, ``onFunctionExit``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any
from weakref import WeakSet

import torch.profiler

from profiler_ext.isolation.guard import Guard, Observation, Observed
from profiler_ext.isolation.locks import Lock
from profiler_ext.torch_compat import behaviour, points, private, process
from profiler_ext.torch_compat.names import running_names
from profiler_ext.torch_compat.patches import Hook, Point, installed
from profiler_ext.torch_compat.private import Member

_BEGIN_FUNCTIONS = (running_names.PREPARE_PROFILER, running_names.ENABLE_PROFILER)
_END_FUNCTION = running_names.DISABLE_PROFILER


class ProfilerUse:
    """Hears who begins and ends to profile, while one of ours wants to know.

    Attributes:
        is_used_by_us: one of ours prepares to record, or records.
        was_used_by_us: one of ours has begun to, at any time.
    """

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []
        self._is_listening = False
        self._hooks = ExitStack()
        self._own: set[int] = set()
        self._used_by_others = self.is_used_by_us = self.was_used_by_us = False
        self._lock = Lock()

    @property
    def is_used_by_others(self) -> bool:
        """Whether someone else prepares to record, or records."""
        return self._used_by_others

    @property
    def is_in_use(self) -> bool:
        """Whether anyone prepares to record, or records."""
        return self.is_used_by_us or self._used_by_others or is_enabled_on_thread()

    @contextmanager
    def own(self) -> Iterator[None]:
        """What this thread begins or ends meanwhile is ours."""
        thread = get_ident()
        nested = thread in self._own
        self._own.add(thread)
        self.was_used_by_us = True
        try:
            yield
        finally:
            if not nested:
                self._own.discard(thread)

    def listen(self, callback: Callable[[], None], guard: Guard) -> None:
        """Be told before someone else begins.

        Raises:
            TorchCapabilityError: A function of torch's is not there or has another shape.
        """
        with self._lock.held():
            self._listeners.append(callback)
            if not self._is_listening:
                self._used_by_others, self._is_listening = is_enabled_on_thread(), True
                self._hooks.enter_context(installed(self._observations(), guard, lasting=True))

    def forget(self, callback: Callable[[], None]) -> None:
        """Be told no more; the last one leaves torch as it was found."""
        with self._lock.held():
            if callback in self._listeners:
                self._listeners.remove(callback)
            self._remove_unused_hooks()

    def _observations(self) -> list[Hook]:
        """Hear it all, or nothing in a torch that lacks a name."""
        if private.unavailable((*_BEGIN_FUNCTIONS, _END_FUNCTION)):
            return []
        return [
            *((_point(name), self._on_begin) for name in _BEGIN_FUNCTIONS),
            (_point(_END_FUNCTION), self._on_end),
        ]

    def _remove_unused_hooks(self) -> None:
        if not self._listeners and not self._used_by_others:
            self._is_listening = False
            self._hooks.close()

    def _on_begin(self, call: Observed) -> Observation:
        if get_ident() in self._own:
            return
        before, self._used_by_others = self._used_by_others, True  # who is told may listen no more
        try:
            for callback in tuple(self._listeners):
                callback()
            yield
        finally:
            if call.error is not None:
                self._used_by_others = before
                self._remove_unused_hooks()

    def _on_end(self, _: Observed) -> Observation:
        if get_ident() in self._own:
            return
        try:
            yield
        finally:
            self._used_by_others = False
            self._remove_unused_hooks()


def _point(name: Member) -> Point:
    return Point(name.module, name.path, name.takes, name.purpose)


USE = ProfilerUse()
"""The one of this process."""


def is_enabled_on_thread() -> bool:
    """Tell whether torch's profiler records, on this thread or on all, as far as torch tells."""
    on_any_thread = running_names.PROFILER_ENABLED
    return records_this_thread_only() or (
        on_any_thread.is_available() and bool(on_any_thread.get())
    )


def records_this_thread_only() -> bool:
    """Tell whether torch's profiler records this thread, and not all, as far as torch tells."""
    on_thread = running_names.PROFILER_ENABLED_ON_THREAD
    return on_thread.is_available() and bool(on_thread.get()())


def end_recording() -> None:
    """End what torch's profiler records of this thread, or of all, and drop it."""
    if _END_FUNCTION.is_available():
        _END_FUNCTION.get()()


def detach_from_parent() -> None:
    """Take a forked child out of the recording of its parent.

    The recording cannot be ended in the child, where Kineto's threads are not. It hears no more of
    what the child does, for this thread heard nothing when it forked (:func:`enable_operators`); a
    profiler that the child starts itself hears it again.
    """
    if running_names.PROFILER_ENABLED.is_available():
        running_names.PROFILER_ENABLED.set(False)
    reenable_operators_on_begin()


def reenable_operators_on_begin() -> None:
    """Have operators be heard in each thread in which the program begins a profiler."""
    USE.listen(_reenable_operators, Guard())


def _reenable_operators() -> None:
    enable_operators(True)


def can_disable_operators() -> bool:
    """Tell whether this torch lets what is recorded hear a thread's operators no more."""
    return running_names.ENABLE_RECORD_FUNCTION.is_available()


def enable_operators(is_on: bool) -> None:
    """Have what is recorded hear the operators of this thread, or not.

    A forked child must not ask for it at its begin: a lock that is taken for it is never released
    there, if another thread of the parent held it.

    Source: ``aten/src/ATen/record_function.cpp``, ``enableRecordFunction``.
    """
    if running_names.ENABLE_RECORD_FUNCTION.is_available():
        running_names.ENABLE_RECORD_FUNCTION.get()(is_on)


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


_RECORDING = (torch.profiler.ProfilerAction.RECORD, torch.profiler.ProfilerAction.RECORD_AND_SAVE)


def mark_steps(profiler: torch.profiler.profile, is_marked: Any = True) -> None:
    """Give each step an event, or none; torch gives one by itself only under a schedule."""
    if running_names.RECORD_STEPS.is_available():
        running_names.RECORD_STEPS.put(profiler, is_marked)


def set_recorded_threads(profiler: torch.profiler.profile, *, are_all: bool) -> None:
    """Have a profiler that was prepared record every thread, or the one that starts it."""
    config = process.threads_config(are_all=are_all)
    if config is not None and running_names.EXPERIMENTAL_CONFIG.is_available():
        running_names.EXPERIMENTAL_CONFIG.put(profiler.profiler, config)


def reset_action(profiler: torch.profiler.profile) -> None:
    """Let a profiler be as before its first cycle, so that the next step may begin one."""
    states = [running_names.CURRENT_ACTION]
    if behaviour.RESTORES_SCHEDULED_ACTION:
        states.append(running_names.SCHEDULED_ACTION)
    for state in states:
        if state.is_available():
            state.put(profiler, torch.profiler.ProfilerAction.NONE)


def marks_steps(profiler: torch.profiler.profile) -> Any:
    """Return whether each step gets an event."""
    return (
        running_names.RECORD_STEPS.of(profiler)
        if running_names.RECORD_STEPS.is_available()
        else None
    )


def begins_recording(profiler: torch.profiler.profile) -> bool:
    """Tell whether a profiler records its next step, and not the one that ends."""
    if private.unavailable((running_names.STEP_NUM, running_names.CURRENT_ACTION)):
        return False
    following = profiler.schedule(running_names.STEP_NUM.of(profiler) + 1)
    return following in _RECORDING and running_names.CURRENT_ACTION.of(profiler) not in _RECORDING


class OpenRanges:
    """The regions that began while something was recorded, and did not end."""

    def __init__(self, is_recording: Callable[[], bool]) -> None:
        self._is_recording = is_recording
        self._open: WeakSet[Any] = WeakSet()

    @property
    def has_any(self) -> bool:
        """Whether any is open."""
        return len(self._open) > 0

    def hooks(self) -> list[Hook]:
        """Return what is observed, and where."""
        return [(points.RANGE_ENTER, self._on_enter), (points.RANGE_EXIT, self._on_exit)]

    def _on_enter(self, call: Observed) -> Observation:
        if self._is_recording():
            self._open.add(call["self"])
        yield

    def _on_exit(self, call: Observed) -> Observation:
        yield
        self._open.discard(call["self"])
