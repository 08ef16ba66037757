"""Turns decoded events into columns: integer nanoseconds, string codes, masked ids.

Categories are today's; each event stays as it was written in ``Trace.raw``. Events are decoded some
at a time: a million decoded events at once would take half a gigabyte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import compress
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from profiler_ext.kineto import checking, event_json
from profiler_ext.kineto.event_json import (
    ABSENT,
    NO_ARGS,
    NO_SHAPE,
    Id,
    devices_of,
    external_ids_of,
    shapes_of,
    streams_of,
)
from profiler_ext.kineto.names import DEVICE_CATEGORIES, Category
from profiler_ext.records.events import Codes, Events, Interned, Ints, MaskedInts, Thread

_TIMES = 2
TIMES = range(-(2**61), 2**61)  # what two of fit a column together; in nanoseconds, 73 years
_SHOWN_BYTES = 40
# What a repair leaves of a bare word (:func:`profiler_ext.kineto.raw_events.repaired`)
_REPAIRED_WORDS = {b"": "no {key}", b'""': "NaN, an infinity or an empty text as its {key}"}
_DIGITS = b"0123456789"
_DECIMALS, _MOST_DIGITS = 3, 15
# Below 2**43, where a double is less than half a thousandth from the exact number
_FEW_DECIMALS = re.compile(rb"(?:-?[1-7]?\d{1,12}(?:\.\d{1,3})?,)*+")
_LEAST_INEXACT_US = 2.0**42  # from here on doubles lie more than half a nanosecond apart
_OPERATOR = "Operator"
_MTIA = "mtia_ccp_events"
# What torch 1.8 and 1.9 write. Source: ``libkineto/src/output_json.cpp`` of these.
_CAPITALISED = {
    "Kernel": Category.KERNEL,
    "Memcpy": Category.GPU_MEMCPY,
    "Memset": Category.GPU_MEMSET,
    "Runtime": Category.CUDA_RUNTIME,
}
# What MTIA's streams do besides running programs; waiting for an event is no work
_MTIA_NAMES = {
    "dma_request": Category.GPU_MEMCPY,
    "event_record": Category.CUDA_SYNC,
    "event_wait": Category.CUDA_SYNC,
}
_EVALUATED = "autograd::engine::evaluate_function: "
_OP = re.compile(r"[A-Za-z_]\w*::[\w.:]+")
_NODE = re.compile(r"(?:struct )?torch::autograd::\w+|\w+Backwards?\d*")
# Categories of events that a device may have run, as any file spells them
DEVICE_SPELLINGS = (*DEVICE_CATEGORIES, "Kernel", "Memcpy", "Memset", _MTIA)
_COMPLETE = "X"
_MAX_SHAPE_BYTES = 998
_ENDS_AT_ONCE = 1 << 16
_INT64 = range(ABSENT + 1, 2**63)
_NUMBER = re.compile(r"-?\d{1,20}", re.ASCII)


class GrowingColumn:
    """A column that grows in place."""

    # To keep parts and join them takes twice the memory, and time to copy.

    def __init__(self, parts: int = 1) -> None:
        self._parts = parts
        self._rows, self._count = np.empty(0, np.int64), 0

    def add(self, part: npt.NDArray[Any]) -> None:
        """Add rows; the first ones set the type."""
        end = self._count + len(part)
        if end > len(self._rows):
            more = np.empty(max(end, _TIMES * len(self._rows), len(part) * self._parts), part.dtype)
            more[: self._count] = self._rows[: self._count]
            self._rows = more
        self._rows[self._count : end] = part
        self._count = end

    def finished(self) -> npt.NDArray[Any]:
        """Return all rows; nothing can be added any more."""
        return self._rows[: self._count]


def nanoseconds(key: str, texts: list[msgspec.Raw], positions: Ints) -> Ints:
    """Parse microseconds to integer nanoseconds; a double could not hold the old, long ones.

    Raises:
        ValueError: One is missing, no number, or too large; the message names the event.
    """
    if not texts:
        return np.empty(0, np.int64)
    joined = b",".join([*texts, b""])
    if _have_three_decimals(joined):
        return np.fromstring(joined.replace(b".", b"")[:-1], np.int64, sep=",")
    if _FEW_DECIMALS.fullmatch(joined):
        times_us = np.fromstring(joined[:-1], np.float64, sep=",")
        floor_us = np.floor(times_us)
        rest_ns = np.rint((times_us - floor_us) * 1000)
        return floor_us.astype(np.int64) * 1000 + rest_ns.astype(np.int64)
    exact = [_exact(key, bytes(text), at) for text, at in zip(texts, positions, strict=True)]
    return np.array(exact, dtype=np.int64)


def of_doubles(times_us: npt.NDArray[np.float64]) -> Ints | None:
    """Convert microseconds read as doubles to nanoseconds, if that is exact."""
    # The text lies within a double's spacing of any other text with that double: below the limit,
    # less than half a nanosecond. So nanoseconds with the same double are the text's.
    if not (np.abs(times_us) < _LEAST_INEXACT_US).all():
        return None
    floor_us = np.floor(times_us)
    rest_ns = np.rint((times_us - floor_us) * 1000)
    times_ns = floor_us.astype(np.int64) * 1000 + rest_ns.astype(np.int64)
    return times_ns if (times_ns / 1000 == times_us).all() else None


def _have_three_decimals(joined: bytes) -> bool:
    """Tell whether each number is digits, a point and three digits, and fits a column."""
    # A pattern would take four times as long.
    marks = joined.translate(None, _DIGITS)
    if marks != b".," * (len(marks) // 2):
        return False
    characters = np.frombuffer(joined, np.uint8)
    commas = np.flatnonzero(characters == ord(","))
    points = commas - _DECIMALS - 1
    whole = points - np.append(0, commas[:-1] + 1)
    are_there = (whole >= 1) & (whole <= _MOST_DIGITS)
    return bool(are_there.all() and (characters[points] == ord(".")).all())


def _exact(key: str, text: bytes, position: int) -> int:
    shown = text[:_SHOWN_BYTES].decode()
    try:
        number = Decimal(text.decode()) * 1000
        # The exponent of a decimal may ask for more digits than there is memory.
        if abs(number) < TIMES.stop:
            return round(number)
    except (ArithmeticError, ValueError) as error:
        shape = _REPAIRED_WORDS.get(text, "{key} {shown}").format(key=key, shown=shown)
        raise ValueError(f"event {position} has {shape}, not a number of microseconds") from error
    raise ValueError(f"event {position} has {key} {shown}, over 73 years of microseconds")


def with_current_categories(events: Events) -> Events:
    """Return the events with the categories and names that today's Kineto gives them."""
    spelled = set(events.category.strings)
    if not spelled & {_OPERATOR, _MTIA, *_CAPITALISED}:
        return events
    if _OPERATOR in spelled:
        # Name autograd's nodes as the engine's events, which torch 1.8 and 1.9 do not write.
        named = (_EVALUATED + t if _NODE.fullmatch(t) else t for t in events.name.strings)
        events = replace(events, name=Interned(events.name.codes, tuple(named)))
    old, name = events.category, events.name
    pairs, pair = np.unique(np.stack([old.codes, name.codes]), axis=1, return_inverse=True)
    of_pair = [_category(old.strings[c], name.strings[n]) for c, n in pairs.T.tolist()]
    pool = {text: code for code, text in enumerate(dict.fromkeys(of_pair))}
    codes = np.array([pool[text] for text in of_pair], dtype=np.int32)
    recategorised = Interned(codes[pair.reshape(-1)], tuple(pool))
    return replace(events, category=recategorised)


