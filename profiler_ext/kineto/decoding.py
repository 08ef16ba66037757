"""Owns the step from the JSON of events to columns: integer nanoseconds, codes, masked ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from profiler_ext.kineto.checking import check_names
from profiler_ext.kineto.names import DEVICE_CATEGORIES
from profiler_ext.records import Codes, Events, Interned, Ints, MaskedInts, Thread

Key = TypeVar("Key")

_COMPLETE = "X"
_BATCH_EVENTS = 50_000
_INT64 = range(-(2**63), 2**63)
_TIMES = range(-(2**61), 2**61)
"""What two of fit a column together; in nanoseconds, 73 years."""
_SHOWN_BYTES = 40
_THREE_DECIMALS = re.compile(rb"(?:-?\d{1,15}\.\d{3},)*+")
_NUMBER = re.compile(r"-?\d{1,20}", re.ASCII)
_ABSENT = msgspec.Raw(b"")
_Id = int | str | None


class _Args(msgspec.Struct, gc=False):
    """The arguments that become columns; old traces hold some of them as strings."""

    correlation: _Id = None
    external_id: _Id = msgspec.field(default=None, name="External id")
    sequence_number: _Id = msgspec.field(default=None, name="Sequence number")
    fwd_thread_id: _Id = msgspec.field(default=None, name="Fwd thread id")
    device: _Id = None
    stream: _Id = None
    bytes_moved: _Id = msgspec.field(default=None, name="bytes")


class _Event(msgspec.Struct, gc=False):
    """One event; its times stay text until they become integers."""

    ph: str = ""
    name: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: msgspec.Raw = _ABSENT
    dur: msgspec.Raw = _ABSENT
    args: _Args | msgspec.UnsetType = msgspec.UNSET


_NO_ARGS = _Args()


@dataclass(slots=True)
class _Tables:
    """The distinct strings and threads, each with the code it was given when first seen."""

    names: dict[str, int] = field(default_factory=dict)
    categories: dict[str, int] = field(default_factory=dict)
    threads: dict[tuple[int | str, int | str], int] = field(default_factory=dict)


class _Batch(NamedTuple):
    """The columns of some events."""

    position: Ints
    name: Codes
    category: Codes
    thread: Codes
    start_ns: Ints
    duration_ns: Ints
    correlation: MaskedInts
    external_id: MaskedInts
    sequence_number: MaskedInts
    fwd_thread_id: MaskedInts
    device: MaskedInts
    stream: MaskedInts
    bytes_moved: MaskedInts


def columns_of(raws: Sequence[msgspec.Raw]) -> tuple[Events, int]:
    """Turn the events of a file into columns.

    Args:
        raws: the JSON of every event, in the order of the file.

    Returns:
        The complete events, and how many of them have a duration below zero, which counts as 0:
        torch marks so what never ended (https://github.com/pytorch/pytorch/pull/150131).

    Raises:
        msgspec.DecodeError: An event has another shape than Kineto's.
        ValueError: A time is missing or no number; the message names the event.
        OverLimitError: A name is too long.
    """
    tables = _Tables()
    # Decoded in batches: a million decoded events at once would take half a gigabyte.
    batches = [_batch(first, raws, tables) for first in _firsts(len(raws))]
    whole = _Batch(*map(_joined, zip(*batches, strict=True)))
    clamped = int((whole.duration_ns < 0).sum())
    whole = whole._replace(duration_ns=np.maximum(whole.duration_ns, 0))
    _check(whole, tables)
    events = Events(
        position=whole.position,
        name=Interned(whole.name, tuple(tables.names)),
        category=Interned(whole.category, tuple(tables.categories)),
        thread=whole.thread,
        threads=tuple(Thread(*ids) for ids in tables.threads),
        start_ns=whole.start_ns,
        duration_ns=whole.duration_ns,
        correlation=whole.correlation,
        external_id=whole.external_id,
        sequence_number=whole.sequence_number,
        fwd_thread_id=whole.fwd_thread_id,
        device=whole.device,
        stream=whole.stream,
        bytes_moved=whole.bytes_moved,
    )
    return events, clamped


def _check(whole: _Batch, tables: _Tables) -> None:
    """Raise unless names are of a bearable length, and sums of times fit a column."""
    ids = [str(one) for ids in tables.threads for one in ids]
    check_names([*tables.names, *tables.categories, *ids])
    if not len(whole.start_ns):
        return
    first, last = int(whole.start_ns.min()), int((whole.start_ns + whole.duration_ns).max())
    if last - first not in _TIMES or float(whole.duration_ns.sum(dtype=np.float64)) >= _TIMES.stop:
        raise ValueError("its times span more than 73 years")


def _joined(parts: Sequence[Any]) -> Any:
    whole = np.concatenate([np.asarray(part) for part in parts])
    if not isinstance(parts[0], np.ma.MaskedArray):
        return whole
    # np.concatenate forgets masks.
    return np.ma.MaskedArray(whole, np.concatenate([part.mask for part in parts]))


def _firsts(events: int) -> Iterator[int]:
    yield 0
    yield from range(_BATCH_EVENTS, events, _BATCH_EVENTS)


def _batch(first: int, raws: Sequence[msgspec.Raw], tables: _Tables) -> _Batch:
    decoded = enumerate(_decoded(first, raws), first)
    numbered = [(position, event) for position, event in decoded if event.ph == _COMPLETE]
    position = np.array([position for position, _ in numbered], dtype=np.int64)
    events = [event for _, event in numbered]
    args = [event.args or _NO_ARGS for event in events]
    # Inductor's CPU ops have a ``stream`` too, which says nothing of where anything ran.
    placed = [
        args_ if event.cat in DEVICE_CATEGORIES else _NO_ARGS
        for event, args_ in zip(events, args, strict=True)
    ]
    return _Batch(
        position=position,
        name=_codes([event.name for event in events], tables.names),
        category=_codes([event.cat for event in events], tables.categories),
        thread=_codes([(event.pid, event.tid) for event in events], tables.threads),
        start_ns=_nanoseconds("ts", [bytes(event.ts) for event in events], position),
        duration_ns=_nanoseconds("dur", [bytes(event.dur) for event in events], position),
        correlation=_ids([a.correlation for a in args]),
        external_id=_ids([a.external_id for a in args]),
        sequence_number=_ids([a.sequence_number for a in args]),
        fwd_thread_id=_ids([a.fwd_thread_id for a in args]),
        device=_ids([a.device for a in placed]),
        stream=_ids([a.stream for a in placed]),
        bytes_moved=_ids([a.bytes_moved for a in placed]),
    )


def _decoded(first: int, raws: Sequence[msgspec.Raw]) -> list[_Event]:
    decode = msgspec.json.Decoder(_Event).decode
    some = raws[first : first + _BATCH_EVENTS]
    try:
        return [decode(raw) for raw in some]
    except msgspec.DecodeError:
        return [_decoded_one(decode, at, raw) for at, raw in enumerate(some, first)]


def _decoded_one(decode: Callable[[bytes], _Event], at: int, raw: msgspec.Raw) -> _Event:
    """Decode an event; an id that is of no known type is none."""
    try:
        return decode(raw)
    except msgspec.DecodeError as error:
        try:
            return decode(_with_known_ids(raw))
        except msgspec.DecodeError:
            raise ValueError(f"event {at}: {error}") from error


def _with_known_ids(raw: msgspec.Raw) -> bytes:
    event = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    args = msgspec.json.decode(event.get("args", b"{}"), type=dict[str, msgspec.Raw])
    known = {key: value for key, value in args.items() if _is_id(value)}
    return msgspec.json.encode({**event, "args": known})


def _is_id(value: msgspec.Raw) -> bool:
    try:
        msgspec.json.decode(value, type=_Id)
    except msgspec.DecodeError:
        return False
    return True


def _codes(values: list[Key], table: dict[Key, int]) -> Codes:
    for value in dict.fromkeys(values):
        table.setdefault(value, len(table))
    return np.fromiter(map(table.__getitem__, values), np.int32, len(values))


def _ids(values: list[_Id]) -> MaskedInts:
    try:
        return _masked(values)
    except (ValueError, OverflowError):
        return _masked([_integer(value) for value in values])


def _masked(values: Sequence[_Id]) -> MaskedInts:
    filled = np.fromiter([0 if value is None else value for value in values], np.int64, len(values))
    mask = np.fromiter([value is None for value in values], np.bool_, len(values))
    return np.ma.MaskedArray(filled, mask)


def _integer(value: _Id) -> int | None:
    """Return what fits a column; unsigned 64-bit -1 and words mean that there is no id."""
    if value is None or (isinstance(value, str) and _NUMBER.fullmatch(value) is None):
        return None
    return number if (number := int(value)) in _INT64 else None


def _nanoseconds(key: str, texts: list[bytes], positions: Ints) -> Ints:
    """Parse microseconds to integer nanoseconds; a double could not hold the old, long ones."""
    if _THREE_DECIMALS.fullmatch(b",".join([*texts, b""])):
        return np.array([int(text.replace(b".", b"")) for text in texts], dtype=np.int64)
    exact = [_exact(key, text, at) for text, at in zip(texts, positions.tolist(), strict=True)]
    return np.array(exact, dtype=np.int64)


def _exact(key: str, text: bytes, position: int) -> int:
    shown = text[:_SHOWN_BYTES].decode()
    try:
        number = Decimal(text.decode()) * 1000
        # The exponent of a decimal may ask for more digits than there is memory.
        if abs(number) < _TIMES.stop:
            return round(number)
    except (ArithmeticError, ValueError) as error:
        shape = f'{key} "{shown}"' if text else f"no {key}"
        raise ValueError(f"event {position} has {shape}, not a number of microseconds") from error
    raise ValueError(f"event {position} has {key} {shown}, over 73 years of microseconds")
