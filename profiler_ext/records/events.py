"""The trace as columns: one row for each complete event, strings interned.

A million events is an ordinary trace, so events are numpy arrays, not objects. Times are integer
nanoseconds on the trace's own clock; add ``Trace.base_ns`` for the wall clock. A missing integer is
masked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, overload

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Column = npt.NDArray[Any]  # whole numbers or flags, one a row
_MAX_SPREAD = 4  # values that span this multiple of their number are sorted
Codes = npt.NDArray[np.int32]
MaskedInts = np.ma.MaskedArray[Any, np.dtype[np.int64]]


def ranks(column: Column) -> tuple[Ints, Ints]:
    """Return the distinct values in order, and for each row which of them it has."""
    if not len(column):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    minimum, maximum = int(column.min()), int(column.max())
    if maximum - minimum >= _MAX_SPREAD * len(column):
        distinct, own = np.unique(column, return_inverse=True)
        return distinct.astype(np.int64, copy=False), own.reshape(-1)
    places = np.subtract(column, minimum, dtype=np.int64)
    is_there = np.zeros(maximum - minimum + 1, np.bool_)
    is_there[places] = True
    return np.flatnonzero(is_there) + minimum, (np.cumsum(is_there) - 1)[places]


def numbered(columns: Sequence[Column]) -> Ints:
    """Number rows, equal where all columns are; numbers follow the order of the columns."""
    # Most columns hold few, close values. They are counted: sorting a column of millions takes ten
    # times as long.
    numbers: Ints = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        known, own = ranks(column)
        numbers = ranks(numbers * len(known) + own)[1]
    return numbers


def first_rows(numbers: Ints) -> Ints:
    """Return the first row of each number from 0 to the largest."""
    firsts = np.zeros(int(numbers.max(initial=-1)) + 1, np.int64)
    firsts[numbers[::-1]] = np.arange(len(numbers))[::-1]  # of several the last one stays
    return firsts


def sorted_distinct(values: Ints) -> Ints:
    """Return the distinct values, in order."""
    # The input is sorted but for a few runs, which a stable sort merges; numpy.unique would build a
    # hash table, which takes ten times as long.
    values = np.sort(values, kind="stable")
    result: Ints = values[np.append(True, values[1:] != values[:-1])[: len(values)]]
    return result


@dataclass(frozen=True, slots=True)
class Interned:
    """A column of strings: ``strings[codes[row]]``; the code of a masked row is not used."""

    codes: Codes
    strings: tuple[str, ...]

    @overload
    def __getitem__(self, row: int) -> str: ...

    @overload
    def __getitem__(self, row: npt.NDArray[np.bool_]) -> Interned: ...

    def __getitem__(self, row: int | npt.NDArray[np.bool_]) -> str | Interned:
        """Return the string of one row, or a column of those that are flagged."""
        if not isinstance(row, np.ndarray):
            return self.strings[int(self.codes[row])]
        known, codes = ranks(self.codes[row])
        strings = tuple(self.strings[code] if code >= 0 else "" for code in known.tolist())
        return Interned(codes.astype(np.int32), strings)

    def __len__(self) -> int:
        return len(self.codes)

    def where(self, *wanted: str) -> npt.NDArray[np.bool_]:
        """Return a boolean column: rows whose string is one of ``wanted``."""
        return np.isin(self.codes, [c for c, s in enumerate(self.strings) if s in wanted])


def flag_rows(column: Interned, predicate: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
    """Flag the rows whose string passes; each distinct string is tested once."""
    passes = np.array([predicate(text) for text in column.strings], dtype=np.bool_)
    return passes.take(column.codes) if passes.any() else np.zeros(len(column), dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Thread:
    """A track of the trace: a CPU thread, or a stream (then ``pid`` is the device)."""

    pid: int | str
    tid: int | str


@dataclass(frozen=True, slots=True)
class Events:
    """The complete (``ph == "X"``) events, in the order of the file."""

    position: Ints  # index in the file's ``traceEvents``
    name: Interned
    category: Interned  # Kineto's category, or ``""``
    thread: Codes  # index into ``threads``
    threads: tuple[Thread, ...]
    start_ns: Ints
    duration_ns: Ints
    correlation: MaskedInts  # ties a launch call to its device events
    external_id: MaskedInts  # the profiler's id of the operator
    sequence_number: MaskedInts  # autograd's run-time number; not ``seq_nr``
    fwd_thread_id: MaskedInts  # thread of the forward op, on backward ops
    # Of a device event
    device: MaskedInts
    stream: MaskedInts
    bytes_moved: MaskedInts  # bytes of a copy or a memset
    # JSON list of a kernel's grid, block, registers, shared memory and occupancy, as in the trace;
    # ``""`` where unknown
    launch_shape: Interned

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def end_ns(self) -> Ints:
        """End of each event."""
        return self.start_ns + self.duration_ns

    def end_at(self, row: int) -> int:
        """Return the end of one event."""
        return int(self.start_ns[row] + self.duration_ns[row])

    def end_of(self, rows: Ints | Codes) -> Ints:
        """Return the end of some events; of few it takes less than all."""
        ends: Ints = self.start_ns.take(rows)
        ends += self.duration_ns.take(rows)
        return ends


class RawEvents(Protocol):
    """The file's events as bytes of JSON, by position, nothing lost."""

    def __len__(self) -> int:
        """Return the number of events of every kind."""

    def __getitem__(self, position: int) -> bytes:
        """Return one event's JSON."""

    def at(self, positions: Ints) -> Iterator[bytes]:
        """Return the JSON of several events, much quicker than one by one."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device that the trace names: ``id``, ``name``, and the properties as Kineto gives them."""

    id: int
    name: str
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """A Kineto trace."""

    events: Events  # the complete events as columns
    raw: RawEvents  # every event of the file, unchanged
    # The file's other top-level keys, key to its JSON bytes, in order
    header: tuple[tuple[str, bytes], ...]
    base_ns: int  # wall-clock nanoseconds of the trace's time zero
    devices: Sequence[Device] = ()  # from ``deviceProperties``
    clamped: int = 0  # number of events with a negative duration, which counts as zero
