"""Lookups in columns: the rows that pass a test, the row of a key, the value at a row.

A column of rows holds indices of rows of another table, or ``NO_ROW``; flags are ``bool`` arrays,
one for each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from profiler_ext.records.events import Codes, Interned, Ints, MaskedInts, first_rows, ranks

NO_ROW = -1  # marks no row in a column of rows; used within attribution only

Flags = npt.NDArray[np.bool_]
# Rows of events in arrays as long as the events: int32 suffices for any trace
Rows = npt.NDArray[np.int32]
SignedInteger = TypeVar("SignedInteger", bound=np.signedinteger[Any])


def intern(texts: Sequence[str]) -> Interned:
    """Make a column of strings."""
    codes: dict[str, int] = {}
    rows = [codes.setdefault(str(text), len(codes)) for text in texts]
    return Interned(np.array(rows, dtype=np.int32), tuple(codes))


def masked(rows: Ints | Rows) -> MaskedInts:
    """Mask the rows that hold ``NO_ROW``."""
    return np.ma.MaskedArray(rows.astype(np.int64, copy=False), mask=rows == NO_ROW)


def take(
    values: npt.NDArray[SignedInteger], rows: Ints | Codes, default: int | SignedInteger
) -> npt.NDArray[SignedInteger]:
    """Return ``values[rows]``, and ``default`` where a row is ``NO_ROW``."""
    if not len(values):
        return np.full(len(rows), default, dtype=values.dtype)
    result = values.take(rows)
    result[rows == NO_ROW] = default
    return result


def find_unique(keys: MaskedInts, rows: Ints, wanted: MaskedInts) -> Ints:
    """Return for each wanted key its one row in ``rows``; ``NO_ROW`` for none or several."""
    rows = rows[~np.ma.getmaskarray(keys)[rows]]
    known, own = ranks(keys.data[rows])
    if not len(known):
        return np.full(len(wanted), NO_ROW, dtype=np.int64)
    of_known = np.where(np.bincount(own) == 1, rows[first_rows(own)], NO_ROW)
    at = np.minimum(np.searchsorted(known, wanted.data), len(known) - 1)
    return np.where((known[at] == wanted.data) & ~np.ma.getmaskarray(wanted), of_known[at], NO_ROW)
