"""Which threads a recording covers, and where it is ended."""

from __future__ import annotations

import time
from collections.abc import Iterable
from threading import get_ident

import torch.profiler
from torch.profiler import ProfilerActivity

from profiler_ext.isolation.guard import Guard
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.provenance import Gap
from profiler_ext.torch_compat import profilers
from profiler_ext.torch_compat.behaviour import ENDS_ALL_THREADS
from profiler_ext.torch_compat.other_threads import other_threads
from profiler_ext.torch_compat.process import profiler_is_on
from profiler_ext.torch_compat.profilers import (
    USE,
    can_disable_operators,
    enable_operators,
    end_recording,
    records_this_thread_only,
    reenable_operators_on_begin,
)

THREADS = "threads"
"""The hook that decides whose operators are recorded."""
_SETTLE_S = 0.1
"""Operators take microseconds to begin and end, but a thread may wait for a processor."""


class ThreadRecordingProfiler(torch.profiler.profile):
    """A profiler that records all threads if torch can end that.

    Before torch 2.14 such a recording cannot end while another thread runs an operator: torch frees
    what that thread still writes (``behaviour.ENDS_ALL_THREADS``). So if another thread may run
    one, only the beginning thread is recorded, with autograd's threads for it; but only that thread
    can end it.
    """

    _guard: Guard
    _chooses_config = False
    _records_memory = False
    """torch reports memory to a recording of the beginning thread and autograd's for it alone."""
    _recorded_thread: int | None = None
    _begin_thread: int | None = None
    has_operators_off = False
    """The program has switched off the collection of operators."""
    _other_threads: tuple[str, ...] = ()

    def is_elsewhere(self) -> bool:
        """Tell whether another thread is recorded alone."""
        return self._recorded_thread not in (None, get_ident())

    def start_trace(self) -> None:
        """Start to record.

        A recording of another thread is lost: torch ends it only there. If this thread begins and
        ends one too, that ends Kineto's recording.
        """
        if self._recorded_thread is None:
            self._guard.run(THREADS, self._choose_threads)
        else:
            self._guard.run(THREADS, self._leave_recording, self._recorded_thread)
        super().start_trace()
        is_alone = self._guard.run(THREADS, records_this_thread_only)
        self._recorded_thread = get_ident() if is_alone else None
        self._begin_thread = get_ident()

    def stop_trace(self) -> None:
        """End the recording, if this thread can."""
        self._guard.run(THREADS, self._settle)
        self._recorded_thread = None
        self._guard.run(THREADS, self._reenable_operators)
        super().stop_trace()

    def toggle_collection_dynamic(
        self, enable: bool, activities: Iterable[ProfilerActivity]
    ) -> None:
        """Switch collection off or on, as :meth:`torch.profiler.profile` does.

        torch cannot turn operators back on in a recording of all threads: "registration_state_ptr
        INTERNAL ASSERT FAILED". There this thread's operators are turned off, all that torch does
        for one thread.
        """
        chosen = set(activities)
        are_all = self._recorded_thread is None and self._begin_thread == get_ident()
        if are_all and can_disable_operators():
            if ProfilerActivity.CPU in chosen:
                self._guard.run(THREADS, enable_operators, enable)
                self.has_operators_off = not enable
            chosen.discard(ProfilerActivity.CPU)
        if chosen:
            super().toggle_collection_dynamic(enable, chosen)

    def _reenable_operators(self) -> None:
        """Turn the beginning thread's operators on; from another thread, when it next records."""
        begin_thread, self._begin_thread = self._begin_thread, None
        if self.has_operators_off:
            self.has_operators_off = False
            if begin_thread == get_ident():
                enable_operators(True)
            else:
                reenable_operators_on_begin()

    def gaps(self) -> tuple[Gap, ...]:
        """Return the gaps of the recording that ended."""
        names = ", ".join(self._other_threads)
        return (Gap(GapReason.THREAD_NOT_RECORDED, names),) if names else ()

    def _leave_recording(self, thread: int) -> None:
        if thread not in _STILL_RECORDED:
            USE.listen(end_left_recording, self._guard)  # the program may begin one there
        _STILL_RECORDED[thread] = self

    def _choose_threads(self) -> None:
        if self._chooses_config and (self._records_memory or not ENDS_ALL_THREADS):
            self._other_threads = other_threads()
            are_all = not (self._records_memory or self._other_threads)
            profilers.set_recorded_threads(self, are_all=are_all)

    def _settle(self) -> None:
        """Turn off the threads that began meanwhile, before torch frees what they write."""
        are_all = self._recorded_thread is None and not ENDS_ALL_THREADS
        if are_all and ProfilerActivity.CPU in self.activities and other_threads():
            super().toggle_collection_dynamic(False, [ProfilerActivity.CPU])
            time.sleep(_SETTLE_S)


_STILL_RECORDED: dict[int, ThreadRecordingProfiler] = {}
"""The threads that torch takes for recorded, as another one had to end that."""


def end_left_recording() -> None:
    """End the recording of this thread that another one had to end; torch would refuse."""
    if get_ident() not in _STILL_RECORDED or profiler_is_on():
        return
    left = _STILL_RECORDED.pop(get_ident())
    USE.forget(end_left_recording)
    if records_this_thread_only():  # else a new thread reuses the number
        with USE.own():
            torch.profiler.profile.prepare_trace(left)  # torch needs Kineto's to end one
            end_recording()
