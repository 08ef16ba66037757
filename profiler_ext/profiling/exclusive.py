"""One profiler records at a time, in the process that started it; others step aside.

When the program begins a profiler of its own, ours ends and keeps what it has; while that one is
on, ours records nothing. A forked child has copies of its parent's profilers; they do nothing.

What the program calls, and what torch calls for it, does what torch's profiler does, whatever of
ours fails: these methods call torch's own, and all else through the guard. Those of several threads
wait for each other, but not for what the program does when it is told of a session.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from profiler_ext.isolation.guard import Guard
from profiler_ext.isolation.locks import Lock
from profiler_ext.isolation.user_state import isolated, user_code
from profiler_ext.profiling.recorded_threads import (
    THREADS,
    ThreadRecordingProfiler,
    end_left_recording,
)
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import Gap
from profiler_ext.torch_compat import profilers
from profiler_ext.torch_compat.profilers import (
    USE,
    detach_from_parent,
    enable_operators,
    end_without_kineto,
)

EXCLUSIVE_HOOK = "turns"
"""The hook that tells who records."""
_LOCK = Lock()
"""Held by the thread whose profiler begins, ends or counts a step: torch crashes where two do."""


class ExclusiveProfiler(ThreadRecordingProfiler):
    """A profiler that steps aside for the program's own.

    Attributes:
        is_prepared: it prepares to record, or records.
        is_recording: it records now.
        has_trace: the cycle that ended was recorded.
        was_ended: another profiler ends it now.
    """

    def __init__(self, guard: Guard, **torch_options: Any) -> None:
        """Take a guard, and the options of :class:`torch.profiler.profile`."""
        self._guard = guard
        self.is_prepared = self.is_recording = self.has_trace = self.was_ended = False
        self._process = os.getpid()
        super().__init__(**torch_options)

    def start_watching(self) -> None:
        """Called when it is started."""

    def _on_lost(self, why: str) -> None:
        """Called with the reason why nothing is recorded, or what was is lost."""

    def stop_watching(self) -> None:
        """Called when it is stopped."""

    def start(self) -> None:
        """Begin, as the schedule says."""
        with _LOCK.native, isolated():
            _STARTED.add(self)
            self._guard.run(EXCLUSIVE_HOOK, end_left_recording)
            self._guard.run(EXCLUSIVE_HOOK, USE.listen, self.step_aside, self._guard)
            self._guard.run("called modules", self.start_watching)
            super().start()

    def stop(self) -> None:
        """End; what ``on_trace_ready`` makes of the trace is there when this returns."""
        with _LOCK.native, isolated():
            if self not in _STARTED:  # it is over, or a forked child's copy
                return
            try:
                super().stop()
            finally:
                _STARTED.discard(self)
                self._guard.run(EXCLUSIVE_HOOK, self._leave)
            self._guard.run(EXCLUSIVE_HOOK, end_left_recording)

    def step(self) -> None:
        """End a step; while one thread is heard alone, its own."""
        if self._process != os.getpid() or (
            self.is_recording and self._guard.run(THREADS, self.is_elsewhere)
        ):
            return
        with _LOCK.native, isolated():
            try:
                super().step()
            except BaseException:
                if not self.is_prepared:  # torch has not prepared what its next step would start
                    self._guard.run(EXCLUSIVE_HOOK, self._reset)
                raise

    def step_aside(self) -> None:
        """End what is under way, because another profiler begins."""
        with _LOCK.native:
            if self.is_prepared:
                self._step_aside()

    def _step_aside(self) -> None:
        with isolated():
            self.was_ended = True
            try:
                super().stop()
            finally:
                self.was_ended = False
                self._reset()

    def _reset(self) -> None:
        """Be as before the first cycle, so that the next step may begin one."""
        profilers.reset_action(self)

    def prepare_trace(self) -> None:
        """Prepare to record, unless another profiler is on."""
        self.has_trace = False
        if self._guard.run(EXCLUSIVE_HOOK, self._acquire_profiler):
            with USE.own():
                super().prepare_trace()
            self.is_prepared = USE.is_used_by_us = True

    def _acquire_profiler(self) -> bool:
        """Have the others of ours step aside; tell whether nobody else is on."""
        others = _STARTED - {self}
        if any(other.is_recording and other.is_elsewhere() for other in others):
            self._on_lost(_REFUSED)
        elif not USE.is_used_by_others:
            for other in others:
                other.step_aside()
            return True
        return False

    def start_trace(self) -> None:
        """Record from here on, if it was prepared."""
        if self.is_prepared:
            with USE.own():
                super().start_trace()
            self.is_recording = True

    def stop_trace(self) -> None:
        """End the recording, if there is one."""
        if self.is_prepared:
            is_lost = self._guard.run(THREADS, self.is_elsewhere)
            self.has_trace = self.is_recording and not is_lost
            self.is_prepared = self.is_recording = USE.is_used_by_us = False
            with USE.own():
                if not self.has_trace:  # torch ends what this thread has begun
                    super().start_trace()
                super().stop_trace()
            if is_lost:
                self._guard.run(EXCLUSIVE_HOOK, self._on_lost, _RECORDING_LOST)

    def gaps(self) -> tuple[Gap, ...]:
        """Return what the recording that ended does not have."""
        return (*super().gaps(), *((_ENDED_BY_OTHER,) if self.was_ended else ()))

    @contextmanager
    def running_program_code(self) -> Iterator[None]:
        """Amid what this does, let the program go on, and its other threads take their turn."""
        with user_code(), _LOCK.released():
            yield

    def _leave(self) -> None:
        self._guard.run(EXCLUSIVE_HOOK, USE.forget, self.step_aside)
        self._guard.run("called modules", self.stop_watching)

    def detach_from_parent(self) -> None:
        """Take part no more: this is a forked child's copy, and the recording is its parent's."""
        _STARTED.discard(self)
        self._leave()
        if self.is_prepared:
            detach_from_parent()
        self.is_prepared = self.is_recording = USE.is_used_by_us = False


_ENDED_BY_OTHER = Gap(
    GapReason.PROFILER_TAKEN,
    "the program began a profiler of its own, and torch's serves one at a time: what was recorded "
    "until then is here",
)
_RECORDING_LOST = (
    "what was recorded is lost: this torch ends a recording of one thread only there, and another "
    "one had to end it; end a profile in the thread that began it, or use torch 2.14"
)
_REFUSED = (
    "nothing is recorded: another thread is, and this torch ends that only there; let that profile "
    "end first, or use torch 2.14"
)
_STARTED: set[ExclusiveProfiler] = set()
"""Those that were started and not stopped."""


class _Forking(threading.local):
    """The profiler that records while this thread forks."""

    recording: ExclusiveProfiler | None = None


_FORKING = _Forking()


def _before_fork() -> None:
    """Have the child hear nothing of the recording: it could not see to that itself."""
    _FORKING.recording = next((each for each in tuple(_STARTED) if each.is_prepared), None)
    if (recording := _FORKING.recording) is not None:
        recording._guard.run(EXCLUSIVE_HOOK, enable_operators, False)


def _after_fork_in_parent() -> None:
    recording, _FORKING.recording = _FORKING.recording, None
    if recording is not None:
        recording._guard.run(EXCLUSIVE_HOOK, enable_operators, not recording.has_operators_off)


def _after_fork_in_child() -> None:
    for each in tuple(_STARTED):
        each.detach_from_parent()
    if USE.was_used_by_us:
        end_without_kineto()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
