"""Owns the portions of a long file: where one ends, how it is read, and how it is handed over.

Each is read by a process of its own. That a portion begins at an event is proven by the one before
it: if that decodes as a list of events, what stands behind its last comma is the next one.
"""

from __future__ import annotations

from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from profiler_ext.kineto.blocks import Reading, UnprovenError
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
    found: list[Portion] = []
    rest = begin
    for place in (begin + number * bytes_each for number in range(1, count + 1)):
        # Within a portion that was cut off nothing is cut again, nor before the first event.
        if place >= rest and (cut := next_cut(text, place)) is not None:
            end, behind = cut
            found.append(Portion(rest, end))
            rest = behind
    return found, rest


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


def hand_over(reading: Reading, out: BinaryIO) -> None:
    """Write what was read of a portion, for :func:`take_over` of another process.

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


def take_over(reading: Reading, handed: BinaryIO) -> None:
    """Add what another process read of the next portion.

    Args:
        reading: what it is added to.
        handed: what :func:`hand_over` wrote there.

    Raises:
        ValueError: It is not whole, or both together go past a limit.
    """
    length = int.from_bytes(_read(handed, _LENGTH_BYTES), "little")
    head = msgspec.msgpack.decode(_read(handed, length), type=known(_Head))
    check_counts(reading.braces + head.braces, reading.events + head.events)
    *types, of_starts, of_ends = zip(head.types, head.rows, strict=True)
    columns = (_column(handed, *each) for each in types)
    reading.columns.add_columns(reading.events, head.texts, columns)
    reading.starts.add(_column(handed, *of_starts))
    reading.ends.add(_column(handed, *of_ends))
    reading.events += head.events
    reading.braces += head.braces


def _column(handed: BinaryIO, type: str, rows: int) -> npt.NDArray[Any]:
    column = np.empty(rows, type)
    _fill(handed, column.view(np.uint8).data)
    return column


def _fill(handed: BinaryIO, room: memoryview) -> None:
    while len(room):
        if not (count := handed.readinto(room)):  # type: ignore[attr-defined]
            raise UnprovenError("a portion was not handed over as a whole")
        room = room[count:]


def _read(handed: BinaryIO, count: int) -> bytearray:
    room = bytearray(count)
    _fill(handed, memoryview(room))
    return room
