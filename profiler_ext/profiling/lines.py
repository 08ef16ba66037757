"""The watch of a recording's lines, which begins and ends with it, and never fails it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiler_ext.capture.held_modules import HeldModules
from profiler_ext.capture.traces.metadata import stacks_of_lines
from profiler_ext.errors import LinesUnavailableError
from profiler_ext.isolation.guard import Guard
from profiler_ext.isolation.user_state import RecursionHeadroom
from profiler_ext.kineto.names import clock_mark
from profiler_ext.profiling.exclusive import ExclusiveProfiler
from profiler_ext.python_lines.layout import PathsOf, TorchCode, build_python_lines
from profiler_ext.python_lines.program_code import ProgramCode, has_columns
from profiler_ext.python_lines.watch import MAX_ENTRIES, LineWatch, clock_ns
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.lineage import ModuleFrame
from profiler_ext.records.provenance import Gap
from profiler_ext.records.recording import PythonLines
from profiler_ext.source_paths import absolute, torch_folders
from profiler_ext.torch_compat import process
from profiler_ext.torch_compat.code_lines import source_lines
from profiler_ext.torch_compat.names import running_names

HOOK = "lines"
LINES_VARIABLE = "PROFILER_EXT_LINES"
"""At 0 in the environment no lines are watched."""
_OWN = absolute(str(Path(__file__).parents[1]))
"""This package: with ``python -m`` its module is named ``__main__``."""
_MARKS = 4
"""Marks at each end, as one may be delayed."""
_MARKED_EVERY_NS = 100_000_000
"""Both clocks run alike between marks; one for each short step would slow it."""
NOTHING_KEPT = Gap(GapReason.LINES_FAILED, "nothing was kept")


@dataclass(eq=False)
class RecordedLines:
    """The lines of the current recording, and then of the last one."""

    guard: Guard
    is_wanted: bool  # at all
    _watch: LineWatch | None = field(default=None, init=False)
    _gap: Gap | None = field(default=None, init=False)
    _headroom: RecursionHeadroom = field(default_factory=RecursionHeadroom, init=False)

    def forget(self) -> None:
        """End a watch whose lines were not taken."""
        self.leave()
        self._watch, self._gap = None, None

    def prepare(self) -> None:
        """Begin to watch, best before the first recorded step: Python visits all code once."""
        if not self.is_wanted or os.environ.get(LINES_VARIABLE, "1") == "0":
            why = "lines=False" if not self.is_wanted else f"{LINES_VARIABLE}=0"
            self._gap = Gap(GapReason.LINES_OFF, why)
            return
        if not has_columns():
            self._gap = Gap(GapReason.LINES_NEED_COLUMNS, "-X no_debug_ranges")
            return
        program = ProgramCode((*torch_folders(), _OWN))
        self._watch = LineWatch(program, process.module_call(), self._failed, stacks_of_lines)
        try:
            self._watch.begin()
        except LinesUnavailableError as error:
            reason = GapReason.LINES_NEED_PYTHON_312 if error.is_old else GapReason.LINES_TAKEN
            self._watch, self._gap = None, Gap(reason, str(error))
            return
        except BaseException:
            self._watch.has_failed = True
            self._watch.end()
            raise
        self._headroom.make()

    def begin(self) -> None:
        """Keep lines from here on."""
        if self._watch is None and self._gap is None:
            self.prepare()
        if self._watch is not None:
            self._watch.keep()
            self._mark(_MARKS)

    def end_step(self) -> None:
        """Mark the time, if the last mark is long ago."""
        watch = self._watch
        if watch is None or not watch.clock:
            return
        if clock_ns() - watch.clock[-1].after_ns > _MARKED_EVERY_NS:
            self._mark()

    def _mark(self, times: int = 1) -> None:
        """Mark times on the clocks of the watch and of the profiler."""
        if self._watch is not None:
            for _ in range(times):
                self._watch.mark(process.recording(clock_mark(len(self._watch.clock))))

    def end(self) -> None:
        """End the watch."""
        if self._watch is not None:
            try:
                self._mark(_MARKS)
            finally:
                self.leave()

    def leave(self) -> None:
        """Restore Python's monitoring."""
        try:
            if self._watch is not None:
                self._watch.end()
        finally:
            self._headroom.restore()

    def _failed(self, error: Exception) -> None:
        self.guard.caught(HOOK, error, ())
        self._gap = Gap(GapReason.LINES_FAILED, type(error).__name__)

    def take_lines(self, held: HeldModules) -> tuple[PythonLines | None, tuple[Gap, ...]]:
        """Return the lines of the recording that ended, or why there are none; once."""
        self.leave()
        watch, gap, self._watch = self._watch, self._gap, None
        if gap is not None or watch is None or watch.has_failed:
            return None, (gap or NOTHING_KEPT,)
        resumed = running_names.RESUMED_CODE.is_available()
        code = TorchCode(process.module_call(), resumed, source_lines, watch.traced)
        lines = build_python_lines(watch.log, watch.clock, watch.end_ns, code, _paths(held))
        full = Gap(GapReason.LINES_FULL, f"{MAX_ENTRIES:,} lines, calls and returns")
        return lines, (full,) if watch.is_full else ()


def _paths(held: HeldModules) -> PathsOf:
    def paths_of(references: Sequence[Any]) -> Sequence[tuple[ModuleFrame, int] | None]:
        modules = [reference() for reference in references]
        paths = zip(held.frames_of(modules), held.models_of(modules), strict=True)
        return [None if f is None or m is None else (f, m) for f, m in paths]

    return paths_of


class LineWatchingProfiler(ExclusiveProfiler):
    """A profiler that watches lines."""

    def __init__(self, guard: Guard, lines: RecordedLines, **torch_options: Any) -> None:
        self.lines = lines
        self._has_stepped = False
        super().__init__(guard, **torch_options)

    def prepare_trace(self) -> None:
        """Prepare to record, unless another profiler is on."""
        super().prepare_trace()
        # Lines are watched in a warm-up step, but not before the first step.
        self._guard.run(HOOK, self.lines.forget)
        if self.is_prepared and self._has_stepped:
            self._guard.run(HOOK, self.lines.prepare)

    def start_trace(self) -> None:
        """Start to record, if it was prepared."""
        super().start_trace()
        if self.is_recording:
            self._guard.run(HOOK, self.lines.begin)

    def step(self) -> None:
        """End a step."""
        self._has_stepped = True
        self._guard.run(HOOK, self.lines.end_step)
        super().step()

    def stop_trace(self) -> None:
        """End the recording, if there is one."""
        try:
            self._guard.run(HOOK, self.lines.end)
        finally:
            super().stop_trace()

    def _leave(self) -> None:
        self._guard.run(HOOK, self.lines.leave)
        super()._leave()
