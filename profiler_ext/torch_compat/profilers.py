"""Torch's profiler in this process: who uses it, the steps of a ``profile``, open ranges.

Source: ``torch/autograd/profiler.py``: ``profile`` and ``emit_nvtx`` call ``_prepare_profiler``,
``_enable_profiler`` and ``_disable_profiler`` by these names; ``torch/profiler/profiler.py``;
``torch/csrc/autograd/profiler_kineto.cpp``, ``onFunctionExit``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
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
    """Watches who begins and ends to profile, while one of this package's profilers listens.

    Kineto does not refuse a second user, who takes over the first one's buffers: the first crashes
    or is empty.
    """

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []
        self._is_listening = False
        self._hooks = ExitStack()
        self._own: set[int] = set()
        # ``us``: this package prepares to record, records, or has done so.
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
        """Count what this thread begins or ends meanwhile as ours."""
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
        """Call back before someone else begins."""
        with self._lock.held():
            self._listeners.append(callback)
            if not self._is_listening:
                self._used_by_others, self._is_listening = is_enabled_on_thread(), True
                self._hooks.enter_context(installed(self._observations(), guard, lasting=True))

    def forget(self, callback: Callable[[], None]) -> None:
        """Stop calling back; the last one removes the hooks."""
        with self._lock.held():
            if callback in self._listeners:
                self._listeners.remove(callback)
            self._remove_unused_hooks()

    def _observations(self) -> list[Hook]:
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
        before, self._used_by_others = self._used_by_others, True  # callbacks may stop listening
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
"""This process's."""


def is_enabled_on_thread() -> bool:
    """Tell whether torch's profiler records this thread or all, as far as torch says."""
    on_any_thread = running_names.PROFILER_ENABLED
    return records_this_thread_only() or (
        on_any_thread.is_available() and bool(on_any_thread.get())
    )


def records_this_thread_only() -> bool:
    """Tell whether torch's profiler records this thread alone, as far as torch says."""
    on_thread = running_names.PROFILER_ENABLED_ON_THREAD
    return on_thread.is_available() and bool(on_thread.get()())


def end_recording() -> None:
    """End and drop the recording of torch's profiler of this thread, or of all."""
    if _END_FUNCTION.is_available():
        _END_FUNCTION.get()()


def detach_from_parent() -> None:
    """Detach a forked child from its parent's recording.

    It cannot be ended in the child, which lacks Kineto's threads. It records nothing of the child,
    since operators were off in this thread when it forked (:func:`enable_operators`); a profiler
    that the child starts turns them on.
    """
    if running_names.PROFILER_ENABLED.is_available():
        running_names.PROFILER_ENABLED.set(False)
    reenable_operators_on_begin()


def reenable_operators_on_begin() -> None:
    """Enable operators in each thread in which the program begins a profiler."""
    USE.listen(lambda: enable_operators(True), Guard())


def can_disable_operators() -> bool:
    """Tell whether this torch can turn off a thread's operators for recordings."""
    return running_names.ENABLE_RECORD_FUNCTION.is_available()


def enable_operators(is_on: bool) -> None:
    """Turn the operators of this thread on or off for recordings.

    Not in a forked child at its begin: the lock for it is never released there if another thread of
    the parent held it.

    Source: ``aten/src/ATen/record_function.cpp``, ``enableRecordFunction``.
    """
    if running_names.ENABLE_RECORD_FUNCTION.is_available():
        running_names.ENABLE_RECORD_FUNCTION.get()(is_on)


def end_without_kineto() -> None:
    """Have a forked child's process end before C++ destructors run.

    Kineto's joins a thread that the child lacks, and aborts or hangs, if the parent ever profiled.
    C's buffers are written first.

    Source: ``libkineto/src/ConfigLoader.cpp``, ``~ConfigLoader``; ``on_exit`` of the GNU C library
    calls the last registered first.
    """
    import ctypes

    program = ctypes.CDLL(None)
    if os.name != "posix" or not hasattr(program, "on_exit"):
        return
    for function in (program._exit, program.fcloseall):
        program.on_exit(ctypes.cast(function, ctypes.c_void_p), None)


