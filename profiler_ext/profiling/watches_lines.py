"""Owns that a profiler watches the lines of the program while it records.

These methods call torch's own, and all else through the guard, as those of ``ExclusiveProfiler`` do.
"""

from __future__ import annotations

from typing import Any

from profiler_ext.isolation.guard import Guard
from profiler_ext.profiling.lines import HOOK, RecordedLines
from profiler_ext.profiling.turns import ExclusiveProfiler


class LineWatchingProfiler(ExclusiveProfiler):
    """A profiler that watches lines.

    Attributes:
        lines: the lines of the recording that is under way, and then of the last one.
    """

    def __init__(self, guard: Guard, lines: RecordedLines, **torch_options: Any) -> None:
        """Take its parts.

        Args:
            guard: what keeps failures from the program.
            lines: what watches.
            **torch_options: what ``torch.profiler.profile`` takes.
        """
        self.lines = lines
        self._has_stepped = False
        super().__init__(guard, **torch_options)

    def prepare_trace(self) -> None:
        """Prepare to record, unless another profiler is on.

        Lines are watched in a step of warm-up, and not in what comes before the first step.
        """
        super().prepare_trace()
        self._guard.run(HOOK, self.lines.forget)
        if self.is_prepared and self._has_stepped:
            self._guard.run(HOOK, self.lines.prepare)

    def start_trace(self) -> None:
        """Record from here on, if it was prepared."""
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
