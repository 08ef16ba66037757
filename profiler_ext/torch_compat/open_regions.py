"""Owns which regions that began in one recording are still open: no other may begin before.

When a region ends, torch writes its end to where the recording of its begin had it, if any
recording is on then; one that is over has given that memory back. The program's regions are all
``torch.profiler.record_function``, an optimizer's step too.

Source: ``torch/csrc/autograd/profiler_kineto.cpp``, ``onFunctionExit``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from profiler_ext.isolation.guard import Observation, Observed
from profiler_ext.torch_compat import points
from profiler_ext.torch_compat.patches import Hook


class OpenRanges:
    """The regions that began while something was recorded, and did not end."""

    def __init__(self, is_recording: Callable[[], bool]) -> None:
        """Know of none yet.

        Args:
            is_recording: tells whether what begins now is recorded.
        """
        self._is_recording = is_recording
        self._open: WeakSet[Any] = WeakSet()

    @property
    def has_any(self) -> bool:
        """Whether any is open."""
        return len(self._open) > 0

    def hooks(self) -> list[Hook]:
        """Return what is observed, and where."""
        return [(points.RANGE_ENTER, self._on_enter), (points.RANGE_EXIT, self._on_exit)]

    def _on_enter(self, call: Observed) -> Observation:
        if self._is_recording():
            self._open.add(call["self"])
        yield

    def _on_exit(self, call: Observed) -> Observation:
        yield
        self._open.discard(call["self"])
