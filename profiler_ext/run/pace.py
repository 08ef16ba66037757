"""Owns which steps are slow: those that take a multiple of the running median."""

from __future__ import annotations

import statistics
from collections import deque

_ENOUGH = 5
"""So many steps must have been seen before one can be slow."""
_REMEMBERED = 50


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
