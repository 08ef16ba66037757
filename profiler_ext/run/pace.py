"""Owns which steps are slow, of a multiple of the running median, and which of them are missed."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

_ENOUGH = 5
"""So many steps must have been seen before one can be slow."""
_REMEMBERED = 50


@dataclass(slots=True)
class Missed:
    """Slow steps in which nothing was recorded, though recordings had begun.

    Attributes:
        count: how many.
        last: the number of the last one.
        was_held: then, a region of the program's kept the next recording from its begin.
    """

    count: int = 0
    last: int = 0
    was_held: bool = False

    def add(self, step: int, was_held: bool) -> None:
        """Count a step.

        Args:
            step: its number.
            was_held: a region was open that had begun in a recording.
        """
        self.count, self.last, self.was_held = self.count + 1, step, was_held


class Pace:
    """How long the last steps took.

    Attributes:
        worst: of the steps since :meth:`begin`, the largest multiple of the median before it.
    """

    def __init__(self) -> None:
        """Remember no step yet."""
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)
        self.worst = 0.0

    def begin(self) -> None:
        """Look at the steps from here on."""
        self.worst = 0.0

    def step(self, seconds: float) -> None:
        """Compare a step with those before it.

        Args:
            seconds: how long it took.
        """
        if len(self._seconds) >= _ENOUGH:
            self.worst = max(self.worst, seconds / max(statistics.median(self._seconds), 1e-9))
        self._seconds.append(seconds)
