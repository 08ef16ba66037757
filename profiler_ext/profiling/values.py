"""Which step's values are compared: one that nothing is recorded in, before those that are."""

from __future__ import annotations

from profiler_ext.isolation.guard import Guard
from profiler_ext.records.values import StepValues
from profiler_ext.torch_compat.profilers import USE
from profiler_ext.values.comparing import Comparison

FIRST_STEP = 2
"""Counted from 0: weights that begin at zero, and what is made once, are past by then."""


class ComparedValues:
    """The values of one step, if they are wanted."""

    def __init__(self, guard: Guard, is_wanted: bool) -> None:
        self._guard, self._is_wanted = guard, is_wanted
        self._comparison: Comparison | None = None
        self.taken: StepValues | None = None

    @property
    def is_on(self) -> bool:
        """Whether the step that runs is compared."""
        return self._comparison is not None

    def begin_step(self, step: int) -> None:
        """Begin to compare, if this step is the one."""
        is_next = self._is_wanted and self.taken is None and step >= FIRST_STEP
        if is_next and not USE.is_in_use:
            self._is_wanted = False
            self._comparison = Comparison(step, self._guard)
            self._comparison.begin()

    def end_step(self) -> None:
        """End what was begun."""
        comparison, self._comparison = self._comparison, None
        if comparison is not None:
            try:
                self.taken = comparison.end()
            finally:
                comparison.leave()
