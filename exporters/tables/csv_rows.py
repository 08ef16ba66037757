"""Owns the rows of a table as CSV: each distinct text is quoted once, numbers a column at a time.

The text is that of pandas' ``to_csv``, which takes five times as long: it makes an object of
every cell. Arrow's writer puts quotes around every text.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from profiler_ext.exporters.tables.arrays import REAL, TEXT, WHOLE

Quoting = Literal[0, 2]
_ROWS_AT_ONCE = 20_000


def csv_parts(table: pd.DataFrame, quoting: Quoting) -> Iterator[str]:
    """Yield the text of a table, some of its rows at a time.

    Args:
        table: texts, integers, floats and truth values, absent ones too.
        quoting: ``csv.QUOTE_MINIMAL`` or ``csv.QUOTE_NONNUMERIC``.
    """
    yield _line(table.columns, quoting)
    absent = _line([""] * len(table.columns), quoting).partition(",")[0].removesuffix("\n")
    columns = [_Column(column, absent, quoting) for _, column in table.items()]
    for first in range(0, len(table), _ROWS_AT_ONCE):
        cells = (column.cells(first, first + _ROWS_AT_ONCE) for column in columns)
        yield "\n".join(map(",".join, zip(*cells, strict=True))) + "\n"


class _Column:
    """The cells of a column; of texts the distinct ones are kept, and which each row has."""

    def __init__(self, column: pd.Series, absent: str, quoting: Quoting) -> None:
        self._values, self._absent = column.array, absent
        self._texts: list[str] | None = None
        if column.dtype == TEXT:
            codes, distinct = pd.factorize(column)
            # A code of -1 is the last: absent.
            self._codes = codes.astype(np.int32)
            self._texts = [*_quoted(map(str, distinct), quoting), absent]

    def cells(self, first: int, end: int) -> Sequence[str]:
        if self._texts is not None:
            return [self._texts[code] for code in self._codes[first:end].tolist()]
        some = self._values[first:end]
        absent = some.isna()
        kind = {WHOLE: np.int64, REAL: np.float64}.get(str(some.dtype), np.bool_)
        told = [*map(repr, some.to_numpy(dtype=kind, na_value=0).tolist())]
        for row in np.flatnonzero(absent).tolist():
            told[row] = self._absent
        return told


def _quoted(texts: Iterable[str], quoting: Quoting) -> Iterator[str]:
    # A second cell, for a lone empty one would be quoted.
    return (_line([text, 0], quoting).removesuffix(",0\n") for text in texts)


def _line(cells: Iterable[object], quoting: Quoting) -> str:
    file = io.StringIO()
    csv.writer(file, quoting=quoting, lineterminator="\n").writerow(cells)
    return file.getvalue()
