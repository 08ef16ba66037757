"""Profiling in this process: capture on and off, ``profile``, and the default numbers of steps."""

from __future__ import annotations

from typing import Final

# The first skipped step compiles and is not timed, in the last the profiler warms up. The three
# between give the step time without profiling: findings need three for a median.
DEFAULT_SKIPPED_STEPS: Final = 5
DEFAULT_RECORDED_STEPS: Final = 2
MEMORY_VARIABLE = "PROFILER_EXT_MEMORY"
"""At ``oom`` in the environment each block has its stack, and running out leaves a report."""
