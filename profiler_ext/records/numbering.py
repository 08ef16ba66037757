"""Owns the numbers of values: the same for those that are alike, in their order.

Most columns hold few values that lie close. Those are counted: to sort a column of millions takes
ten times as long, and longer for each row the more there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int64]
Column = npt.NDArray[Any]
"""Whole numbers or flags, one a row."""
_MAX_SPREAD = 4
"""Values that span so many times their number, or more, are sorted."""


def ranks(column: Column) -> tuple[_Ints, _Ints]:
    """Return the distinct values in order, and for each row which of them it has.

    Args:
        column: whole numbers or flags, one a row.
    """
    if not len(column):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    minimum, maximum = int(column.min()), int(column.max())
    if maximum - minimum >= _MAX_SPREAD * len(column):
        distinct, own = np.unique(column, return_inverse=True)
        return distinct.astype(np.int64, copy=False), own.reshape(-1)
    places = np.subtract(column, minimum, dtype=np.int64)
    is_there = np.zeros(maximum - minimum + 1, np.bool_)
    is_there[places] = True
    return np.flatnonzero(is_there) + minimum, (np.cumsum(is_there) - 1)[places]


def numbered(columns: Sequence[Column]) -> _Ints:
    """Return a number for each row, the same for rows that are alike in all columns.

    Args:
        columns: whole numbers or flags, one a row.

    Returns:
        Numbers from 0 on, in the order of the first column, then of the next.
    """
    numbers: _Ints = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        known, own = ranks(column)
        numbers = ranks(numbers * len(known) + own)[1]
    return numbers


def first_rows(numbers: _Ints) -> _Ints:
    """Return the first row of each number.

    Args:
        numbers: one a row; each of those from 0 to the largest is there.
    """
    firsts = np.zeros(int(numbers.max(initial=-1)) + 1, np.int64)
    firsts[numbers[::-1]] = np.arange(len(numbers))[::-1]  # of several the last one stays
    return firsts


def sorted_distinct(values: _Ints) -> _Ints:
    """Return the distinct values, in order.

    What is asked for them is in order already but for a few runs, which a stable sort merges; of
    so many that differ ``numpy.unique`` makes a hash table, which takes ten times as long.
    """
    values = np.sort(values, kind="stable")
    result: _Ints = values[np.append(True, values[1:] != values[:-1])[: len(values)]]
    return result
