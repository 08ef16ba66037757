"""Owns the rows of a table as CSV: each distinct text is quoted once, numbers a column at a time.

The text is that of pandas' ``to_csv``, which takes three times as long: it makes an object of
every cell. Arrow's writer puts quotes around every text.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from profiler_ext.exporters.tables.arrays import FLOAT, TEXT, INT

_ROWS_AT_ONCE = 20_000
_Quoting = Literal[0, 2]


def csv_parts(table: pd.DataFrame, format_cell: Callable[[str, str], str]) -> Iterator[str]:
    """Yield the text of a table, some of its rows at a time.

    Args:
        table: texts, integers, floats and truth values, absent ones too.
        written: makes what stands in a cell of a column's name and its text.
    """
    texts = {name: _Texts(table[name], format_cell) for name in table.columns if _has_text(table[name])}
    # Most readers take a carriage return for a line's end, and the writer does not quote it.
    returns = any("\r" in text for column in texts.values() for text in column.distinct)
    quoting: _Quoting = csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL
    yield _line(table.columns, quoting)
    absent = _line([""] * len(table.columns), quoting).partition(",")[0].removesuffix("\n")
    for column in texts.values():
        column.distinct = [*_quoted(column.distinct, quoting), absent]
    for first in range(0, len(table), _ROWS_AT_ONCE):
        some = slice(first, first + _ROWS_AT_ONCE)
        cells = [
            texts[name].cells(some) if name in texts else _numbers(column.array[some], absent)
            for name, column in table.items()
        ]
        yield "\n".join(map(",".join, zip(*cells, strict=True))) + "\n"


class _Texts:
    """A column's distinct texts, and which of them each row has."""

    def __init__(self, column: pd.Series, format_cell: Callable[[str, str], str]) -> None:
        codes, distinct = pd.factorize(column)
        # A code of -1 is the last: absent.
        self._codes = codes.astype(np.int32)
        self.distinct = [format_cell(str(column.name), str(text)) for text in distinct]

    def cells(self, some: slice) -> list[str]:
        return [self.distinct[code] for code in self._codes[some].tolist()]


def _has_text(column: pd.Series) -> bool:
    return bool(column.dtype == TEXT)


def _numbers(some: ExtensionArray, absent: str) -> list[str]:
    kind = {INT: np.int64, FLOAT: np.float64}.get(str(some.dtype), np.bool_)
    formatted = [*map(repr, some.to_numpy(dtype=kind, na_value=0).tolist())]
    for row in np.flatnonzero(some.isna()).tolist():
        formatted[row] = absent
    return formatted


def _quoted(texts: Iterable[str], quoting: _Quoting) -> Iterator[str]:
    # A second cell, for a lone empty one would be quoted.
    return (_line([text, 0], quoting).removesuffix(",0\n") for text in texts)


def _line(cells: Iterable[object], quoting: _Quoting) -> str:
    file = io.StringIO()
    csv.writer(file, quoting=quoting, lineterminator="\n").writerow(cells)
    return file.getvalue()
