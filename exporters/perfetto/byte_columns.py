"""Owns columns of encoded bytes: what a million rows hold is encoded together, not one by one.

A column is a matrix of bytes, a row each, so all numbers of a column have one width: the narrowest
that the largest fits in. A varint may have leading groups of zeros; Perfetto's own writer has them
in the lengths of messages (``WriteRedundantVarInt`` in ``protozero/proto_utils.h``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from profiler_ext.exporters.perfetto.fields import varint
from profiler_ext.records import Codes, Ints

Matrix = npt.NDArray[np.uint8]
_SEVEN_BITS = 7
_MOST_NUMBERS = 2**62


def varints(values: Ints) -> Matrix:
    """Return integers of 64 bits, with or without a sign, as varints of one width."""
    rest = values.astype(np.int64, copy=False).view(np.uint64)
    widest = max(int(rest.max()).bit_length(), 1) if len(rest) else 1
    matrix = np.empty((len(rest), -(-widest // _SEVEN_BITS)), np.uint8)
    for place in range(matrix.shape[1]):
        matrix[:, place] = rest.astype(np.uint8) | 128
        rest = rest >> np.uint64(_SEVEN_BITS)
    matrix[:, -1] &= 127
    return matrix


def doubles(values: npt.NDArray[np.float64]) -> Matrix:
    """Return floats, encoded."""
    return _eight_bytes(values.astype("<f8"))


def fixed_integers(values: Ints) -> Matrix:
    """Return integers, encoded in 8 bytes each."""
    return _eight_bytes(values.astype("<i8"))


def _eight_bytes(values: npt.NDArray[np.generic]) -> Matrix:
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), 8)


def hstack(rows: int, *parts: bytes | Matrix) -> Matrix:
    """Return columns beside each other.

    Args:
        rows: how many rows they have.
        *parts: the columns; bytes are the same in every row.
    """
    columns = [np.frombuffer(each, np.uint8) if isinstance(each, bytes) else each for each in parts]
    whole = np.empty((rows, sum(each.shape[-1] for each in columns)), np.uint8)
    end = 0
    for each in columns:
        begin, end = end, end + each.shape[-1]
        whole[:, begin:end] = each
    return whole


def row_bytes(matrix: Matrix) -> list[bytes]:
    """Return the rows of a matrix, which has a column at least."""
    texts: list[bytes] = np.ascontiguousarray(matrix).view(f"V{matrix.shape[1]}").ravel().tolist()
    return texts


class ByteDictionary:
    """A few texts, of which each row has one."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        """Take the texts."""
        self.texts = np.empty(len(texts), np.object_)
        self.texts[:] = texts
        self._lengths = np.fromiter(map(len, texts), np.int64, len(texts))

    def chosen(self, codes: Codes | Ints) -> tuple[list[bytes], Ints]:
        """Return for each row one of them, and how long it is.

        Args:
            codes: which of them each row has.
        """
        return self.texts[codes].tolist(), self._lengths[codes]


class Cells(NamedTuple):
    """A field of rows: each row has some cells, often one or none, of one width.

    Attributes:
        matrix: the cells, row after row.
        bounds: the first cell of each row, and where the last ends.
        key: stands before the cells of a row, and before their length; ``b""`` where nothing does.
        name: stands between that and the cells.
    """

    matrix: Matrix
    bounds: Ints
    key: bytes = b""
    name: bytes = b""

    def of(self, rows: Ints, count: int) -> Iterator[bytes | Matrix]:
        """Yield the columns of rows that have equally many cells.

        Args:
            rows: the rows, in order.
            count: how many cells each has, at least one.
        """
        if self.key:
            length = len(self.name) + count * self.matrix.shape[1]
            yield self.key + varint(length) + self.name
        cells = self.matrix
        if len(cells) > count * len(rows):
            cells = cells[self.bounds[rows, None] + np.arange(count)]
        yield cells.reshape(len(rows), -1)


def offsets_of(counts: Ints | npt.NDArray[np.bool_]) -> Ints:
    """Return where the cells of each row begin, and where the last end.

    Args:
        counts: how many each has.
    """
    return np.concatenate(([0], np.cumsum(counts)))


def encode_rows(fields: Sequence[Cells], after: Matrix) -> tuple[list[bytes], Ints]:
    """Return rows of fields, and how long the fields of each are.

    Rows of one shape, which have equally many cells of every field, are laid out together.

    Args:
        fields: the fields.
        after: what stands behind them, of each row.
    """
    counts = [np.diff(each.bounds) for each in fields]
    shape = alike(counts, len(after))
    order = np.argsort(shape, kind="stable")
    shapes = np.split(order, np.flatnonzero(np.diff(shape[order])) + 1)
    texts = np.empty(len(after), np.object_)
    lengths = np.zeros(len(after), np.int64)
    for rows in shapes:
        with_counts = zip(fields, (int(each[rows[0]]) for each in counts), strict=True)
        parts = [part for each, count in with_counts if count for part in each.of(rows, count)]
        whole = hstack(len(rows), *parts, after if len(shapes) == 1 else after[rows])
        texts[rows] = row_bytes(whole)
        lengths[rows] = whole.shape[1] - after.shape[1]
    return texts.tolist(), lengths


def alike(columns: Sequence[Codes | Ints], rows: int) -> Ints:
    """Return a number for each row, the same for those that are alike in all columns.

    Args:
        columns: what each row has, no number below zero.
        rows: how many rows there are.
    """
    numbers, most = np.zeros(rows, np.int64), 1
    for each in columns:
        more = int(each.max(initial=0)) + 1
        if most * more > _MOST_NUMBERS:
            known, numbers = np.unique(numbers, return_inverse=True)
            most = len(known)
        numbers, most = numbers * more + each, most * more
    return numbers
