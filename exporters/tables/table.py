"""Tables as columns of texts and numbers whose values may be absent, without pandas.

Importing pandas takes longer than attributing a small session, so only what users are given becomes
a pandas frame (:meth:`Table.to_pandas`); what commands print is made of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from profiler_ext.records.analysis import SCHEMA_VERSION
from profiler_ext.records.events import Codes, Ints, MaskedInts, first_rows, numbered
from profiler_ext.records.share_sums import sum_by

if TYPE_CHECKING:
    import pandas as pd

Dtype = Literal["string", "Int64", "Float64", "boolean"]
TEXT: Final = "string"
INT: Final = "Int64"
FLOAT: Final = "Float64"
BOOL: Final = "boolean"
Flags = npt.NDArray[np.bool_]
_OF_NUMPY: Mapping[str, Any] = {INT: np.int64, FLOAT: np.float64, BOOL: np.bool_}


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of texts: ``strings[code]``, each there once; a code of -1 is absent."""

    codes: Ints
    strings: tuple[str, ...]
    dtype: Dtype = TEXT

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Ints | slice) -> Texts:
        """Return some rows; a row of -1 is absent."""
        if isinstance(rows, slice):
            return Texts(self.codes[rows], self.strings)
        return Texts(np.append(self.codes, -1)[rows], self.strings)  # the last row is absent

    def equal_codes(self) -> Ints:
        """Return a number for each row, equal where values are, -1 where they are absent."""
        return self.codes

    def order(self, *, is_descending: bool = False) -> npt.NDArray[Any]:
        """Return each row's place in order, the absent last."""
        ranks = np.empty(len(self.strings) + 1, np.int64)
        order = sorted(range(len(self.strings)), key=self.strings.__getitem__)
        ranks[np.array(order, np.int64)] = np.arange(len(order))
        ranks[-1] = len(self.strings)
        return ranks[self.codes]

    def tolist(self) -> list[Any]:
        """Return the values, ``None`` where they are absent."""
        values = (*self.strings, None)
        return [values[code] for code in self.codes.tolist()]

    def to_pandas(self) -> pd.api.extensions.ExtensionArray:
        """Return the column as a ``string`` array."""
        import pandas as pd

        distinct = pd.array(list(self.strings), dtype=TEXT)
        return distinct.take(self.codes, allow_fill=True)


@dataclass(frozen=True, slots=True)
class Numbers:
    """A column of integers, floats or truth values; ``absent`` flags rows without one."""

    data: npt.NDArray[Any]
    absent: Flags
    dtype: Dtype

    def __len__(self) -> int:
        return len(self.data)

    def take(self, rows: Ints | slice) -> Numbers:
        """Return some rows; a row of -1 is absent."""
        if isinstance(rows, slice):
            return Numbers(self.data[rows], self.absent[rows], self.dtype)
        if not len(self.data):
            return Numbers(np.zeros(len(rows), self.data.dtype), rows < 0, self.dtype)
        return Numbers(self.data[rows], self.absent[rows] | (rows < 0), self.dtype)

    def equal_codes(self) -> Ints:
        """Return a number for each row, equal where values are, -1 where they are absent."""
        codes: Ints = np.unique(self.data, return_inverse=True)[1].reshape(-1)
        return np.where(self.absent, -1, codes)

    def order(self, *, is_descending: bool = False) -> npt.NDArray[Any]:
        """Return each row's place in order, the absent last."""
        distinct, codes = np.unique(self.data, return_inverse=True)
        codes = codes.reshape(-1)
        return np.where(self.absent, len(distinct), -codes if is_descending else codes)

    def sum(self) -> Any:
        """Return the sum of the values that are there."""
        return self.data[~self.absent].sum()

    def tolist(self) -> list[Any]:
        """Return the values, ``None`` where they are absent."""
        values: list[Any] = self.data.tolist()
        for row in np.flatnonzero(self.absent).tolist():
            values[row] = None
        return values

    def to_pandas(self) -> pd.api.extensions.ExtensionArray:
        """Return the column as a masked array of pandas."""
        import pandas as pd

        kinds: Mapping[str, Any] = {INT: pd.arrays.IntegerArray, FLOAT: pd.arrays.FloatingArray}
        of_kind = kinds.get(self.dtype, pd.arrays.BooleanArray)
        made: pd.api.extensions.ExtensionArray = of_kind(self.data.copy(), self.absent.copy())
        return made


AnyColumn = Texts | Numbers
_Column = TypeVar("_Column", Texts, Numbers)


