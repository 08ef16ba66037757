"""Protobuf fields as bytes, encoded a column at a time, equal rows once.

``protobuf`` makes an object per nested message; here a field is just bytes. Field numbers and types
come from the library's descriptors.

A column is a byte matrix, a row each, so its numbers share the width of the largest. A varint may
have redundant zero groups; Perfetto's own writer emits them in message lengths
(``WriteRedundantVarInt`` in ``protozero/proto_utils.h``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from profiler_ext.records.events import Codes, Ints, first_rows, numbered

_BITS = 14
_LOW = (1 << _BITS) - 1
# Most numbers are small; large ones are encoded 14 bits at a time.
_LAST = [bytes((n,)) if n < 128 else bytes((n & 127 | 128, n >> 7)) for n in range(_LOW + 1)]
_MORE_FOLLOW = [bytes((n & 127 | 128, n >> 7 | 128)) for n in range(_LOW + 1)]
double: Callable[[float], bytes] = struct.Struct("<d").pack
fixed: Callable[[int], bytes] = struct.Struct("<Q").pack
Matrix = npt.NDArray[np.uint8]
_SEVEN_BITS = 7


def key_of(message: Any, name: str) -> bytes:
    """Return a field's tag: number and wire type."""
    field = message.DESCRIPTOR.fields_by_name[name]
    is_wide = field.type in (field.TYPE_DOUBLE, field.TYPE_FIXED64)
    wire_type = 1 if is_wide else 2 if field.type == field.TYPE_MESSAGE else 0
    return varint(field.number << 3 | wire_type)


def varint(number: int) -> bytes:
    """Encode a 64-bit integer, signed or unsigned.

    Raises:
        ValueError: It has more bits.
    """
    if 0 <= number <= _LOW:
        return _LAST[number]
    if not -(2**63) <= number < 2**64:
        raise ValueError(f"{number} does not fit into 64 bits")
    bits = number & 2**64 - 1
    return _MORE_FOLLOW[bits & _LOW] + varint(bits >> _BITS)


def sized(key: bytes, content: bytes) -> bytes:
    """Encode a length-delimited field."""
    return key + varint(len(content)) + content


def varints(values: Ints) -> Matrix:
    """Return 64-bit integers, signed or unsigned, as varints of one width."""
    rest = values.astype(np.int64, copy=False).view(np.uint64)
    widest = max(int(rest.max()).bit_length(), 1) if len(rest) else 1
    matrix = np.empty((len(rest), -(-widest // _SEVEN_BITS)), np.uint8)
    for place in range(matrix.shape[1]):
        matrix[:, place] = rest.astype(np.uint8) | 128
        rest = rest >> np.uint64(_SEVEN_BITS)
    matrix[:, -1] &= 127
    return matrix


def doubles(values: npt.NDArray[np.float64]) -> Matrix:
    """Return floats in 8 bytes each."""
    return _eight_bytes(values.astype("<f8"))


def fixed_integers(values: Ints) -> Matrix:
    """Return integers in 8 bytes each."""
    return _eight_bytes(values.astype("<i8"))


def _eight_bytes(values: npt.NDArray[np.generic]) -> Matrix:
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), 8)


def hstack(rows: int, *parts: bytes | Matrix) -> Matrix:
    """Return columns side by side."""
    columns = [np.frombuffer(each, np.uint8) if isinstance(each, bytes) else each for each in parts]
    whole = np.empty((rows, sum(each.shape[-1] for each in columns)), np.uint8)
    end = 0
    for each in columns:
        begin, end = end, end + each.shape[-1]
        whole[:, begin:end] = each
    return whole


def row_bytes(matrix: Matrix) -> list[bytes]:
    """Return the rows of a matrix of at least one column."""
    texts: list[bytes] = np.ascontiguousarray(matrix).view(f"V{matrix.shape[1]}").ravel().tolist()
    return texts


class ByteDictionary:
    """A few byte strings, one of which each row has."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.texts = np.empty(len(texts), np.object_)
        self.texts[:] = texts
        self._lengths = np.fromiter(map(len, texts), np.int64, len(texts))

    def chosen(self, codes: Codes | Ints) -> tuple[list[bytes], Ints]:
        """Return the bytes of each row, and their length."""
        return self.texts[codes].tolist(), self._lengths[codes]


class Cells(NamedTuple):
    """A field of rows: any number of cells a row, all of one width."""

    matrix: Matrix  # the cells, row after row
    bounds: Ints  # start of each row's cells, and the end of the last
    key: bytes = b""  # precedes a row's length and cells
    name: bytes = b""  # stands between length and cells

    def of(self, rows: Ints, count: int) -> Iterator[bytes | Matrix]:
        """Yield the columns of rows with equally many cells."""
        if self.key:
            length = len(self.name) + count * self.matrix.shape[1]
            yield self.key + varint(length) + self.name
        cells = self.matrix
        if len(cells) > count * len(rows):
            cells = cells[self.bounds[rows, None] + np.arange(count)]
        yield cells.reshape(len(rows), -1)


def offsets_of(counts: Ints | npt.NDArray[np.bool_]) -> Ints:
    """Return the start of each row's cells, and the end of the last."""
    return np.concatenate(([0], np.cumsum(counts)))


def encode_rows(fields: Sequence[Cells], after: Matrix) -> tuple[list[bytes], Ints]:
    """Return encoded rows, and the length of their fields.

    Rows with equally many cells of every field are laid out together.
    """
    counts = [np.diff(each.bounds) for each in fields]
    shape = numbered([np.zeros(len(after), np.int64), *counts])
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


class _Numbers(dict[Hashable, int]):
    """Numbers keys by first appearance."""

    def __missing__(self, key: Hashable) -> int:
        self[key] = number = len(self)
        return number


class Shared:
    """What rows with the same key share, encoded once."""

    def __init__(
        self,
        keys: Iterable[Hashable],
        encode: Callable[[int], bytes],
        codes: Sequence[Codes | Ints] = (),
    ) -> None:
        """Encode; rows of one key must also be equal in ``codes``."""
        numbers = np.fromiter(map(_Numbers().__getitem__, keys), np.int64)
        self.of_row = numbered([*codes, numbers])  # index into ``constants``
        self.constants = ByteDictionary([encode(row) for row in first_rows(self.of_row).tolist()])


def concatenated(parts_shared: Sequence[Shared]) -> tuple[ByteDictionary, Ints]:
    """Return what rows share, concatenated: few distinct values again."""
    of_row = numbered([each.of_row for each in parts_shared])
    firsts = first_rows(of_row)
    parts = [each.constants.chosen(each.of_row[firsts])[0] for each in parts_shared]
    return ByteDictionary([b"".join(each) for each in zip(*parts, strict=True)]), of_row
