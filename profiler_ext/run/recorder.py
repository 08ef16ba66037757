"""The profiler of ``profiler-ext run``: it records steps and keeps the sessions."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerAction

from profiler_ext.capture.hooks.installing import Capture
from profiler_ext.errors import InternalError, ProfilerExtError
from profiler_ext.isolation.failures import is_raised_by_program
from profiler_ext.isolation.user_state import isolated
from profiler_ext.profiling.assembly import GRAPHS
from profiler_ext.profiling.lines import HOOK
from profiler_ext.profiling.memory import MEMORY
from profiler_ext.profiling.profiler import RECORDING, profile
from profiler_ext.profiling.torch_views import RawTrace
from profiler_ext.profiling.unrecorded_steps import Mark
from profiler_ext.run.loops import expected_steps
from profiler_ext.run.request import Request
from profiler_ext.run.step_ends import StepEnds
from profiler_ext.run.window import FinishedStep, MissedSteps, SlowStepDetector, Window
from profiler_ext.sessions.session import Session
from profiler_ext.torch_compat import profilers
from profiler_ext.torch_compat.accelerator import finish_cupti_teardown, uses_device
from profiler_ext.torch_compat.default_store import all_ranks_end
from profiler_ext.torch_compat.profilers import OpenRanges

TRACE_NAME = "torch.pt.trace.json.gz"
"""The file of torch's own trace if there is no session."""


