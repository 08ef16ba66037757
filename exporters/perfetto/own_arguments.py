"""Owns what slices say each for itself: columns of arguments, many rows encoded together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from profiler_ext.exporters.perfetto.byte_columns import (
    Few,
    Pieces,
    Varying,
    behind,
    cut,
    doubles,
    grouped,
    varints,
)
from profiler_ext.exporters.perfetto.fields import sized, varint
from profiler_ext.exporters.perfetto.texts import ANNOTATION, DOUBLE, ENTRY, INT, Texts
from profiler_ext.records import Codes, Interned, Ints, MaskedInts

MaskedFloats = np.ma.MaskedArray[Any, np.dtype[np.float64]]


class OwnArgument(Protocol):
    """What the slices of some rows say besides what they share, under one name or several."""

    def encoded(self, texts: Texts, rows: Ints) -> Pieces | None:
        """Return what rows say, encoded, a piece for each; ``None`` where none says anything.

        Args:
            texts: numbers the texts.
            rows: the rows.
        """


@dataclass(frozen=True, slots=True)
class Whole:
    """Integers; a masked one is not said."""

    name: str
    values: Ints | MaskedInts

    def encoded(self, texts: Texts, rows: Ints) -> Pieces | None:
        """See :class:`OwnArgument`."""
        values, absent = np.ma.getdata(self.values)[rows], _absent(self.values, rows)
        if absent.all():
            return None
        return _annotations(texts.named(self.name) + INT, varints(values), absent)


@dataclass(frozen=True, slots=True)
class Real:
    """Floats; a masked one is not said."""

    name: str
    values: MaskedFloats

    def encoded(self, texts: Texts, rows: Ints) -> Pieces | None:
        """See :class:`OwnArgument`."""
        values, absent = np.ma.getdata(self.values)[rows], _absent(self.values, rows)
        if absent.all():
            return None
        return _annotations(texts.named(self.name) + DOUBLE, doubles(values), absent)


@dataclass(frozen=True, slots=True)
class Word:
    """Texts of which there are few; an empty one is not said."""

    name: str
    values: Interned

    def encoded(self, texts: Texts, rows: Ints) -> Pieces | None:
        """See :class:`OwnArgument`."""
        codes = self.values.codes[rows]
        told = [b""] * len(self.values.strings)
        for code in np.unique(codes).tolist():
            if text := self.values.strings[code]:
                told[code] = texts.annotated({self.name: text})
        return Few(told).chosen(codes) if any(told) else None


Named = Whole | Real | Word


@dataclass(frozen=True, slots=True)
class Encoded:
    """Arguments that are encoded already, and of which there are few."""

    told: Few
    codes: Codes | Ints

    def encoded(self, texts: Texts, rows: Ints) -> Pieces | None:
        """See :class:`OwnArgument`."""
        return self.told.chosen(self.codes[rows])


@dataclass(frozen=True, slots=True)
class Parts:
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

    def encoded(self, texts: Texts, rows: Ints) -> Pieces | None:
        """See :class:`OwnArgument`."""
        counts = self.firsts[rows + 1] - self.firsts[rows]
        if not counts.any():
            return None
        bounds = np.concatenate(([0], np.cumsum(counts)))
        at = np.repeat(self.firsts[rows] - bounds[:-1], counts) + np.arange(bounds[-1])
        parts = grouped(self._entries(texts, at), bounds)
        head = ANNOTATION, texts.named(self.name)
        texts_of_rows = [sized(head[0], head[1] + part) if part else b"" for part in parts.texts]
        return Pieces(texts_of_rows, np.fromiter(map(len, texts_of_rows), np.int64, len(rows)))

    def _entries(self, texts: Texts, at: Ints) -> list[Pieces]:
        keys, named = self.key[at], [b""] * len(self.keys)
        for key in np.unique(keys).tolist():
            named[key] = texts.named(self.keys[key]) + INT
        names, numbers = Few(named).chosen(keys), cut(varints(self.values[at]))
        sizes = names.lengths + numbers.lengths
        heads = [ENTRY + varint(size) for size in range(int(sizes.max()) + 1)]
        return [Few(heads).chosen(sizes), names, numbers]


def _absent(values: Ints | MaskedInts | MaskedFloats, rows: Ints) -> Any:
    return np.ma.getmaskarray(values[rows])


def _annotations(before: bytes, content: Varying, absent: Any) -> Pieces:
    """Encode numbers as annotations: so short that one byte tells the length of each."""
    column = behind(ANNOTATION + b"\0" + before, content)
    column.matrix[:, len(ANNOTATION)] = len(before) + content.lengths
    column.matrix[absent] = 0
    column.lengths[absent] = 0
    return cut(column)
