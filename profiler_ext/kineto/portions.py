"""Owns the portions of a long file: where one ends, how it is read, and how it is handed over.

Each is read by a process of its own. That a portion begins at an event is proven by the one before
it: if that decodes as a list of events, what stands behind its last comma is the next one.
"""

from __future__ import annotations

from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from profiler_ext.kineto.blocks import Reading, FastPathError
from profiler_ext.kineto.checking import check_counts
from profiler_ext.kineto.decoding import Texts
from profiler_ext.kineto.event_blocks import BLOCK_BYTES, last_block, next_cut
from profiler_ext.kineto.source import Text
from profiler_ext.records.known_types import known

_LENGTH_BYTES = 8


class Portion(NamedTuple):
    """Where the first event of a portion begins, and where its last one ends."""

    begin: int
    end: int


class _Head(msgspec.Struct):
    """What is handed over before the columns: all but these, and their types and lengths."""

    texts: Texts
    types: list[str]
    rows: list[int]
    events: int
    braces: int


def portions(text: Text, begin: int, count: int) -> tuple[list[Portion], int]:
    """Cut the events of a file into portions, all but the last few.

    Args:
        text: the file.
        begin: where its first event begins, or blanks before it.
        count: how many portions there shall be; fewer where no event ends at the right place.

    Returns:
        The portions, of about the same length; and where the last few events begin.
    """
    bytes_each = (len(text) - 2 * BLOCK_BYTES - begin) // count
    cut_portions: list[Portion] = []
    remaining = begin
    for place in (begin + number * bytes_each for number in range(1, count + 1)):
        # Within a portion that was cut off nothing is cut again, nor before the first event.
        if place >= remaining and (cut := next_cut(text, place)) is not None:
            end, behind = cut
            cut_portions.append(Portion(remaining, end))
            remaining = behind
    return cut_portions, remaining


def add_portion(reading: Reading, text: Text, portion: Portion) -> None:
    """Read the events of a portion.

    Args:
        reading: what they are added to.
        text: the file.
        portion: the portion.

    Raises:
        ValueError: It is odd, or no list of events.
    """
    begin = reading.add_blocks(text, *portion)
    reading.add(last_block(begin, text[begin : portion.end]))


def send_portion(reading: Reading, out: BinaryIO) -> None:
    """Write what was read of a portion, for :func:`receive_portion` of another process.

    Args:
        reading: what was read.
        out: where to.
    """
    texts, columns = reading.columns.columns()
    columns += [reading.starts.finished(), reading.ends.finished()]
    types, rows = [column.dtype.str for column in columns], [*map(len, columns)]
    head = msgspec.msgpack.encode(_Head(texts, types, rows, reading.events, reading.braces))
    out.write(len(head).to_bytes(_LENGTH_BYTES, "little") + head)
    for column in columns:
        out.write(column.view(np.uint8).data)
    out.flush()


def receive_portion(reading: Reading, pipe: BinaryIO) -> None:
    """Add what another process read of the next portion.

    Args:
        reading: what it is added to.
        handed: what :func:`send_portion` wrote there.

    Raises:
        ValueError: It is not whole, or both together go past a limit.
    """
    length = int.from_bytes(_read(pipe, _LENGTH_BYTES), "little")
    head = msgspec.msgpack.decode(_read(pipe, length), type=known(_Head))
    check_counts(reading.braces + head.braces, reading.events + head.events)
    *types, of_starts, of_ends = zip(head.types, head.rows, strict=True)
    columns = (_column(pipe, *each) for each in types)
    reading.columns.add_columns(reading.events, head.texts, columns)
    reading.starts.add(_column(pipe, *of_starts))
    reading.ends.add(_column(pipe, *of_ends))
    reading.events += head.events
    reading.braces += head.braces


def _column(pipe: BinaryIO, type: str, rows: int) -> npt.NDArray[Any]:
    column = np.empty(rows, type)
    _fill(pipe, column.view(np.uint8).data)
    return column


def _fill(pipe: BinaryIO, buffer: memoryview) -> None:
    while len(buffer):
        if not (count := pipe.readinto(buffer)):  # type: ignore[attr-defined]
            raise FastPathError("a portion was not handed over as a whole")
        buffer = buffer[count:]


def _read(pipe: BinaryIO, count: int) -> bytearray:
    buffer = bytearray(count)
    _fill(pipe, memoryview(buffer))
    return buffer
