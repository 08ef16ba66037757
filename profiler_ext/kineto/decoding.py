"""Owns the step from decoded events to columns: integer nanoseconds, codes, masked ids.

Events are decoded some at a time: a million decoded events at once would take half a gigabyte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from profiler_ext.kineto import event_json
from profiler_ext.kineto.checking import check_names
from profiler_ext.kineto.event_json import ABSENT, NO_ARGS, NO_SHAPE, Id, shapes_of
from profiler_ext.kineto.growing import GrowingColumn
from profiler_ext.kineto.queues import devices_of, external_ids_of, streams_of
from profiler_ext.kineto.spellings import DEVICE_SPELLINGS, with_current_categories
from profiler_ext.kineto.times import TIMES, nanoseconds, of_doubles
from profiler_ext.records import Codes, Events, Interned, Ints, MaskedInts, Thread

Key = TypeVar("Key")
Column = TypeVar("Column", Ints, Codes)

_COMPLETE = "X"
_MAX_SHAPE_BYTES = 998
_ENDS_AT_ONCE = 1 << 16
_INT64 = range(ABSENT + 1, 2**63)
_NUMBER = re.compile(r"-?\d{1,20}", re.ASCII)


class InexactTimeError(ValueError):
    """The times of events must be read from their text."""


class _Table(dict[Key, int]):
    """The distinct values of a column, each with the code it was given when first seen."""

    def __missing__(self, value: Key) -> int:
        self[value] = code = len(self)
        return code

    def codes(self, values: Iterable[Key], count: int) -> Codes:
        return np.fromiter(map(self.__getitem__, values), np.int32, count)


class _Shapes(_Table[bytes]):
    """How kernels were launched; what is too long to be that counts as not told."""

    def __init__(self) -> None:
        super().__init__({NO_SHAPE: 0})

    def __missing__(self, value: bytes) -> int:
        return super().__missing__(value) if len(value) <= _MAX_SHAPE_BYTES else self[NO_SHAPE]


class _Part(NamedTuple):
    """The columns of some events; an absent id is :data:`ABSENT`."""

    position: Ints
    name: Codes
    category: Codes
    thread: Codes
    start_ns: Ints
    duration_ns: Ints
    correlation: Ints
    external_id: Ints
    sequence_number: Ints
    fwd_thread_id: Ints
    device: Ints
    stream: Ints
    bytes_moved: Ints
    launch_shape: Codes


class Texts(NamedTuple):
    """What the codes of columns stand for, each in the order in which it was first seen."""

    names: list[str]
    categories: list[str]
    threads: list[tuple[int | str, int | str]]
    shapes: list[bytes]


class GrowingColumns:
    """The columns of the events that were added, in the order of the file."""

    def __init__(self, parts: int = 1) -> None:
        """Begin with no event.

        Args:
            parts: about how often some will be added.
        """
        self._names: _Table[str] = _Table()
        self._categories: _Table[str] = _Table()
        self._threads: _Table[tuple[int | str, int | str]] = _Table()
        self._shapes = _Shapes()
        self._columns = [GrowingColumn(parts) for _ in _Part._fields]
        self.add(0, [])

    def add(self, first: int, events: event_json.Events) -> None:
        """Add some events; the complete ones become rows.

        Args:
            first: the position of the first of them.
            events: the events.

        Raises:
            InexactTimeError: A double does not tell a time of one; nothing was added.
            ValueError: A time is missing or no number; the message names the event.
        """
        part: Sequence[npt.NDArray[Any]] = self._part(first, events)
        for column, more in zip(self._columns, part, strict=True):
            column.add(more)

    def add_columns(self, first: int, texts: Texts, columns: Iterable[npt.NDArray[Any]]) -> None:
        """Add the columns of other events.

        Args:
            first: the position of the first of these events.
            texts: what their codes stand for.
            columns: their columns, as :meth:`columns` returns them.
        """
        codes = {
            "name": self._names.codes(texts.names, len(texts.names)),
            "category": self._categories.codes(texts.categories, len(texts.categories)),
            "thread": self._threads.codes(texts.threads, len(texts.threads)),
            "launch_shape": self._shapes.codes(texts.shapes, len(texts.shapes)),
        }
        for name, column, more in zip(_Part._fields, self._columns, columns, strict=True):
            added = first if name == "position" else 0
            column.add(codes[name][more] if name in codes else more + added)

    def columns(self) -> tuple[Texts, list[npt.NDArray[Any]]]:
        """Return what the codes stand for, and the columns, for others to add."""
        texts = Texts([*self._names], [*self._categories], [*self._threads], [*self._shapes])
        return texts, [column.finished() for column in self._columns]

    def finished(self) -> tuple[Events, int]:
        """Return the columns; nothing can be added any more.

        Returns:
            The complete events, and how many of them have a duration below zero, which counts
            as 0: torch marks so what never ended (https://github.com/pytorch/pytorch/pull/150131).

        Raises:
            ValueError: The times span too much.
            OverLimitError: A name is too long.
        """
        joined = _Part(*(column.finished() for column in self._columns))
        clamped = int((joined.duration_ns < 0).sum())
        np.maximum(joined.duration_ns, 0, out=joined.duration_ns)
        self._check(joined)
        return self._events(joined), clamped

    def _part(self, first: int, events: event_json.Events) -> _Part:
        are_complete = [event.ph == _COMPLETE for event in events]
        position = np.flatnonzero(np.fromiter(are_complete, np.bool_, len(events))) + first
        complete = [*compress(events, are_complete)]
        args = [event.args or NO_ARGS for event in complete]
        count = len(complete)
        # A zip makes one tuple for all events, and another only where that is kept.
        threads = zip([event.pid for event in complete], [e.tid for e in complete], strict=True)
        category = self._categories.codes([event.cat for event in complete], count)
        # Inductor's CPU ops have a ``stream`` too, which says nothing of where anything ran.
        rows = self._on_device(category)
        ran = [complete[row] for row in rows.tolist()]
        on_device = [each.args or NO_ARGS for each in ran]
        return _Part(
            position=position,
            name=self._names.codes([event.name for event in complete], count),
            category=category,
            thread=self._threads.codes(threads, count),
            start_ns=_times_ns("ts", [event.ts for event in complete], position),
            duration_ns=_times_ns("dur", [event.dur for event in complete], position),
            correlation=_ids([a.correlation for a in args]),
            external_id=external_ids_of(args, _ids),
            sequence_number=_ids([a.sequence_number for a in args]),
            fwd_thread_id=_ids([a.fwd_thread_id for a in args]),
            device=_scattered(devices_of(on_device, [each.pid for each in ran], _ids), rows, count),
            stream=_scattered(streams_of(on_device, [each.tid for each in ran], _ids), rows, count),
            bytes_moved=_scattered(_ids([a.bytes_moved for a in on_device]), rows, count),
            launch_shape=_scattered(
                self._shapes.codes(shapes_of(on_device), len(rows)), rows, count, 0
            ),
        )

    def _on_device(self, category: Codes) -> Ints:
        codes = [self._categories[c] for c in DEVICE_SPELLINGS if c in self._categories]
        is_device = np.zeros(len(category), np.bool_)
        for code in codes:
            is_device |= category == code
        return np.flatnonzero(is_device)

    def _check(self, joined: _Part) -> None:
        """Raise unless names are of a bearable length, and sums of times fit a column."""
        ids = [str(one) for ids in self._threads for one in ids]
        check_names([*self._names, *self._categories, *ids])
        if not len(joined.start_ns):
            return
        first, last = int(joined.start_ns.min()), _last_end(joined.start_ns, joined.duration_ns)
        total = float(joined.duration_ns.sum(dtype=np.float64))
        if last - first not in TIMES or total >= TIMES.stop:
            raise ValueError("its times span more than 73 years")

    def _events(self, joined: _Part) -> Events:
        events = Events(
            position=joined.position,
            name=Interned(joined.name, tuple(self._names)),
            category=Interned(joined.category, tuple(self._categories)),
            thread=joined.thread,
            threads=tuple(Thread(*ids) for ids in self._threads),
            start_ns=joined.start_ns,
            duration_ns=joined.duration_ns,
            correlation=_masked(joined.correlation),
            external_id=_masked(joined.external_id),
            sequence_number=_masked(joined.sequence_number),
            fwd_thread_id=_masked(joined.fwd_thread_id),
            device=_masked(joined.device),
            stream=_masked(joined.stream),
            bytes_moved=_masked(joined.bytes_moved),
            launch_shape=Interned(
                joined.launch_shape, ("", *(f"[{text.decode()}]" for text in [*self._shapes][1:]))
            ),
        )
        return with_current_categories(events)


def _last_end(start_ns: Ints, duration_ns: Ints) -> int:
    """Return when the last event ends; some at a time, as a column of ends is long."""
    some = (slice(at, at + _ENDS_AT_ONCE) for at in range(0, len(start_ns), _ENDS_AT_ONCE))
    return max(int((start_ns[each] + duration_ns[each]).max()) for each in some)


def _times_ns(key: str, times: list[Any], positions: Ints) -> Ints:
    if not times or not isinstance(times[0], float):
        return nanoseconds(key, times, positions)
    exact = of_doubles(np.fromiter(times, np.float64, len(times)))
    if exact is None:
        raise InexactTimeError
    return exact


def _ids(values: Sequence[Id]) -> Ints:
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.array([_integer(value) for value in values], np.int64)


def _integer(value: Id) -> int:
    """Return what fits a column; unsigned 64-bit -1 and words mean that there is no id."""
    if value is None or (isinstance(value, str) and _NUMBER.fullmatch(value) is None):
        return ABSENT
    return number if (number := int(value)) in _INT64 else ABSENT


def _scattered(values: Column, rows: Ints, count: int, absent: int = ABSENT) -> Column:
    """Return a column that has the values in these rows, and in the others what says none."""
    column = np.full(count, absent, values.dtype)
    column[rows] = values
    return column


def _masked(ids: Ints) -> MaskedInts:
    is_absent = ids == ABSENT
    ids[is_absent] = 0
    return np.ma.MaskedArray(ids, is_absent)
