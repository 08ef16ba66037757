"""Owns how a value of a column with absent values is asked for."""

from __future__ import annotations

import numpy as np

from profiler_ext.records import MaskedInts


def optional(column: MaskedInts, row: int) -> int | None:
    """Return a value of a column, ``None`` where it is masked.

    Args:
        column: the column.
        row: one of its rows.
    """
    value = column[row]
    return None if value is np.ma.masked else int(value)
