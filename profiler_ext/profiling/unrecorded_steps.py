"""Owns how long the steps before a recording took, in which no profiler was on.

A recording slows the CPU, so it does not tell by itself whether a device waits for the CPU in
training too. The steps before it do, by the program's clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter_ns

from profiler_ext.torch_compat.profiler_use import USE

_MOST = 50


class UnrecordedSteps:
    """Times the steps in which nobody records, and remembers the last ones."""

    def __init__(self, is_recorded: Callable[[], bool] = lambda: USE.is_taken) -> None:
        """Remember none yet.

        Args:
            is_recorded: tells whether a profiler is on.
        """
        self._is_recorded = is_recorded
        self._took_ns: deque[int] = deque(maxlen=_MOST)
        self._since_ns: int | None = None

    def begin(self) -> None:
        """Begin a step."""
        self._since_ns = None if self._is_recorded() else perf_counter_ns()

    def end(self) -> None:
        """End a step; it counts where no profiler was on at either end."""
        if self._since_ns is not None and not self._is_recorded():
            self._took_ns.append(perf_counter_ns() - self._since_ns)
        self._since_ns = None

    @property
    def took_ns(self) -> tuple[int, ...]:
        """How long each of the last ones took."""
        return tuple(self._took_ns)