@dataclass(frozen=True, slots=True)
class Table:
    """Columns by name, all of one length."""

    by_name: Mapping[str, AnyColumn]
    attrs: dict[str, Any] = field(default_factory=lambda: {"schema_version": SCHEMA_VERSION})

    @classmethod
    def from_pandas(cls, frame: pd.DataFrame) -> Table:
        """Return a frame's columns, which have the dtypes of these."""
        named = {str(name): _of_pandas(column) for name, column in frame.items()}
        return cls(named, {str(name): value for name, value in frame.attrs.items()})

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.by_name)

    def __len__(self) -> int:
        return len(next(iter(self.by_name.values()), ()))

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def __getitem__(self, name: str) -> Any:
        """Return a column."""
        return self.by_name[name]

    def take(self, rows: Ints | Flags | slice) -> Table:
        """Return some rows, by their numbers or flags."""
        numbers: Any = rows
        if isinstance(rows, np.ndarray) and rows.dtype == np.bool_:
            numbers = np.flatnonzero(rows)
        taken = {name: column.take(numbers) for name, column in self.by_name.items()}
        return Table(taken, self.attrs)

    def head(self, rows: int) -> Table:
        """Return the first rows."""
        return self.take(slice(0, rows))

    def with_columns(self, columns: Mapping[str, AnyColumn]) -> Table:
        """Return the table with more columns, or others."""
        return Table({**self.by_name, **columns}, self.attrs)

    def without(self, *names: str) -> Table:
        """Return the table without some columns."""
        kept = {name: column for name, column in self.by_name.items() if name not in names}
        return Table(kept, self.attrs)

    def sorted_by(self, names: Sequence[str], descending: Iterable[str] = ()) -> Table:
        """Return the rows in order of these columns, absent values last; equal rows stay so."""
        keys = [self.by_name[name].order(is_descending=name in descending) for name in names]
        return self.take(np.lexsort(keys[::-1]))

    def longest_first(self, names: Iterable[str]) -> Table:
        """Return the rows by time, the longest first, then by these columns."""
        return self.sorted_by(["duration_ns", *names], ["duration_ns"])

    def groups(self, names: Sequence[str]) -> tuple[Ints, Ints]:
        """Number the rows by what is equal in these columns, in order of appearance.

        Returns:
            Each row's number, and each number's first row.
        """
        number = numbered([self.by_name[name].equal_codes() for name in names])
        firsts = first_rows(number)
        order = np.argsort(firsts, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return place[number], firsts[order]

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries, absent values as ``None``."""
        columns = [column.tolist() for column in self.by_name.values()]
        return [dict(zip(self.by_name, row, strict=True)) for row in zip(*columns, strict=True)]

    def to_pandas(self) -> pd.DataFrame:
        """Return the table as a pandas frame with nullable dtypes."""
        import pandas as pd

        frame = pd.DataFrame({name: column.to_pandas() for name, column in self.by_name.items()})
        frame.attrs.update(self.attrs)
        return frame


def numbers(values: npt.NDArray[Any] | np.ma.MaskedArray[Any, Any], dtype: Dtype) -> Numbers:
    """Return a column of numbers; masked ones are absent."""
    data = np.ascontiguousarray(np.ma.getdata(values), dtype=_OF_NUMPY[dtype])
    return Numbers(data, np.ma.getmaskarray(values).copy(), dtype)


def gather(values: Sequence[Any], codes: Codes | Ints | MaskedInts, dtype: Dtype) -> AnyColumn:
    """Return ``values[code]`` for each row; masked codes and -1 are absent."""
    rows = np.asarray(np.ma.filled(codes, -1), np.int64)
    if dtype != TEXT:
        known = [0 if value is None else value for value in values]
        absent = np.array([value is None or value != value for value in values], np.bool_)
        return Numbers(np.array(known, _OF_NUMPY[dtype]), absent, dtype).take(rows)
    texts = [None if value is None else str(value) for value in values]
    pool = {text: at for at, text in enumerate(dict.fromkeys(t for t in texts if t is not None))}
    own = np.array([-1 if text is None else pool[text] for text in texts] + [-1], np.int64)
    return Texts(own[rows], tuple(pool))


def concatenated(tables: Sequence[Table]) -> Table:
    """Return the rows of several tables; columns that one lacks are absent there."""
    dtypes = {name: column.dtype for table in tables for name, column in table.by_name.items()}
    return Table({name: _joined(name, dtype, tables) for name, dtype in dtypes.items()})


def _joined(name: str, dtype: Dtype, tables: Sequence[Table]) -> AnyColumn:
    parts = [
        table.by_name[name]
        if name in table
        else gather([None], np.zeros(len(table), np.int64), dtype)
        for table in tables
    ]
    if dtype != TEXT:
        data, absent = (
            np.concatenate([getattr(each, what) for each in parts]) for what in ("data", "absent")
        )
        return Numbers(data, absent, dtype)
    before = np.cumsum([0, *(len(each.strings) for each in parts if isinstance(each, Texts))])
    codes = [
        np.where(each.codes < 0, -1, each.codes + first)
        for each, first in zip(parts, before[:-1].tolist(), strict=True)
        if isinstance(each, Texts)
    ]
    strings = [text for each in parts if isinstance(each, Texts) for text in each.strings]
    return gather(strings, np.concatenate(codes), TEXT)


def first_known(column: _Column, group: Ints, size: int) -> _Column:
    """Return each group's first value that is there, absent where none is."""
    rows = np.flatnonzero(column.equal_codes() >= 0)
    firsts = np.full(size, -1, np.int64)
    firsts[group[rows[::-1]]] = rows[::-1]  # of several the last one stays
    return column.take(firsts)


def summed(column: Numbers, group: Ints, size: int) -> Numbers:
    """Return the sum of each group; unknown in all rows is unknown in the sum."""
    rows = np.flatnonzero(~column.absent)
    known = np.bincount(group[rows], minlength=size)
    sums = sum_by(group[rows], column.data[rows], size)
    if column.dtype == FLOAT:  # added exactly, and rounded once
        parts: list[list[float]] = [[] for _ in range(size)]
        for own, value in zip(group[rows].tolist(), column.data[rows].tolist(), strict=True):
            parts[own].append(value)
        sums = np.array([*map(math.fsum, parts)], np.float64)
    return Numbers(sums, known == 0, column.dtype)


def _of_pandas(column: pd.Series) -> AnyColumn:
    kind = str(column.dtype).lower()
    dtypes: tuple[Dtype, ...] = (INT, FLOAT, BOOL)
    dtype = next((each for each in dtypes if kind in each.lower()), None)
    if dtype is None:
        codes, distinct = column.factorize()
        return Texts(codes.astype(np.int64), tuple(map(str, distinct)))
    data = column.to_numpy(_OF_NUMPY[dtype], na_value=_OF_NUMPY[dtype](0))
    return Numbers(data, column.isna().to_numpy(np.bool_), dtype)
