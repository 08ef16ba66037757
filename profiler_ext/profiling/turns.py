"""Owns that profilers take turns: one records at a time, in the process that started it.

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
from profiler_ext.isolation.undisturbed import disturbed, undisturbed
from profiler_ext.profiling.recorded_threads import THREADS, HearsThreads, end_what_is_left
from profiler_ext.records import Gap, GapReason
from profiler_ext.torch_compat import profilers
from profiler_ext.torch_compat.profiler_use import (
    USE,
    end_without_kineto,
    hear_operators,
    leave_to_parent,
)

TURNS = "turns"
"""The hook that tells who records."""
_LOCK = Lock()
"""Held by the thread whose profiler begins, ends or counts a step: torch crashes where two do."""


class TakesTurns(HearsThreads):
    """A profiler that steps aside for the program's own.

    Attributes:
        is_prepared: it prepares to record, or records.
        is_recording: it records now.
        has_trace: the cycle that ended was recorded.
        was_ended: another profiler ends it now.
    """

    def __init__(self, guard: Guard, **torch_options: Any) -> None:
        """Take what keeps failures from the program, and what ``torch.profiler.profile`` takes.

        Args:
            guard: keeps failures of ours from the program.
            **torch_options: what ``torch.profiler.profile`` takes.
        """
        self._guard = guard
        self.is_prepared = self.is_recording = self.has_trace = self.was_ended = False
        self._process = os.getpid()
        super().__init__(**torch_options)

    def begin_to_watch(self) -> None:
        """Called when it is started."""

    def _lose(self, why: str) -> None:
        """Called with the reason why nothing is recorded, or what was is lost."""

    def end_to_watch(self) -> None:
        """Called when it is stopped."""

    def start(self) -> None:
        """Begin, as the schedule says."""
        with _LOCK.native, undisturbed():
            _STARTED.add(self)
            self._guard.run(TURNS, end_what_is_left)
            self._guard.run(TURNS, USE.listen, self.step_aside, self._guard)
            self._guard.run("called modules", self.begin_to_watch)
            super().start()

    def stop(self) -> None:
        """End; what ``on_trace_ready`` makes of the trace is there when this returns."""
        with _LOCK.native, undisturbed():
            if self not in _STARTED:  # it is over, or a forked child's copy
                return
            try:
                super().stop()
            finally:
                _STARTED.discard(self)
                self._guard.run(TURNS, self._leave)
            self._guard.run(TURNS, end_what_is_left)

    def step(self) -> None:
        """End a step; while one thread is heard alone, its own."""
        if self._process != os.getpid() or (
            self.is_recording and self._guard.run(THREADS, self.is_elsewhere)
        ):
            return
        with _LOCK.native, undisturbed():
            try:
                super().step()
            except BaseException:
                if not self.is_prepared:  # torch has not prepared what its next step would start
                    self._guard.run(TURNS, self._begin_anew)
                raise

    def step_aside(self) -> None:
        """End what is under way, because another profiler begins."""
        with _LOCK.native:
            if self.is_prepared:
                self._step_aside()

    def _step_aside(self) -> None:
        with undisturbed():
            self.was_ended = True
            try:
                super().stop()
            finally:
                self.was_ended = False
                self._begin_anew()

    def _begin_anew(self) -> None:
        """Be as before the first cycle, so that the next step may begin one."""
        profilers.begin_anew(self)

    def prepare_trace(self) -> None:
        """Prepare to record, unless another profiler is on."""
        self.has_trace = False
        if self._guard.run(TURNS, self._takes_its_turn):
            with USE.own():
                super().prepare_trace()
            self.is_prepared = USE.by_us = True

    def _takes_its_turn(self) -> bool:
        """Have the others of ours step aside; tell whether nobody else is on."""
        others = _STARTED - {self}
        if any(other.is_recording and other.is_elsewhere() for other in others):
            self._lose(_REFUSED)
        elif not USE.by_others:
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
            self.is_prepared = self.is_recording = USE.by_us = False
            with USE.own():
                if not self.has_trace:  # torch ends what this thread has begun
                    super().start_trace()
                super().stop_trace()
            if is_lost:
                self._guard.run(TURNS, self._lose, _LOST)

    def gaps(self) -> tuple[Gap, ...]:
        """Return what the recording that ended does not have."""
        return (*super().gaps(), *((_TAKEN,) if self.was_ended else ()))

    @contextmanager
    def program_let_in(self) -> Iterator[None]:
        """Amid what this does, let the program go on, and its other threads take their turn."""
        with disturbed(), _LOCK.let_go():
            yield

    def _leave(self) -> None:
        self._guard.run(TURNS, USE.forget, self.step_aside)
        self._guard.run("called modules", self.end_to_watch)

    def leave_to_parent(self) -> None:
        """Take part no more: this is a forked child's copy, and the recording is its parent's."""
        _STARTED.discard(self)
        self._leave()
        if self.is_prepared:
            leave_to_parent()
        self.is_prepared = self.is_recording = USE.by_us = False


_TAKEN = Gap(
    GapReason.PROFILER_TAKEN,
    "the program began a profiler of its own, and torch's serves one at a time: what was recorded "
    "until then is here",
)
_LOST = (
    "what was recorded is lost: this torch ends a recording of one thread only there, and another "
    "one had to end it; end a profile in the thread that began it, or use torch 2.14"
)
_REFUSED = (
    "nothing is recorded: another thread is, and this torch ends that only there; let that profile "
    "end first, or use torch 2.14"
)
_STARTED: set[TakesTurns] = set()
"""Those that were started and not stopped."""


class _Forking(threading.local):
    """The profiler that records while this thread forks."""

    recording: TakesTurns | None = None


_FORKING = _Forking()


def _begin_to_fork() -> None:
    """Have the child hear nothing of the recording: it could not see to that itself."""
    _FORKING.recording = next((each for each in tuple(_STARTED) if each.is_prepared), None)
    if (recording := _FORKING.recording) is not None:
        recording._guard.run(TURNS, hear_operators, False)


def _go_on_after_fork() -> None:
    recording, _FORKING.recording = _FORKING.recording, None
    if recording is not None:
        recording._guard.run(TURNS, hear_operators, not recording.is_silent)


def _leave_all_to_parent() -> None:
    for each in tuple(_STARTED):
        each.leave_to_parent()
    if USE.was_by_us:
        end_without_kineto()


os.register_at_fork(
    before=_begin_to_fork,
    after_in_parent=_go_on_after_fork,
    after_in_child=_leave_all_to_parent,
)
