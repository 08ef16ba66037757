"""Owns a column that grows by parts: what it has stays where it is, and is there once.

To keep the parts and join them takes the memory of all of it twice, and the time to fill it anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_TIMES = 2


class GrowingColumn:
    """A column; what room it has is memory only where something was added."""

    def __init__(self, parts: int = 1) -> None:
        """Begin empty.

        Args:
            parts: about how many will be added.
        """
        self._parts = parts
        self._rows, self._count = np.empty(0, np.int64), 0

    def add(self, part: npt.NDArray[Any]) -> None:
        """Add rows; the first ones tell of which type all are."""
        end = self._count + len(part)
        if end > len(self._rows):
            more = np.empty(max(end, _TIMES * len(self._rows), len(part) * self._parts), part.dtype)
            more[: self._count] = self._rows[: self._count]
            self._rows = more
        self._rows[self._count : end] = part
        self._count = end

    def finished(self) -> npt.NDArray[Any]:
        """Return all rows; nothing can be added any more."""
        return self._rows[: self._count]