class Recorder:
    """Records steps of the program and passes on the sessions to keep."""

    def __init__(
        self,
        capture: Capture,
        request: Request,
        keep: Callable[[Session, int], None],
        on_step: Callable[[], None],
        user_roots: tuple[str, ...],
        folder: Path,
    ) -> None:
        self.session: Session | None = None  # that was kept last
        self.on_processing: Callable[[bool], object] = bool  # called with whether it begins
        self.failure: Exception | None = None  # in recording or keeping
        self.trace: Path | None = None  # torch's own, if there is no session
        self._regions = OpenRanges(lambda: self._profiler.is_recording)
        self.discarded = 0  # recordings without a slow step
        self.first = 0  # step of the last recording
        self.recorded_early = False  # the session is of steps before the requested ones
        self.ignored_stop = self._stop_requested = False  # by the program
        self._request, self._capture, self._user_roots = request, capture, user_roots
        self._slow = request.repeats.slow if request.repeats is not None else None
        self._keep, self._on_step, self.folder = keep, on_step, folder
        self._incomplete_session: Session | None = None
        self._holds_early = False  # it is of early steps
        self._holds_for_prefill = False  # until steps with one are recorded, or none comes
        self._process = os.getpid()
        self._count_from_here()
        regions = self._regions.hooks() if request.repeats is not None else ()
        self.ends = StepEnds(
            capture,
            self._step,
            self._profiler,
            request.step_on,
            regions,
            on_restart=self._restart,
            takes_calls=not request.skip.is_nothing,
        )
        self._stops = request.stops

    def _count_from_here(self) -> None:
        """Make what numbers steps and records them, with this one as the first."""
        request = self._request
        self.window = Window(
            request.skip,
            request.steps,
            request.repeats,
            has_open_region=lambda: self._regions.has_any,
            is_learning=lambda: self._capture.has_calls_to_profile,
            on_device=uses_device,
            may_be_short=lambda: (
                request.repeats is None and self.ends.found_call and not self.ends.may_train
            ),
            expected_steps=lambda: None if self.ends.of else expected_steps(),
        )
        self._pace = None if self._slow is None else SlowStepDetector(self._slow)
        self._step_start = Mark.here()
        self._profiler = _RunProfiler(
            self,
            schedule=self.window,
            user_roots=self._user_roots,
            lines=request.lines,
            record_shapes=request.shapes,
            memory=request.memory,
            values=request.values,
            source=request.source,
        )

    @property
    def is_in_child(self) -> bool:
        """Whether this process was forked from the one that records."""
        return os.getpid() != self._process

    @property
    def lost(self) -> str | None:
        """What failed in this package, so that there is no session."""
        return None if self.session is not None else self._profiler.lost

    @property
    def has_recorded(self) -> bool:
        """Whether steps were recorded, kept or not."""
        has_begun = self.window.has_begun(self.ends.count)
        return self.session is not None or (self._profiler.has_trace and has_begun)

    @property
    def has_unsaved(self) -> bool:
        """Whether there is a recording, running or over, that is not kept yet."""
        return self._profiler.is_recording or self._incomplete_session is not None

    def start(self) -> None:
        """Start, before the program does."""
        self._profiler.start()
        self.ends.watch()

    def _restart(self, is_forced: bool) -> bool:
        """Number steps from here on, unless they are recorded already and it need not be."""
        step = self._profiler.step_num
        is_early = self.window.is_early(step)
        is_late = self.window.has_begun(step) or (self._profiler.is_prepared and not is_early)
        if self.failure is not None or (is_late and not is_forced):
            return False
        self._try(self._profiler.drop)
        self._count_from_here()
        self.ends.own = self._profiler
        self._try(self._profiler.start)
        return True

    def stop(self) -> None:
        """Stop, and keep what was recorded."""
        if self.is_in_child:
            return
        self._try(self.ends.leave)
        if self._holds_for_prefill and not self.window.is_over(self.ends.count):
            self.window.return_to_requested()
            self._try(self._profiler.drop)
        self._try(self._profiler.stop)
        if self.session is None and (part := self._incomplete_session) is not None:
            with isolated():
                self.recorded_early = self._holds_early
                if self._holds_early:
                    self._profiler.add_step_times(part)
                self._write(part)

    def keep_trace(self) -> None:
        """Keep torch's own trace if this package failed to make a session of it."""
        is_own_error = isinstance(self.failure, ProfilerExtError)
        has_failed = self.failure is not None or self.lost is not None
        if has_failed and not is_own_error and self.has_recorded:
            self.trace = self._profiler.kept_trace()

    def release_cupti(self) -> None:
        """Leave nothing that the process would wait for at its end."""
        if not self.is_in_child:
            with suppress(Exception):
                finish_cupti_teardown()

    def refuse(self, error: Exception) -> None:
        """Note why a recording cannot be kept."""
        self.failure = self.failure or error

    def take(self, session: Session) -> None:
        """Keep a session.

        If another profiler ended it, if it was recorded early, if the program may still train, or
        if a prefill may come that it lacks, wait for a better one.
        """
        is_early = self.window.ended_early(self._profiler.step_num)
        may_train = self._request.repeats is None and self.ends.may_train
        self._holds_early = is_early
        self._holds_for_prefill = not (is_early or may_train) and self._awaits_prefill
        if self._profiler.was_ended or is_early or may_train or self._holds_for_prefill:
            self._incomplete_session = session
            return
        self._write(session)

    def _write(self, session: Session) -> None:
        self._incomplete_session = None
        self._try(lambda: self._keep(session, self.first))
        if self.failure is None:
            self.session = session

    def is_wanted(self) -> bool:
        """Tell whether the recording is to be kept, and begin to watch the next."""
        step = self._profiler.step_num
        if self.window.ended_early(step):
            return True
        has_whole_step = step > (self.window.first or 0)
        if not self.window.has_begun(step) or (self._incomplete_session and not has_whole_step):
            return False
        if self._pace is None or self._slow is None:
            return True
        self._pace.settle()
        is_wanted = self._pace.worst > self._slow
        self._pace.begin()
        self.discarded += not is_wanted
        return is_wanted

    def _step(self) -> bool:
        """End a step; return whether the program is to end."""
        if self._pace is not None:
            self._detect_slow_step(self._pace)
        self._profiler.step_source, self._profiler.step_call = self.ends.source, self.ends.of
        self._profiler.calls_of_step = self.ends.calls
        if self.ends.is_of_prefill:
            self.window.unusual_step(self._profiler.step_num)
        if self.ends.begins_prefill:
            self.window.prefill_begins(self._profiler.step_num + 1)
        self._count()
        if self._request.repeats is None and self.window.is_over(self.ends.count):
            self._leave_calls()
        self._on_step()
        if self._pace is not None:
            self._step_start = Mark.here()
        return self._requests_exit()

    @property
    def _awaits_prefill(self) -> bool:
        """Whether a prefill may still come, which would be recorded with steps after it."""
        is_patient = not self._stops or self.window.prefills > 0
        may_come = self.ends.is_decoding and self.failure is None and is_patient
        return may_come and self.window.awaits_prefill(self._profiler.step_num)

    def _leave_calls(self) -> None:
        """Watch no calls any more, unless a prefill may come; keep what waited for one."""
        if self._awaits_prefill:
            return
        self.ends.leave_calls()
        if (held := self._incomplete_session) is not None and self._holds_for_prefill:
            self._holds_for_prefill = False
            self._write(held)

    def _count(self) -> None:
        """End a step of the profiler, unless one was missed: the numbers would be wrong."""
        counted = self._profiler.step_num
        if (missed := self.ends.missed) is None:
            self._try(self._profiler.step)
        else:
            self.refuse(InternalError(f"the end of a step was missed ({missed}); please report it"))
        if self.failure is not None and self._profiler.step_num == counted:
            self.stop()

    def _detect_slow_step(self, pace: SlowStepDetector) -> None:
        step = self._profiler.step_num
        has_begun = self.window.has_begun(step)
        is_recorded = has_begun and self._profiler.is_recording
        held = self._regions.has_any
        pace.step(FinishedStep(step, self._step_start, Mark.here(), is_recorded, has_begun, held))

    @property
    def missed(self) -> MissedSteps:
        """Slow steps in which nothing was recorded."""
        return MissedSteps() if self._pace is None else self._pace.missed

    def _requests_exit(self) -> bool:
        """Tell, once, that the program is to end."""
        self.ignored_stop = self._stop_requested
        is_over = self.session is not None or self.failure is not None
        if not self._stops or self._stop_requested or not is_over:
            return False
        self._stop_requested = True
        return all_ranks_end()

    def _try(self, work: Callable[[], object]) -> None:
        """Run work whose failure must not reach the program."""
        try:
            work()
        except Exception as error:
            if is_raised_by_program(error):
                raise
            self.refuse(error)


