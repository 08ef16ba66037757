"""Owns the pairs in which all longest common subsequences of two orders agree.

Such a subsequence leaves out few of either order, so it stays near the diagonal: the lengths are
found in a band around it, which grows until it must hold every longest one. What takes more than
``MAX_CELLS`` is not decided.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiler_ext.records import Ints

MAX_CELLS = 1 << 24
"""Two orders of 4,000 that have nothing in common, or a band of 800 around 20,000."""
_FIRST_MARGIN = 32
_OUT_OF_BAND = -(1 << 29)
_Lengths = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Names:
    """What two orders are called, in numbers.

    Attributes:
        rows: the name of each row.
        kinds: which of its names a column must share with that row.
        columns: the names of each column, one line for each kind; ``-1`` where it has none.
    """

    rows: Ints
    kinds: Ints
    columns: Ints

    def are_pairwise_equal(self) -> bool:
        """Tell whether each row has the name of the column at its place, and none is left."""
        same = len(self.rows) == self.columns.shape[1]
        return same and bool(
            (self.columns[self.kinds, np.arange(len(self.rows))] == self.rows).all()
        )

    def reversed(self) -> Names:
        """Return the same from the last to the first."""
        return Names(self.rows[::-1], self.kinds[::-1], self.columns[:, ::-1])


def agreed_pairs(names: Names) -> list[tuple[int, int]] | None:
    """Find the pairs (row, column) that stand in every longest common subsequence.

    Args:
        names: which row has the name of which column.

    Returns:
        The pairs, by row; ``None`` where that takes more than may be spent on it.
    """
    result = _banded(names)
    if result is None:
        return None
    before, margin = result
    below = _Band(names, margin).below
    after = _lengths(names.reversed(), margin)[::-1, ::-1]
    longest = after[0, below]
    matches = _Band(names, margin).matches()
    through = matches & (before[:-1] + after[1:] + 1 == longest)
    left_out = (before[:-1, 1:] + after[1:, :-1] == longest).any(axis=1)
    certain = np.flatnonzero((through.sum(axis=1) == 1) & ~left_out)
    columns = certain + through[certain].argmax(axis=1) - below
    return list(zip(certain.tolist(), columns.tolist(), strict=True))


class _Band:
    """The cells near the diagonal: place ``t`` of row ``i`` is that of column ``i + t - below``.

    It is as wide as the orders differ in length, and a margin to either side.
    """

    def __init__(self, names: Names, margin: int) -> None:
        rows, columns = len(names.rows), names.columns.shape[1]
        self.below = max(rows - columns, 0) + margin
        self.above = max(columns - rows, 0) + margin
        self.width = self.below + self.above + 1
        self._names = names
        ends = ((0, 0), (self.below, max(rows + self.above - columns, 0) + 1))
        self._columns = np.pad(names.columns, ends, constant_values=-1)

    def matches_of(self, row: int) -> npt.NDArray[np.bool_]:
        """Tell which columns of a row's band have its name."""
        window = self._columns[self._names.kinds[row], row : row + self.width]
        matches: npt.NDArray[np.bool_] = window == self._names.rows[row]
        return matches

    def matches(self) -> npt.NDArray[np.bool_]:
        """Tell the same of all rows."""
        result = np.zeros((len(self._names.rows), self.width), dtype=np.bool_)
        for row in range(len(result)):
            result[row] = self.matches_of(row)
        return result


def _banded(names: Names) -> tuple[_Lengths, int] | None:
    """Return the lengths in a band that holds all longest common subsequences, and its margin."""
    rows, columns = len(names.rows), names.columns.shape[1]
    margin = _FIRST_MARGIN
    while True:
        band = _Band(names, margin)
        if rows * band.width > MAX_CELLS:
            return None
        lengths = _lengths(names, margin)
        # As many rows as one leaves out, and no more, it may be below the diagonal.
        if rows - lengths[rows, columns - rows + band.below] <= band.below:
            return lengths, margin
        margin *= 2


def _lengths(names: Names, margin: int) -> _Lengths:
    """Return the length of the longest common subsequence of each pair of prefixes in a band."""
    band = _Band(names, margin)
    lengths = np.full((len(names.rows) + 1, band.width + 1), _OUT_OF_BAND, dtype=np.int32)
    lengths[0, band.below : -1] = 0
    for row in range(len(names.rows)):
        last = lengths[row]
        extended = np.where(band.matches_of(row), last[:-1] + 1, _OUT_OF_BAND)
        np.maximum.accumulate(np.maximum(last[1:], extended), out=lengths[row + 1, :-1])
    return lengths[:, :-1]
