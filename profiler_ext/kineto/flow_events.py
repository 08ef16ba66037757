"""Forward-backward flows, and the other events of a trace's slice that are not complete events.

They are read from the file's text, as no column has them. Torch knows the thread number that
backward events name; in the file only flows show which thread that is. Source:
``torch/csrc/profiler/collection.cpp``, ``generateForwardBackwardLinks``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import msgspec
import numpy as np
import numpy.typing as npt

from profiler_ext.kineto.names import Category
from profiler_ext.records.events import Events, Ints, RawEvents, Thread, Trace
from profiler_ext.records.stored import known

_START, _END = "s", "f"
_MARKER = Category.FORWARD_BACKWARD.encode()
_TIMES = range(-(2**61), 2**61)
RowFlags = npt.NDArray[np.bool_]
_ARROW_BEGINS, _ARROWS = "s", ("s", "t", "f")
_NAMES = "M"


@dataclass(frozen=True, slots=True)
class ForwardFlow:
    """A flow from a forward op to its backward."""

    forward: Thread  # thread of the forward op
    backward: Thread  # thread of the backward event
    backward_ns: int  # its begin


class _End(msgspec.Struct):
    """One end of a flow, as in the file."""

    ph: str
    id: int
    pid: int | str
    tid: int | str
    ts: msgspec.Raw

    @property
    def thread(self) -> Thread:
        return Thread(self.pid, self.tid)

    @property
    def time_ns(self) -> int:
        return round(Decimal(bytes(self.ts).decode()) * 1000)


def forward_flows(trace: Trace) -> Iterator[ForwardFlow]:
    """Yield the arrows of a trace that have both ends; what is no arrow of torch's is none."""
    starts: dict[int, _End] = {}
    ends: list[_End] = []
    is_other = np.ones(len(trace.raw), np.bool_)
    is_other[trace.events.position] = False
    for at in np.flatnonzero(is_other).tolist():
        raw = trace.raw[at]
        if _MARKER in raw and (end := _decoded(raw)) is not None:
            if end.ph == _START:
                starts[end.id] = end
            elif end.ph == _END:
                ends.append(end)
    for end in ends:
        if (start := starts.get(end.id)) is not None:
            yield ForwardFlow(start.thread, end.thread, end.time_ns)


def _decoded(raw: bytes) -> _End | None:
    try:
        end = msgspec.json.decode(raw, type=known(_End))
        return end if end.ph in (_START, _END) and end.time_ns in _TIMES else None
    except (msgspec.DecodeError, ArithmeticError, ValueError):
        return None


class _Other(msgspec.Struct):
    ph: str = ""
    cat: str = ""
    id: int | str | None = None
    ts: msgspec.Raw = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True)
class SomeEvents:
    """Some of the events of a file, in its order."""

    raw: RawEvents
    positions: Ints

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, position: int) -> bytes:
        return self.raw[int(self.positions[position])]

    def at(self, positions: Ints) -> Iterator[bytes]:
        """Return the JSON of several events, much quicker than one by one."""
        return self.raw.at(self.positions[positions])


def cut(trace: Trace, is_kept: RowFlags, start_ns: int, end_ns: int) -> Trace:
    """Return a trace with some of its complete events."""
    # A flow stays whole: it is of the time in which it begins.
    own = trace.events.position[is_kept]
    others = np.ones(len(trace.raw), np.bool_)
    others[trace.events.position] = False
    decoded = [(at, _read(trace.raw[at])) for at in np.flatnonzero(others).tolist()]
    more = [at for at, _ in _within(decoded, start_ns, end_ns)]
    positions = np.union1d(own, np.array(more, np.int64))
    events = dataclasses.replace(
        _rows(trace.events, is_kept), position=np.searchsorted(positions, own).astype(np.int64)
    )
    raw = SomeEvents(trace.raw, positions)
    return dataclasses.replace(trace, events=events, raw=raw)


def _within(
    decoded: Sequence[tuple[int, _Other]], start_ns: int, end_ns: int
) -> Iterator[tuple[int, _Other]]:
    times = [_time_ns(other) for _, other in decoded]
    is_in = [ns is None or start_ns <= ns < end_ns for ns in times]
    arrows = {
        (other.cat, other.id): inside
        for (_, other), inside in zip(decoded, is_in, strict=True)
        if other.ph == _ARROW_BEGINS
    }
    for each, inside in zip(decoded, is_in, strict=True):
        ph, arrow = each[1].ph, (each[1].cat, each[1].id)
        if ph == _NAMES or (arrows.get(arrow, inside) if ph in _ARROWS else inside):
            yield each


def _time_ns(other: _Other) -> int | None:
    try:
        return round(Decimal(bytes(other.ts).decode().strip('"')) * 1000)
    except (InvalidOperation, OverflowError):
        return None  # of no time


def _read(raw: bytes) -> _Other:
    try:
        return msgspec.json.decode(raw, type=known(_Other))
    except msgspec.MsgspecError:
        return _Other()  # of no time: it stays as it is


def _rows(events: Events, is_kept: RowFlags) -> Events:
    columns = {field.name: getattr(events, field.name) for field in dataclasses.fields(events)}
    del columns["threads"]
    return dataclasses.replace(events, **{name: each[is_kept] for name, each in columns.items()})
