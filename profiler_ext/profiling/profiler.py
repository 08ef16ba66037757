"""``profile``: a ``torch.profiler.profile`` whose result is a session."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack

import torch.profiler

from profiler_ext.capture.called_modules import Called, CalledModules
from profiler_ext.capture.held_modules import HeldModules
from profiler_ext.capture.hooks.installing import not_traced
from profiler_ext.errors import (
    CaptureWarning,
    InternalError,
    LateCaptureWarning,
    ProfilerExtError,
    TorchCapabilityError,
    UsageError,
)
from profiler_ext.isolation.guard import Guard
from profiler_ext.kineto.recording import with_valid_utf8
from profiler_ext.profiling import switch
from profiler_ext.profiling.assembly import (
    GRAPHS,
    NO_LINES,
    assemble_recording,
    learn_callback,
    settings_of_process,
    source_roots,
    with_cells,
    with_texts,
)
from profiler_ext.profiling.captured_graphs import HOOK as CUDA_GRAPHS
from profiler_ext.profiling.exclusive import EXCLUSIVE_HOOK
from profiler_ext.profiling.lines import HOOK, RecordedLines
from profiler_ext.profiling.memory import MEMORY, RecordedMemory
from profiler_ext.profiling.out_of_memory import REPORTS
from profiler_ext.profiling.recorded_threads import THREADS
from profiler_ext.profiling.torch_views import TorchViewsMixin
from profiler_ext.profiling.unrecorded_steps import StepTimes, UnrecordedSteps
from profiler_ext.profiling.values import ComparedValues
from profiler_ext.records.recording import (
    CapturedGraph,
    CaptureRecording,
    Recording,
    Settings,
    StepCall,
    StepCalls,
)
from profiler_ext.sessions.session import Session
from profiler_ext.sessions.session_tables import SessionExplanations
from profiler_ext.source_paths import user_roots
from profiler_ext.torch_compat import process, profilers
from profiler_ext.torch_compat.process import live_artifacts
from profiler_ext.values.comparing import VALUES

if TYPE_CHECKING:
    from profiler_ext.exporters.tables import Filters, Table
    from profiler_ext.findings import Findings
    from profiler_ext.records.analysis import Analysis

_SLOWING = "which debug settings are on"


class LastSessionMixin(SessionExplanations):
    """The methods of a session, for the last session."""

    sessions: list[Session]

    @property
    @abstractmethod
    def session(self) -> Session:
        """The last session."""

    @property
    def analyses(self) -> tuple[Analysis, ...]:
        """What attribution found in the last session."""
        return self.session.analyses

    @property
    def notes(self) -> tuple[str, ...]:
        """What is missing in the last session, and the remedy."""
        return self.session.notes

    @property
    def recommendations(self) -> Findings:
        """Top recommendations in the last session."""
        return self.session.recommendations

    def columns(self, name: str, *arguments: Any, **filters: Unpack[Filters]) -> Table:
        """Return a table of the last session by its name; see :meth:`SessionTables.table`."""
        return self.session.columns(name, *arguments, **filters)

    def report(
        self,
        by: str | None = None,
        top: int | None = 15,
        format: str = "text",
        width: int = 120,
        **options: Any,
    ) -> str:
        """Return :meth:`Session.report` of the last session."""
        return self.session.report(by, top, format, width, **options)

    def annotate(self, *files: str, format: str = "text", width: int = 120) -> str:
        """Return :meth:`Session.annotate` of the last session.

        Args:
            *files: names or ends of paths; without any, every file that took time.
        """
        return self.session.annotate(*files, format=format, width=width)

    def export(self, path: str | Path) -> Path:
        """Write the last session; see :meth:`profiler_ext.sessions.session.Session.export`."""
        return self.session.export(path)

    def assert_coverage(
        self, fraction: float, level: str = "line", scope: str = "compiled"
    ) -> None:
        """Raise unless enough time is attributed: :meth:`Session.assert_coverage`.

        Raises:
            CoverageError: Less is attributed.
        """
        self.session.assert_coverage(fraction, level, scope)

    def _repr_html_(self) -> str | None:
        """Return the notebook view of the last session, if there is one."""
        return self.session._repr_html_() if self.sessions else None


LATE = (
    "a model was compiled before profiler_ext was switched on, so its kernels cannot be attributed "
    "to lines: start with `profiler-ext run`, call `profiler_ext.enable()` at the top of the "
    "script, or set PROFILER_EXT=1; where it is compiled already, call `torch.compiler.reset()` "
    "and give `profile(recompile=True)`, and its next call compiles it once more"
)

IN_FULLGRAPH = (
    "profiler_ext.profile records what runs and is no part of a graph: begin it around the call of "
    "the compiled function, or leave out fullgraph=True"
)

INSIDE = "inside"
"""The hook that measures inside kernels."""
RECORDING = "recording"
"""The hook that makes a session of a recording."""


class LooksInside(Protocol):
    """What measures inside the kernels of a session: :class:`profiler_ext.Inside`."""

    def begin(self, guard: Guard) -> None:
        """Observe what is compiled and launched from here on."""

    def end(self) -> None:
        """Observe nothing more."""

    def measured(self, session: Session) -> Session:
        """Return a session with what was measured inside its kernels."""


class profile(TorchViewsMixin, LastSessionMixin):  # noqa: N801  (named as the class it stands in for)
    """Profile a training step and attribute its device time to the model.

    Takes what ``torch.profiler.profile`` takes and can be used where one is expected. Each
    recorded cycle of a schedule becomes a session. Capture stays on when the block ends, so
    that a later profile knows the graphs compiled meanwhile; ``profiler_ext.disable()``
    switches it off.

    Torch has one profiler at a time. When another one begins, this one ends: its recording is a
    session with a gap that says so. While another one is on, and in forked processes, nothing is
    recorded.

    Args:
        on_trace_ready: called with this profiler when a cycle's session is there.
        user_roots: folders whose files are the user's own; by default the script's folder
            and the working folder.
        strict: raise failures in hooks; by default they become gaps and a warning.
        recompile: recompile graphs that a cache has from a run without capture.
        lines: watch which lines run while steps are recorded, to attribute eager work to them;
            needs Python 3.12.
        memory: record what is allocated and freed in the recorded steps, and who holds it: the
            peak by line, module and kind. Only the thread that begins the recording is recorded,
            with autograd's threads.
        values: compare, on the device, the values that a step before the recording computes: what
            repeats, and what the loss does not read. What is compiled runs eagerly in that step,
            the third or later, and it takes several times as long.
        inside: which kernels to look into when the block ends, ``profiler_ext.Inside()``: the last
            session then has measured shares of lines. Needs a GPU, and its memory.
        source: keep the text of the lines that took time, and the code that torch generated;
            without it the session has no source text.
        keep: how many sessions to keep, the last ones, if a schedule records repeatedly; by default
            all, each with its trace in memory.
        **torch_options: all other options of ``torch.profiler.profile``.
    """

    _imports_compiler = True  # so that no step that is recorded has to

    @not_traced(IN_FULLGRAPH)
    def __init__(
        self,
        *,
        on_trace_ready: Callable[..., Any] | None = None,
        user_roots: tuple[str, ...] | None = None,
        strict: bool = False,
        recompile: bool = False,
        lines: bool = True,
        memory: bool = False,
        values: bool = False,
        inside: LooksInside | None = None,
        source: bool = True,
        keep: int | None = None,
        **torch_options: Any,
    ) -> None:
        if keep is not None and keep < 1:
            raise UsageError(f"keep is {keep}, expected 1 or more sessions, or None for all")
        self._setup_guard = setup_guard = Guard(strict)  # until capture is on, if it can be
        if self._imports_compiler and setup_guard.run("enable", _is_late):
            warnings.warn(LATE, LateCaptureWarning, stacklevel=2)
        capability_error = setup_guard.run(
            "enable", _enable_capture, torch_options, strict, recompile, self._imports_compiler
        )
        if capability_error is not None:
            raise capability_error
        self.sessions: list[Session] = []
        self.refusal: ProfilerExtError | None = None
        self.step_source, self.step_call = "none", ""
        self.calls_of_step: tuple[StepCall, ...] = ()  # with tokens, of the step that ends
        self._recorded_calls: list[StepCalls] = []
        self._on_session, self._user_roots = on_trace_ready, user_roots
        self._keeps_source, self._max_sessions = source, keep
        guard = setup_guard.run("enable", _guard) or setup_guard
        self._unrecorded = guard.run("steps", UnrecordedSteps)
        self._called_modules = guard.run("called modules", CalledModules, switch, guard, self)
        self._chooses_config = "experimental_config" not in torch_options
        if self._chooses_config:
            config = guard.run(THREADS, process.threads_config, are_all=not memory)
            torch_options["experimental_config"] = config
        self._memory, self._records_memory = RecordedMemory(guard, memory), memory
        torch_options |= _memory_options() if memory else {}
        self._values, self._compares_values = ComparedValues(guard, values), values
        self._inside = inside
        if inside is not None:
            guard.run(INSIDE, inside.begin, guard)
        super().__init__(
            guard, RecordedLines(guard, lines), on_trace_ready=self._on_cycle_end, **torch_options
        )

    @property
    def session(self) -> Session:
        """The session of the last recorded cycle in which anything ran.

        A schedule without ``repeat`` may end in an empty one, which ``sessions`` has, too.

        Raises:
            UsageError: Nothing was recorded yet.
            ProfilerExtError: The recording cannot be kept; the message gives the remedy.
            InternalError: The package failed to make it.
        """
        if not self.sessions and self.refusal is not None:
            raise self.refusal
        if not self.sessions and self.lost is not None:
            raise InternalError(
                f"there is no session of what was recorded ({self.lost}); please report it"
            )
        if not self.sessions:
            raise UsageError(
                "nothing was recorded yet: leave the `with` block, or call step() until the "
                "schedule's active steps are over"
            )
        return next((each for each in reversed(self.sessions) if each.has_work), self.sessions[-1])

    @property
    def lost(self) -> str | None:
        """What failed in this package, so that there is no recording or session."""
        failures = (
            each for each in self._guard.failures if each.hook in (RECORDING, EXCLUSIVE_HOOK)
        )
        return next((failure.detail for failure in failures), None)

    def step(self) -> None:
        """End a step."""
        if self._unrecorded is not None:
            self._guard.run("steps", self._unrecorded.end, self.calls_of_step)
        if self.is_recording:
            self._recorded_calls.append(StepCalls(self.step_num, self.calls_of_step))
        self._guard.run(MEMORY, self._memory.read_owners)
        if self.step_source == "none":
            self.step_source = "prof.step"
        self._guard.run("steps", self._finish_device_work)
        self._guard.run(VALUES, self._values.end_step)
        super().step()
        self._guard.run(VALUES, self._values.begin_step, self.step_num)
        if self._unrecorded is not None and not self._values.is_on:
            self._guard.run("steps", self._unrecorded.begin)

    def _finish_device_work(self) -> None:
        """Let no device work run into the first recorded step."""
        if profilers.begins_recording(self):
            process.finish_device_work()

    def start_watching(self) -> None:
        """Mark the calls of compiled graphs from here on."""
        if self._called_modules is not None:
            self._called_modules.watch()
        if (captured := switch.captured_graphs()) is not None:
            captured.watch_replays(self)

    def start_trace(self) -> None:
        """Start to record, if it was prepared; keep everything that can run."""
        if self.is_prepared:
            self._recorded_calls = []
            self._guard.run(GRAPHS, self._hold)
            self._guard.run(MEMORY, self._memory.begin)
        super().start_trace()

    def stop_trace(self) -> None:
        """End the recording, if there is one."""
        self._guard.run(MEMORY, self._memory.read_owners)
        try:
            super().stop_trace()
        finally:
            self._guard.run(MEMORY, self._memory.end)

    def stop(self) -> None:
        """Stop; ``on_trace_ready`` has run when this returns, and kernels were looked into."""
        self._guard.run(VALUES, self._values.end_step)
        super().stop()
        if self._inside is not None:
            self._guard.run(INSIDE, self._inside.end)
            if self.sessions:
                last = self.session  # not the empty one that a schedule may end in
                at = next(at for at, each in enumerate(self.sessions) if each is last)
                measured = self._guard.run(INSIDE, self._inside.measured, last)
                self.sessions[at] = measured or last
            self._inside = None

    def _hold(self) -> None:
        if (capture := switch.current()) is not None:
            capture.hold(self)
        if self._called_modules is not None:
            self._called_modules.begin()

    def _release(self) -> None:
        if (capture := switch.current()) is not None:
            capture.release(self)

    def stop_watching(self) -> None:
        """Remove the hooks."""
        self._guard.run(MEMORY, self._memory.leave)
        self._guard.run(GRAPHS, self._release)
        if (captured := switch.captured_graphs()) is not None:
            captured.leave_replays(self)
        if self._called_modules is not None:
            self._called_modules.leave()

    def _on_cycle_end(self, _: torch.profiler.profile) -> None:
        """Make a session; exceptions of the program's callback are its own."""
        is_kept = self.has_trace and self._guard.run(RECORDING, self._keep_session)
        self._guard.run(GRAPHS, self._release)
        if is_kept:
            self.deliver()

    def _keep_session(self) -> bool:
        try:
            self.sessions.append(self._made_session())
            del self.sessions[: -(self._max_sessions or len(self.sessions))]
        except ProfilerExtError as error:
            self.refusal = error
            self.refuse(error)
            return False
        return True

    def _made_session(self) -> Session:
        guard, made = self._guard, self._made_recording()
        graphs = guard.run(CUDA_GRAPHS, _replayed_graphs, made) or ((), ())
        taken = guard.run(MEMORY, self._memory.take, made.trace)
        made = replace(made, memory=taken, cuda_graphs=graphs[0], captures=graphs[1])
        complete = with_texts(made, self._keeps_source, guard)
        return Session(complete, learn_callback(guard), source_roots(made, guard))

    def _made_recording(self) -> Recording:
        guard = self._guard
        held = HeldModules.of_models()
        lines = guard.run(HOOK, self.lines.take_lines, held) or NO_LINES
        trace = self.read_written(super(TorchViewsMixin, self).export_chrome_trace)
        made = assemble_recording(
            trace, partial(self._settings, held), held, lines, self._setup_guard, guard
        )
        return replace(made, gaps=(*made.gaps, *self.gaps()), values=self._values.taken)

    def _on_lost(self, why: str) -> None:
        self.refusal = UsageError(why)
        self.refuse(self.refusal)

    def deliver(self) -> None:
        """Call back with a new session."""
        if self._on_session is not None:
            with self.running_program_code():
                self._on_session(self)

    def refuse(self, error: ProfilerExtError) -> None:
        """Warn why there is no session.

        Args:
            error: what made it impossible.
        """
        warnings.warn(str(error), CaptureWarning, stacklevel=2)

    def _settings(self, held: HeldModules) -> Settings:
        called = self._guard.run("called modules", self._paths, held) or ()
        own = user_roots() if self._user_roots is None else self._user_roots
        before = self._guard.run("steps", self._times_before) or StepTimes()
        slowing = self._guard.try_run(_SLOWING, process.debug_settings) or ()
        made = settings_of_process(
            own, self.step_source, called, self._requested_options(), *before[:3], self.step_call,
            slowing,
        )  # fmt: skip
        recorded = self._recorded_calls if any(each.calls for each in self._recorded_calls) else ()
        return replace(made, step_calls=(*before.calls, *recorded))

    def _times_before(self) -> StepTimes | None:
        return None if self._unrecorded is None else self._unrecorded.times

    def _requested_options(self) -> tuple[str, ...]:
        """The options in use, so that no advice asks for them."""
        requested = {
            "recompile": switch.recompiles(),
            "shapes": self.record_shapes,
            "values": self._compares_values,
        }
        return tuple(name for name in requested if requested[name])

    def _paths(self, held: HeldModules) -> tuple[tuple[int, Called], ...]:
        return () if self._called_modules is None else self._called_modules.paths(held)


