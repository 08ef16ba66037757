"""Owns columns of encoded bytes: what a million rows hold is encoded together, not one by one.

numpy encodes the numbers of all rows at once into a matrix, whose rows are cut to their lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from profiler_ext.records import Codes, Ints

Matrix = npt.NDArray[np.uint8]
_SEVEN_BITS = 7


class Pieces(NamedTuple):
    """A piece of each row's bytes.

    Attributes:
        texts: the bytes.
        lengths: how many they are.
    """

    texts: list[bytes]
    lengths: Ints


class Varying(NamedTuple):
    """Bytes of different lengths, one row each, zeros behind."""

    matrix: Matrix
    lengths: Ints


def varints(values: Ints) -> Varying:
    """Return integers of 64 bits, with or without a sign, as ``fields.varint`` encodes one."""
    rest = values.astype(np.int64, copy=False).view(np.uint64)
    widest = max(int(rest.max()).bit_length(), 1) if len(rest) else 1
    matrix = np.empty((len(rest), -(-widest // _SEVEN_BITS)), np.uint8)
    lengths = np.ones(len(rest), np.int64)
    for place in range(matrix.shape[1]):
        low = rest.astype(np.uint8) & 127
        rest = rest >> np.uint64(_SEVEN_BITS)
        more = rest > 0
        matrix[:, place] = low | more.view(np.uint8) << 7
        lengths += more
    return Varying(matrix, lengths)


def doubles(values: npt.NDArray[np.float64]) -> Varying:
    """Return floats, encoded."""
    return _of_eight(values.astype("<f8"))


def fixed_integers(values: Ints) -> Varying:
    """Return integers, encoded in 8 bytes each."""
    return _of_eight(values.astype("<i8"))


def _of_eight(values: npt.NDArray[np.generic]) -> Varying:
    matrix = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), 8)
    return Varying(matrix, np.full(len(values), 8))


def behind(head: bytes, content: Varying) -> Varying:
    """Return the content of every row behind the same bytes.

    Args:
        head: the bytes.
        content: the content.
    """
    rows, width = content.matrix.shape
    matrix = np.empty((rows, len(head) + width), np.uint8)
    matrix[:, : len(head)] = np.frombuffer(head, np.uint8)
    matrix[:, len(head) :] = content.matrix
    return Varying(matrix, content.lengths + len(head))


def cut(column: Varying) -> Pieces:
    """Return rows cut to their lengths; one of no length must hold zeros only."""
    width = column.matrix.shape[1]
    whole = np.ascontiguousarray(column.matrix)
    if not len(whole) or (column.lengths == width).all():
        return Pieces(whole.view(f"V{width}").ravel().tolist(), column.lengths)
    # numpy leaves off the zeros at the end of a text, also those that are a number's own.
    texts: list[bytes] = whole.view(f"S{width}").ravel().tolist()
    last = np.take_along_axis(whole, np.maximum(column.lengths - 1, 0)[:, None], 1)[:, 0]
    for row in np.flatnonzero((last == 0) & (column.lengths > 0)).tolist():
        texts[row] = whole[row, : column.lengths[row]].tobytes()
    return Pieces(texts, column.lengths)


def side_by_side(columns: Sequence[Varying]) -> list[Pieces]:
    """Return columns beside each other in as few pieces as may be.

    A piece ends with the column whose rows begin to differ in length.

    Args:
        columns: the columns.
    """
    pieces: list[Pieces] = []
    open_ones: list[Matrix] = []
    for matrix, lengths in columns:
        known = sum(each.shape[1] for each in open_ones)
        open_ones.append(matrix)
        if len(lengths) and (lengths != matrix.shape[1]).any():
            pieces.append(cut(Varying(np.hstack(open_ones), lengths + known)))
            open_ones = []
    if open_ones:
        whole = np.hstack(open_ones)
        pieces.append(cut(Varying(whole, np.full(len(whole), whole.shape[1]))))
    return pieces


class Few:
    """A few texts, of which each row has one."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        """Take the texts."""
        self.texts = texts
        self._lengths = np.fromiter(map(len, texts), np.int64, len(texts))

    def chosen(self, codes: Codes | Ints) -> Pieces:
        """Return for each row one of them.

        Args:
            codes: which of them each row has.
        """
        return Pieces([self.texts[code] for code in codes.tolist()], self._lengths[codes])


def repeated(text: bytes, rows: int) -> Pieces:
    """Return for each row the same text.

    Args:
        text: the text.
        rows: how many.
    """
    return Pieces([text] * rows, np.full(rows, len(text)))


def grouped(pieces: Sequence[Pieces], bounds: Ints) -> Pieces:
    """Return rows joined: those from one bound to the next become one.

    Args:
        pieces: what rows hold, the pieces of a row one after the other.
        bounds: the first row of each group, and where the last ends.
    """
    lengths = sum((each.lengths for each in pieces), np.zeros(1, np.int64))
    ends = np.concatenate(([0], np.cumsum(lengths)))[bounds]
    whole = joined(pieces)
    texts = [whole[begin:end] for begin, end in pairwise(ends.tolist())]
    return Pieces(texts, np.diff(ends))


def joined(pieces: Sequence[Pieces]) -> bytes:
    """Return all rows one after the other.

    Args:
        pieces: what rows hold, the pieces of a row one after the other.
    """
    rows = zip(*(each.texts for each in pieces), strict=True)
    return b"".join(chain.from_iterable(rows))
