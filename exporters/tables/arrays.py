"""Owns how columns become pandas arrays: nullable dtypes, absent is ``<NA>``, no row loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from profiler_ext.records import SCHEMA_VERSION, Codes, Interned, Ints, MaskedInts
from profiler_ext.rooflines.rooflines import MaskedFloats

Dtype = Literal["string", "Int64", "Float64", "boolean"]
TEXT: Final = "string"
INT: Final = "Int64"
FLOAT: Final = "Float64"
BOOL: Final = "boolean"


def whole(values: Ints | MaskedInts) -> ExtensionArray:
    """Return integers as ``Int64``; a masked value is absent."""
    data = np.ascontiguousarray(np.ma.getdata(values), dtype=np.int64)
    return pd.arrays.IntegerArray(data, np.ma.getmaskarray(values).copy())


def real(values: MaskedFloats) -> ExtensionArray:
    """Return numbers as ``Float64``; a masked value is absent."""
    data = np.ascontiguousarray(np.ma.getdata(values), dtype=np.float64)
    return pd.arrays.FloatingArray(data, np.ma.getmaskarray(values).copy())


def text(column: Interned, absent: str | None = None) -> ExtensionArray:
    """Return an interned column as ``string``.

    Args:
        column: the strings.
        absent: the string that stands for no value, if there is one.

    Returns:
        One string for each row.
    """
    return gather([None if s == absent else s for s in column.strings], column.codes, TEXT)


def gather(values: Sequence[Any], codes: Codes | Ints | MaskedInts, dtype: Dtype) -> ExtensionArray:
    """Return ``values[code]`` for each row; a masked code, or -1, is absent.

    Args:
        values: the few distinct values; ``None`` is absent.
        codes: index of each row's value.
        dtype: nullable dtype of the result.

    Returns:
        One value for each row.
    """
    distinct: ExtensionArray = pd.array(list(values), dtype=dtype)
    return distinct.take(np.ma.filled(codes, -1), allow_fill=True)


def repeated(value: Any, rows: int, dtype: Dtype) -> ExtensionArray:
    """Return a column that holds one value in each of its rows.

    Args:
        value: the value, ``None`` for an absent one.
        rows: how many.
        dtype: the column's type.
    """
    return gather([value], np.zeros(rows, np.int32), dtype)


def ratio(part: Ints, total: Ints | int) -> ExtensionArray:
    """Return ``part / total`` as ``Float64``; absent where ``total`` is zero.

    Args:
        part: integers, one a row.
        total: as many, or one for all.
    """
    totals = np.broadcast_to(np.asarray(total, np.int64), part.shape)
    nothing = totals == 0
    return pd.arrays.FloatingArray(part / np.where(nothing, 1, totals), nothing)


def frame(columns: dict[str, ExtensionArray]) -> pd.DataFrame:
    """Return a table of these columns, in this order, that carries the schema version."""
    table = pd.DataFrame(columns)
    table.attrs["schema_version"] = SCHEMA_VERSION
    return table