class CapturedGraphProfile(profile):
    """Records the program while it captures a CUDA graph of its own."""

    _imports_compiler = False

    def __init__(self) -> None:
        super().__init__()
        self.recording: Recording | None = None

    def _on_cycle_end(self, _: torch.profiler.profile) -> None:
        if self.has_trace:
            self.recording = self._guard.run(CUDA_GRAPHS, self._named_recording)
        self._guard.run(GRAPHS, self._release)

    def _named_recording(self) -> Recording:
        return with_valid_utf8(with_cells(self._made_recording(), self._guard))

    def refuse(self, error: ProfilerExtError) -> None:
        """Stay silent: the replays are a gap."""


def _replayed_graphs(
    recording: Recording,
) -> tuple[tuple[CapturedGraph, ...], tuple[CaptureRecording, ...]]:
    captured = switch.captured_graphs()
    if captured is None:
        return (), ()
    captured.keep(recording)
    return captured.replayed_in(recording.trace.events.name.strings)


def _memory_options() -> dict[str, bool]:
    """Return torch's options for memory; where it runs out, what is alive is written."""
    REPORTS.watch(switch.graphs)
    return {"profile_memory": True}


def _is_late() -> bool:
    """Tell whether compiled code can still run that capture has not seen."""
    capture = switch.current()
    if (capture is not None and not capture.is_late) or not process.anything_compiled():
        return False
    return any(capture is None or not capture.knows(each) for each in live_artifacts())


def _enable_capture(
    torch_options: dict[str, Any], strict: bool, recompile: bool, imports_compiler: bool
) -> TorchCapabilityError | None:
    """Switch capture on; return why this torch does not fit."""
    try:
        cpu_events = switch.is_cpu_only(torch_options)
        switch.enable(cpu_events=cpu_events, strict=strict, recompile=recompile)
        if imports_compiler:
            switch.complete()
    except TorchCapabilityError as error:
        return error
    return None


def _guard() -> Guard | None:
    capture = switch.current()
    return None if capture is None else capture.guard