class _StepMarkSwitch:
    """Its truth says first whether to close a step's mark, then whether to open one."""

    def __init__(self, closes: bool, opens: bool) -> None:
        self._answers = [opens, closes]

    def __bool__(self) -> bool:
        return self._answers.pop() if len(self._answers) > 1 else self._answers[0]


class _RunProfiler(profile):
    _imports_compiler = False  # a second for a script that compiles nothing

    def __init__(self, recorder: Recorder, **options: Any) -> None:
        self._recorder = recorder
        super().__init__(**options)
        self._raw = RawTrace(recorder.folder)
        self._is_marked = self._is_dropped = False
        self._guard.run("steps", self._mark_steps, 0)
        self._guard.run("steps", profilers.mark_steps, self, self._is_marked)

    def step(self) -> None:
        self._guard.run("steps", self._mark_steps, self.step_num + 1)
        super().step()
        self._guard.run("steps", profilers.mark_steps, self, self._is_marked)

    def _mark_steps(self, step: int) -> None:
        """Mark recorded steps only: a profiler of the program would see the other marks."""
        was_marked, is_chosen = self._is_marked, self.schedule(step) is not ProfilerAction.NONE
        self._is_marked = is_chosen and self._recorder.window.is_marked(step)
        profilers.mark_steps(self, _StepMarkSwitch(was_marked, self._is_marked))

    def add_step_times(self, early: Session) -> None:
        """Add the times of the steps after an early recording, which had few before it."""
        times = self._guard.run("steps", self._times_before)
        if times is not None and times.took_ns:
            recording = early.recording
            recorded = (each for each in recording.settings.step_calls if each.step is not None)
            settings = replace(
                recording.settings,
                unprofiled_steps_ns=times.took_ns,
                unprofiled_steps_on_device=times.on_device,
                unprofiled_cpu_ns=times.cpu_ns,
                step_calls=(*times.calls, *recorded),
            )
            early.recording = replace(recording, settings=settings)

    def _requested_options(self) -> tuple[str, ...]:
        return ("run", *super()._requested_options())

    def prepare_trace(self) -> None:
        self.profiler = None  # the last recording is kept, or not wanted
        with profilers.without_kineto_noise():
            super().prepare_trace()

    def start_trace(self) -> None:
        super().start_trace()
        if self.is_recording:
            self._recorder.first = self._recorder.window.first or self.step_num

    def step_aside(self) -> None:
        if self.is_prepared:
            super().step_aside()
            self._recorder.window.postpone_after(self.step_num)

    def drop(self) -> None:
        """Stop, and keep nothing."""
        self._is_dropped = True
        self.stop()

    def _on_cycle_end(self, profiler: Any) -> None:
        if self._is_dropped or self._guard.run(RECORDING, self._recorder.is_wanted) is False:
            self._guard.run(HOOK, self.lines.forget)
            self._guard.run(MEMORY, self._memory.leave)
            self._guard.run(GRAPHS, self._release)
        else:
            self._guard.run("progress", self._recorder.on_processing, True)
            try:
                super()._on_cycle_end(profiler)
            finally:
                self._guard.run("progress", self._recorder.on_processing, False)

    def deliver(self) -> None:
        self._guard.run(RECORDING, self._recorder.take, self.sessions.pop())

    def kept_trace(self) -> Path | None:
        """Write torch's own trace of the last cycle; return its path, if there is one."""
        return self._guard.run(RECORDING, self._keep_trace)

    def _keep_trace(self) -> Path:
        folder = self._recorder.folder
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / TRACE_NAME
        self.export_chrome_trace(str(path))
        return path

    def refuse(self, error: ProfilerExtError) -> None:
        self._recorder.refuse(error)

    def detach_from_parent(self) -> None:
        super().detach_from_parent()
        with suppress(Exception):
            self._recorder.ends.leave()
