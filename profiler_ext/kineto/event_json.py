"""Decodes the JSON of events to objects with the fields that become columns."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

import msgspec
import numpy as np

from profiler_ext.kineto.launch_shapes import LAUNCH_SHAPE
from profiler_ext.kineto.names import Arg
from profiler_ext.records.events import Ints

# Stands in a column of ids where there is none; an id of this number is none either
ABSENT = -(2**63)
NO_SHAPE = b"null,null,null,null,null"  # of a kernel without launch shape
_NOTHING, _NULL = msgspec.Raw(b""), msgspec.Raw(b"null")
Id = int | str | None
_SHAPE = attrgetter("grid", "block", "registers", "shared_memory", "occupancy")
_LAST_NUMBER = re.compile(r"(\d{1,18})\D*")
Numbers = Callable[[Sequence[Id]], Ints]


class Args(msgspec.Struct, gc=False):
    """The arguments that become columns; old traces hold some as strings, or in lower case."""

    external_id: Id = msgspec.field(default=ABSENT, name="External id")
    small_external_id: Id = msgspec.field(default=ABSENT, name="external id")
    sequence_number: Id = msgspec.field(default=ABSENT, name="Sequence number")
    fwd_thread_id: Id = msgspec.field(default=ABSENT, name="Fwd thread id")
    device: Id = ABSENT
    stream: Id = ABSENT
    sycl_queue: Id = msgspec.field(default=ABSENT, name="sycl queue")
    correlation: Id = ABSENT
    bytes_moved: Id = msgspec.field(default=ABSENT, name="bytes")
    registers: msgspec.Raw = msgspec.field(default=_NULL, name=Arg.REGISTERS.value)
    shared_memory: msgspec.Raw = msgspec.field(default=_NULL, name=Arg.SHARED_MEMORY.value)
    grid: msgspec.Raw = msgspec.field(default=_NULL, name=Arg.GRID.value)
    block: msgspec.Raw = msgspec.field(default=_NULL, name=Arg.BLOCK.value)
    occupancy: msgspec.Raw = msgspec.field(default=_NULL, name=Arg.OCCUPANCY.value)


class _Event(msgspec.Struct, gc=False):
    """Fields of every event, in Kineto's order, which decodes fastest."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0


class Event(_Event, gc=False):
    """One event; its times stay text until they become integers."""

    ts: msgspec.Raw = _NOTHING
    dur: msgspec.Raw = _NOTHING
    args: Args | msgspec.UnsetType = msgspec.UNSET


class FastEvent(_Event, gc=False):
    """One event with its duration as a double, which is nearly always exact, and faster."""

    ts: msgspec.Raw = _NOTHING
    dur: float = math.nan
    args: Args | msgspec.UnsetType = msgspec.UNSET


class FastestEvent(_Event, gc=False):
    """One event with both times as doubles, which is exact in some files."""

    ts: float = math.nan
    dur: float = math.nan
    args: Args | msgspec.UnsetType = msgspec.UNSET


Events = Sequence[Event | FastEvent | FastestEvent]
NO_ARGS = Args()
_DECODER = msgspec.json.Decoder(Event)
_LIST_DECODER = msgspec.json.Decoder(list[Event])
_FAST_DECODER = msgspec.json.Decoder(list[FastEvent])
_FASTEST_DECODER = msgspec.json.Decoder(list[FastestEvent])


def shapes_of(args: Sequence[Args]) -> Iterator[bytes]:
    """Return how kernels were launched, as the file has it."""
    return map(b",".join, map(_SHAPE, args))


def decoded_fast(first: int, text: bytes, starts: bool) -> Events:
    """Decode a list of events, with times as doubles where they are numbers.

    Raises:
        msgspec.DecodeError: It is no JSON, or no list.
        ValueError: An event has another shape than Kineto's; the message names it.
    """
    try:
        return _FASTEST_DECODER.decode(text) if starts else _FAST_DECODER.decode(text)
    except msgspec.DecodeError:
        return decoded_list(first, text)


def decoded_list(first: int, text: bytes) -> list[Event]:
    """Decode a list of events, each exactly; raises msgspec.DecodeError or ValueError."""
    try:
        return _LIST_DECODER.decode(text)
    except msgspec.DecodeError:
        return decoded_each(first, msgspec.json.decode(text, type=list[msgspec.Raw]))


def decoded_each(first: int, raws: Sequence[msgspec.Raw]) -> list[Event]:
    """Decode events; an id of an unknown type is dropped; raises ValueError."""
    return [_decoded_one(at, raw) for at, raw in enumerate(raws, first)]


def _decoded_one(at: int, raw: msgspec.Raw) -> Event:
    try:
        return _DECODER.decode(raw)
    except msgspec.DecodeError as error:
        try:
            event = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
            args = msgspec.json.decode(event.get("args", b"{}"), type=dict[str, msgspec.Raw])
            known = {
                key: value for key, value in args.items() if key in LAUNCH_SHAPE or _is_id(value)
            }
            return _DECODER.decode(msgspec.json.encode({**event, "args": known}))
        except msgspec.DecodeError:
            raise ValueError(f"event {at}: {error}") from error


def _is_id(value: msgspec.Raw) -> bool:
    try:
        msgspec.json.decode(value, type=Id)
    except msgspec.DecodeError:
        return False
    return True


def devices_of(args: Sequence[Args], processes: Sequence[int | str], numbers: Numbers) -> Ints:
    """Return the device of each device event."""
    # processes: its track: the device's number, which MTIA's events have nowhere else. Source:
    # ``libkineto/src/output_json.cpp``.
    own = numbers([each.device for each in args])
    return np.maximum(_or(own, lambda: numbers(list(map(_number, processes)))), 0)


def streams_of(args: Sequence[Args], threads: Sequence[int | str], numbers: Numbers) -> Ints:
    """Return the stream of each device event; an XPU's is its SYCL queue."""
    own = numbers([each.stream for each in args])
    own = _or(own, lambda: numbers([each.sycl_queue for each in args]))
    return np.maximum(_or(own, lambda: numbers(list(map(_number, threads)))), 0)


def external_ids_of(args: Sequence[Args], numbers: Numbers) -> Ints:
    """Return the external id of each event, which torch 1.8 and 1.9 write in lower case."""
    own = numbers([each.external_id for each in args])
    return _or(own, lambda: numbers([each.small_external_id for each in args]))


def _or(own: Ints, other: Callable[[], Ints]) -> Ints:
    is_absent = own == ABSENT
    return np.where(is_absent, other(), own) if is_absent.any() else own


def _number(track: int | str) -> Id:
    if isinstance(track, int):
        return track
    match = _LAST_NUMBER.search(track)
    return None if match is None else int(match[1])
