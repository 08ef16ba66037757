"""Profiling in this process.

Capture switched on and off, ``profile``, and how many steps it skips and records by default.

The first of the skipped ones compiles the model and is not timed; in the last the profiler warms
up. The three between tell how long a step takes with no profiler on: of fewer, findings do not
take the median.
"""

from __future__ import annotations

from typing import Final

DEFAULT_SKIPPED_STEPS: Final = 5
DEFAULT_RECORDED_STEPS: Final = 2
