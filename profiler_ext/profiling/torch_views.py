"""Owns what torch's own methods give of a recording: the events of the program, without ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from profiler_ext.isolation.guard import Guard
from profiler_ext.kineto.reader import read_trace
from profiler_ext.kineto.recording import write_trace
from profiler_ext.profiling.lines import RecordedLines
from profiler_ext.profiling.own_events import OwnEvents
from profiler_ext.profiling.raw_trace import RawTrace
from profiler_ext.profiling.watches_lines import LineWatchingProfiler
from profiler_ext.records import Trace
from profiler_ext.torch_compat import profilers

VIEWS = "torch's views"
"""The hook that keeps our events out of what torch's methods give."""


class TorchViewsMixin(LineWatchingProfiler):
    """A profiler whose inherited methods give what torch's profiler would have."""

    def __init__(self, guard: Guard, lines: RecordedLines, **torch_options: Any) -> None:
        """Take its parts; from here on each step has a mark, which torch has under a schedule.

        Args:
            guard: what keeps failures from the program.
            lines: what watches.
            **torch_options: what ``torch.profiler.profile`` takes.
        """
        self._raw = RawTrace()
        self._trace: Trace | None = None
        super().__init__(guard, lines, **torch_options)
        self._own_events = OwnEvents(has_steps=not guard.run("steps", profilers.marks_steps, self))
        guard.run("steps", profilers.mark_steps, self)

    def read_written(self, write: Callable[[str], object]) -> Trace:
        """Return torch's trace of the cycle that is over; torch gives it away only once.

        Args:
            write: has torch write into a path.

        Raises:
            OutputError: Torch can write into no folder for a while.
            TraceError: What it wrote cannot be read.
        """
        self._trace = None
        with self._raw.written(write) as raw:
            self._trace = trace = read_trace(raw)
        return trace

    def events(self) -> Any:
        """Return what torch's :meth:`events` does, without events of ours."""
        events = super().events()  # type: ignore[no-untyped-call]
        self._guard.run(VIEWS, self._own_events.remove_own, events)
        return events

    def key_averages(self, *args: Any, **options: Any) -> Any:
        """Return what torch's :meth:`key_averages` does, without events of ours."""
        self.events()
        return super().key_averages(*args, **options)

    def export_stacks(self, *args: Any, **options: Any) -> Any:
        """Write what torch's :meth:`export_stacks` does, without events of ours."""
        self.events()
        return super().export_stacks(*args, **options)

    def export_chrome_trace(self, path: str, *args: Any, **options: Any) -> None:
        """Write the last cycle's trace as torch's :meth:`export_chrome_trace` would have.

        torch gives a trace away only once, and the session has taken it:
        https://github.com/pytorch/pytorch/issues/92855.
        """
        if self._guard.run(VIEWS, self._write_without_own_events, path):
            return
        if not self._raw.copy_to(path):
            super().export_chrome_trace(path, *args, **options)

    def _write_without_own_events(self, path: str) -> bool:
        """Write the last cycle's trace, where it has events of ours."""
        events = None if self._trace is None else self._own_events.without_own_events(self._trace)
        if self._trace is None or events is None:
            return False
        write_trace(Path(path), self._trace.header, events)
        return True
