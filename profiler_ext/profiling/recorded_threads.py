"""Which threads a recording hears, and that it is ended where torch can end it.

Before torch 2.14 a recording of all threads cannot be ended while another thread runs an operator:
torch frees what that thread still writes (``behaviour.ENDS_ALL_THREADS``). So where another thread
may run one, the thread that begins is heard alone, with what autograd's threads run for it; but
such a recording can be ended by that thread only.
"""

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
"""The hook that tells whose operators are recorded."""
_SETTLE_S = 0.1
"""An operator's begin and end take microseconds, and a thread may wait so long for a processor."""


class ThreadRecordingProfiler(torch.profiler.profile):
    """A profiler that hears all threads where torch can end that."""

    _guard: Guard
    _chooses_config = False
    _recorded_thread: int | None = None
    _begin_thread: int | None = None
    has_operators_off = False
    """The program has switched off that operators are collected."""
    _other_threads: tuple[str, ...] = ()

    def is_elsewhere(self) -> bool:
        """Tell whether what is recorded is that of one thread, and not of this one."""
        return self._recorded_thread not in (None, get_ident())

    def start_trace(self) -> None:
        """Record from here on.

        What records another thread is lost: torch ends it only there. That this thread begins to
        be recorded, too, and ends that, ends Kineto's recording.
        """
        if self._recorded_thread is None:
            self._guard.run(THREADS, self._choose_threads)
        else:
            self._guard.run(THREADS, self._leave_recording, self._recorded_thread)
        super().start_trace()
        self._recorded_thread = self._guard.run(THREADS, _only_recorded_thread)
        self._begin_thread = get_ident()

    def stop_trace(self) -> None:
        """End the recording, which this thread can."""
        self._guard.run(THREADS, self._settle)
        self._recorded_thread = None
        self._guard.run(THREADS, self._reenable_operators)
        super().stop_trace()

    def toggle_collection_dynamic(
        self, enable: bool, activities: Iterable[ProfilerActivity]
    ) -> None:
        """Switch off what is collected, or on again, as torch's own does.

        Torch cannot have a recording of all threads collect operators once more: "registration_
        state_ptr INTERNAL ASSERT FAILED". So there it is this thread's that are not heard
        meanwhile, which is all that torch's own does of a recording of one thread.

        Args:
            enable: they are collected from here on.
            activities: which.
        """
        chosen = set(activities)
        if (
            self._recorded_thread is None
            and self._begin_thread == get_ident()
            and can_disable_operators()
        ):
            if ProfilerActivity.CPU in chosen:
                self._guard.run(THREADS, enable_operators, enable)
                self.has_operators_off = not enable
            chosen.discard(ProfilerActivity.CPU)
        if chosen:
            super().toggle_collection_dynamic(enable, chosen)

    def _reenable_operators(self) -> None:
        """Leave the thread as it was found; where another one ends this, when it next records."""
        begin_thread, self._begin_thread = self._begin_thread, None
        if self.has_operators_off:
            self.has_operators_off = False
            if begin_thread == get_ident():
                enable_operators(True)
            else:
                reenable_operators_on_begin()

    def gaps(self) -> tuple[Gap, ...]:
        """Return what the recording that ended does not have."""
        names = ", ".join(self._other_threads)
        return (Gap(GapReason.THREAD_NOT_RECORDED, names),) if names else ()

    def _leave_recording(self, thread: int) -> None:
        if thread not in _STILL_RECORDED:
            USE.listen(end_left_recording, self._guard)  # the program may begin a profiler there
        _STILL_RECORDED[thread] = self

    def _choose_threads(self) -> None:
        if self._chooses_config and not ENDS_ALL_THREADS:
            self._other_threads = other_threads()
            profilers.set_recorded_threads(self, are_all=not self._other_threads)

    def _settle(self) -> None:
        """Have threads that began meanwhile be heard no more, before what they write is freed."""
        are_all = self._recorded_thread is None and not ENDS_ALL_THREADS
        if are_all and ProfilerActivity.CPU in self.activities and other_threads():
            super().toggle_collection_dynamic(False, [ProfilerActivity.CPU])
            time.sleep(_SETTLE_S)


def _only_recorded_thread() -> int | None:
    """Return this thread where it is heard alone."""
    return get_ident() if records_this_thread_only() else None


_STILL_RECORDED: dict[int, ThreadRecordingProfiler] = {}
"""The threads of which torch has it that they are recorded, since another one had to end that."""


def end_left_recording() -> None:
    """Have this thread be recorded no more, where another one had to end that.

    Torch would refuse to begin a profiler here.
    """
    if get_ident() not in _STILL_RECORDED or profiler_is_on():
        return
    left = _STILL_RECORDED.pop(get_ident())
    USE.forget(end_left_recording)
    if (
        records_this_thread_only()
    ):  # else this is another thread, with the number of one that is over
        with USE.own():
            torch.profiler.profile.prepare_trace(left)  # torch ends none without Kineto's
            end_recording()