def _category(spelled: str, name: str) -> str:
    """Return today's category of an event; ranges of ``record_function`` were operators too."""
    if spelled == _OPERATOR:
        return Category.CPU_OP if _OP.match(name) else Category.USER_ANNOTATION
    if spelled == _MTIA:
        return _MTIA_NAMES.get(name, Category.KERNEL)
    return _CAPITALISED.get(spelled, spelled)


Key = TypeVar("Key")
Column = TypeVar("Column", Ints, Codes)


class InexactTimeError(ValueError):
    """The times of events must be read from their text."""


class _Table(dict[Key, int]):
    """The distinct values of a column, each with its code."""

    def __missing__(self, value: Key) -> int:
        self[value] = code = len(self)
        return code

    def codes(self, values: Iterable[Key], count: int) -> Codes:
        return np.fromiter(map(self.__getitem__, values), np.int32, count)


class _Shapes(_Table[bytes]):
    """How kernels were launched; a text too long for that counts as unknown."""

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
    """The distinct texts of columns, each in the order in which it was first seen."""

    names: list[str]
    categories: list[str]
    threads: list[tuple[int | str, int | str]]
    shapes: list[bytes]


class GrowingColumns:
    """The columns of the events that were added, in the order of the file."""

    def __init__(self, parts: int = 1) -> None:
        self._names: _Table[str] = _Table()
        self._categories: _Table[str] = _Table()
        self._threads: _Table[tuple[int | str, int | str]] = _Table()
        self._shapes = _Shapes()
        self._columns = [GrowingColumn(parts) for _ in _Part._fields]
        self.add(0, [])

    def add(self, first: int, events: event_json.Events) -> None:
        """Add some events; the complete ones become rows; raises InexactTimeError or ValueError."""
        part: Sequence[npt.NDArray[Any]] = self._part(first, events)
        for column, more in zip(self._columns, part, strict=True):
            column.add(more)

    def add_columns(self, first: int, texts: Texts, columns: Iterable[npt.NDArray[Any]]) -> None:
        """Add the columns of other events."""
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
        """Return the texts of codes, and the columns, for another process to add."""
        texts = Texts([*self._names], [*self._categories], [*self._threads], [*self._shapes])
        return texts, [column.finished() for column in self._columns]

    def finished(self) -> tuple[Events, int]:
        """Return the columns, and how many events have a negative duration, which counts as 0."""
        # Torch marks events that never ended so (https:
        # github.com/pytorch/pytorch/pull/150131). ¶ Raises: / ValueError: The times span too much.
        # / OverLimitError: A name is too long.
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
        # Inductor's CPU ops have a ``stream`` too, which means nothing.
        codes = [self._categories[c] for c in DEVICE_SPELLINGS if c in self._categories]
        is_device = np.zeros(len(category), np.bool_)
        for code in codes:
            is_device |= category == code
        rows = np.flatnonzero(is_device)
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

    def _check(self, joined: _Part) -> None:
        """Raise unless names keep within the limit of length, and sums of times fit a column."""
        ids = [str(one) for ids in self._threads for one in ids]
        checking.check_names([*self._names, *self._categories, *ids])
        if not len(joined.start_ns):
            return
        # When the last event ends; some at a time, as a column of ends is long.
        some = (
            slice(at, at + _ENDS_AT_ONCE) for at in range(0, len(joined.start_ns), _ENDS_AT_ONCE)
        )
        first, last = (
            int(joined.start_ns.min()),
            max(int((joined.start_ns[each] + joined.duration_ns[each]).max()) for each in some),
        )
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
    """Return a value that fits a column; unsigned 64-bit -1 and words mean no id."""
    if value is None or (isinstance(value, str) and _NUMBER.fullmatch(value) is None):
        return ABSENT
    return number if (number := int(value)) in _INT64 else ABSENT


def _scattered(values: Column, rows: Ints, count: int, absent: int = ABSENT) -> Column:
    """Return a column with these values in these rows, and ``absent`` in the others."""
    column = np.full(count, absent, values.dtype)
    column[rows] = values
    return column


def _masked(ids: Ints) -> MaskedInts:
    is_absent = ids == ABSENT
    ids[is_absent] = 0
    return np.ma.MaskedArray(ids, is_absent)
