"""Owns what slices say each for itself: columns of arguments, many rows encoded together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from profiler_ext.exporters.perfetto.byte_columns import (
    Cells,
    Matrix,
    hstack,
    offsets_of,
    doubles,
    varints,
)
from profiler_ext.exporters.perfetto.fields import varint
from profiler_ext.exporters.perfetto.texts import (
    ANNOTATION,
    ARGUMENT_NAMES,
    DOUBLE,
    ENTRY,
    INT,
    KEY,
    Texts,
)
from profiler_ext.records import Codes, Ints, MaskedInts

MaskedFloats = np.ma.MaskedArray[Any, np.dtype[np.float64]]


class ColumnArgument(Protocol):
    """What the slices of some rows say besides what they share."""

    def cells(self, texts: Texts, rows: Ints) -> Cells | None:
        """Return what rows say, encoded; ``None`` where none says anything.

        Args:
            texts: numbers the texts.
            rows: the rows.
        """


@dataclass(frozen=True, slots=True)
class IntArgument:
    """Integers; a masked one is not said."""

    name: str
    values: Ints | MaskedInts

    def cells(self, texts: Texts, rows: Ints) -> Cells | None:
        """See :class:`ColumnArgument`."""
        values, bounds = _present(self.values, rows)
        return _annotations(texts.named(self.name) + INT, varints(values), bounds)


@dataclass(frozen=True, slots=True)
class FloatArgument:
    """Floats; a masked one is not said."""

    name: str
    values: MaskedFloats

    def cells(self, texts: Texts, rows: Ints) -> Cells | None:
        """See :class:`ColumnArgument`."""
        values, bounds = _present(self.values, rows)
        return _annotations(texts.named(self.name) + DOUBLE, doubles(values), bounds)


NumberArgument = IntArgument | FloatArgument


@dataclass(frozen=True, slots=True)
class DictArgument:
    """A dictionary of integers: the parts that each row has.

    Attributes:
        name: name of the argument.
        keys: what parts are called.
        firsts: where the parts of each row begin, and where the last end.
        key: which of the keys each part has.
        values: the parts.
    """

    name: str
    keys: Sequence[str]
    firsts: Ints
    key: Codes | Ints
    values: Ints

    def cells(self, texts: Texts, rows: Ints) -> Cells | None:
        """See :class:`ColumnArgument`."""
        bounds = offsets_of(self.firsts[rows + 1] - self.firsts[rows])
        if not bounds[-1]:
            return None
        at = np.repeat(self.firsts[rows] - bounds[:-1], np.diff(bounds)) + np.arange(bounds[-1])
        return Cells(self._entries(texts, at), bounds, ANNOTATION, texts.named(self.name))

    def _entries(self, texts: Texts, at: Ints) -> Matrix:
        keys, numbers = self.key[at], np.zeros(len(self.keys), np.int64)
        used = np.zeros(len(self.keys), np.bool_)
        used[keys] = True
        for key in np.flatnonzero(used).tolist():
            numbers[key] = texts.number(ARGUMENT_NAMES, self.keys[key])
        names, values = varints(numbers[keys]), varints(self.values[at])
        size = len(KEY) + names.shape[1] + len(INT) + values.shape[1]
        return hstack(len(at), ENTRY + varint(size) + KEY, names, INT, values)


def _present(column: Any, rows: Ints) -> tuple[npt.NDArray[Any], Ints]:
    """Return the values of the rows that are not masked, and where those of each row stand."""
    values, mask = np.ma.getdata(column)[rows], np.ma.getmask(column)
    if mask is np.ma.nomask or not (absent := mask[rows]).any():
        return values, np.arange(len(rows) + 1)
    return values[~absent], offsets_of(~absent)


def _annotations(name: bytes, values: Matrix, bounds: Ints) -> Cells | None:
    return Cells(values, bounds, ANNOTATION, name) if len(values) else None