_RECORDING = (torch.profiler.ProfilerAction.RECORD, torch.profiler.ProfilerAction.RECORD_AND_SAVE)


def mark_steps(profiler: torch.profiler.profile, is_marked: Any = True) -> None:
    """Give each step an event, or none; torch does so only with a schedule."""
    if running_names.RECORD_STEPS.is_available():
        running_names.RECORD_STEPS.put(profiler, is_marked)


def set_recorded_threads(profiler: torch.profiler.profile, *, are_all: bool) -> None:
    """Have a prepared profiler record every thread, or the one that starts it."""
    config = process.threads_config(are_all=are_all)
    if config is not None and running_names.EXPERIMENTAL_CONFIG.is_available():
        running_names.EXPERIMENTAL_CONFIG.put(profiler.profiler, config)


def reset_action(profiler: torch.profiler.profile) -> None:
    """Reset a profiler to before its first cycle, so that the next step may begin one."""
    states = [running_names.CURRENT_ACTION]
    if behaviour.RESTORES_SCHEDULED_ACTION:
        states.append(running_names.SCHEDULED_ACTION)
    for state in states:
        if state.is_available():
            state.put(profiler, torch.profiler.ProfilerAction.NONE)


def marks_steps(profiler: torch.profiler.profile) -> Any:
    """Return whether each step gets an event."""
    names = running_names.RECORD_STEPS
    return names.of(profiler) if names.is_available() else None


def begins_recording(profiler: torch.profiler.profile) -> bool:
    """Tell whether a profiler records its next step, and not the one that ends."""
    if private.unavailable((running_names.STEP_NUM, running_names.CURRENT_ACTION)):
        return False
    following = profiler.schedule(running_names.STEP_NUM.of(profiler) + 1)
    return following in _RECORDING and running_names.CURRENT_ACTION.of(profiler) not in _RECORDING


class OpenRanges:
    """The ranges that began during a recording, and did not end.

    When one ends, torch writes its end into the recording of its begin, whose memory may be freed
    by then.
    """

    def __init__(self, is_recording: Callable[[], bool]) -> None:
        self._is_recording = is_recording
        self._open: WeakSet[Any] = WeakSet()

    @property
    def has_any(self) -> bool:
        """Whether any is open."""
        return len(self._open) > 0

    def hooks(self) -> list[Hook]:
        """Return the hooks."""
        return [(points.RANGE_ENTER, self._on_enter), (points.RANGE_EXIT, self._on_exit)]

    def _on_enter(self, call: Observed) -> Observation:
        if self._is_recording():
            self._open.add(call["self"])
        yield

    def _on_exit(self, call: Observed) -> Observation:
        yield
        self._open.discard(call["self"])


# Any of them is there where a driver of a GPU is: NVIDIA's, Tegra's, WSL's, AMD's.
_GPU_FILES = ("nvidia*", "nvhost*", "nvmap", "dxg", "kfd")
_NO_LOG = "6"  # above each level of ``libkineto/include/ILoggerObserver.h``


@contextmanager
def without_kineto_noise() -> Iterator[None]:
    """Prepare Kineto in this block without its log, where there is no GPU that it could be about.

    Without a GPU Kineto logs that it counts none, as an error. It reads the level once, when it is
    first prepared (``libkineto/src/init.cpp``).
    """
    if os.environ.get("KINETO_LOG_LEVEL") is not None or _may_have_gpu():
        yield
        return
    os.environ["KINETO_LOG_LEVEL"] = _NO_LOG
    try:
        yield
    finally:
        del os.environ["KINETO_LOG_LEVEL"]


def _may_have_gpu() -> bool:
    """Tell whether a GPU may be here, without its driver, which programs that fork cannot have."""
    accelerator = torch.accelerator.current_accelerator(check_available=False)
    if sys.platform != "linux" or (accelerator is not None and accelerator.type != "cuda"):
        return True
    return any(next(Path("/dev").glob(pattern), None) for pattern in _GPU_FILES)
