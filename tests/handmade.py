"""How a test writes a trace and launches by hand: one line an event, one line a launch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from profiler_ext.kineto.launch_shapes import LAUNCH_SHAPE
from profiler_ext.kineto.names import Category
from profiler_ext.records.analysis import Analysis, IdlePieces, Launches, Place, Shares
from profiler_ext.records.events import Device, Events, Interned, Ints, MaskedInts, Thread, Trace
from profiler_ext.records.evidence import Mechanism
from profiler_ext.records.vocabulary import Level

BASE_NS = 1_790_857_026_000_000_000


@dataclass(frozen=True)
class Mark:
    """One complete event."""

    name: str
    category: str
    thread: Thread
    start_ns: int
    duration_ns: int
    args: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> bytes:
        """Return the event as Kineto writes it."""
        event = {
            "ph": "X",
            "cat": self.category,
            "name": self.name,
            "pid": self.thread.pid,
            "tid": self.thread.tid,
            "ts": self.start_ns / 1000,
            "dur": self.duration_ns / 1000,
            "args": self.args,
        }
        return json.dumps(event).encode()


@dataclass(frozen=True)
class Row:
    """One launch and its parts, ``(index into places, nanoseconds)``; ``None`` is masked."""

    event: int
    parts: tuple[tuple[int, int], ...]
    kind: str
    phase: str
    level: str
    kernel: str = ""
    step: int | None = None
    graph: int | None = None
    call_site: int | None = None
    op_event: int | None = None
    evidence: str = ""
    gap: str = ""
    forward: int | None = None


def interned(strings: Sequence[str]) -> Interned:
    """Return a column of strings."""
    pool = tuple(dict.fromkeys(strings))
    codes = {text: code for code, text in enumerate(pool)}
    return Interned(np.array([codes[text] for text in strings], dtype=np.int32), pool)


def masked(values: Sequence[int | None]) -> MaskedInts:
    """Return a column of integers in which ``None`` is masked."""
    data = np.array([0 if value is None else value for value in values], dtype=np.int64)
    return np.ma.MaskedArray(data, mask=[value is None for value in values])


def ints(values: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return a column of integers."""
    return np.array(values, dtype=np.int64)


class RawList(list[bytes]):
    """Raw events that are in no file."""

    def at(self, positions: Ints) -> Iterator[bytes]:
        """Return several of them."""
        return map(self.__getitem__, positions.tolist())


def trace(marks: Sequence[Mark], devices: tuple[Device, ...] = ()) -> Trace:
    """Return the trace that holds ``marks`` in their order."""
    return Trace(
        events=_events(marks),
        raw=RawList(mark.as_json() for mark in marks),
        header=(("schemaVersion", b"1"), ("baseTimeNanoseconds", str(BASE_NS).encode())),
        base_ns=BASE_NS,
        devices=devices,
    )


def _events(marks: Sequence[Mark]) -> Events:
    threads = tuple(dict.fromkeys(mark.thread for mark in marks))

    def argument(key: str) -> MaskedInts:
        return masked([mark.args.get(key) for mark in marks])

    return Events(
        position=ints(range(len(marks))),
        name=interned([mark.name for mark in marks]),
        category=interned([mark.category for mark in marks]),
        thread=np.array([threads.index(mark.thread) for mark in marks], dtype=np.int32),
        threads=threads,
        start_ns=ints([mark.start_ns for mark in marks]),
        duration_ns=ints([mark.duration_ns for mark in marks]),
        correlation=argument("correlation"),
        external_id=argument("External id"),
        sequence_number=argument("Sequence number"),
        fwd_thread_id=argument("Fwd thread id"),
        device=argument("device"),
        stream=argument("stream"),
        bytes_moved=argument("bytes"),
        launch_shape=interned([_launch_shape(mark) for mark in marks]),
    )


def _launch_shape(mark: Mark) -> str:
    reported = [mark.args.get(key) for key in LAUNCH_SHAPE]
    return json.dumps(reported) if mark.category == Category.KERNEL and any(reported) else ""


def launches(marks: Sequence[Mark], rows: Sequence[Row]) -> Launches:
    """Return the launches that ``rows`` name, timed as their events are."""
    chosen = [marks[row.event] for row in rows]

    def argument(key: str) -> MaskedInts:
        return masked([mark.args.get(key) for mark in chosen])

    return Launches(
        event=ints([row.event for row in rows]),
        step=masked([row.step for row in rows]),
        name=interned([mark.name for mark in chosen]),
        kernel=interned([row.kernel for row in rows]),
        kind=interned([row.kind for row in rows]),
        scope=interned(["eager" if row.graph is None else "compiled" for row in rows]),
        device=ints([mark.args.get("device", 0) for mark in chosen]),
        stream=argument("stream"),
        start_ns=ints([mark.start_ns for mark in chosen]),
        duration_ns=ints([mark.duration_ns for mark in chosen]),
        phase=interned([row.phase for row in rows]),
        graph=masked([row.graph for row in rows]),
        call_site=masked([row.call_site for row in rows]),
        forward=masked([row.forward for row in rows]),
        op_event=masked([row.op_event for row in rows]),
        correlation=argument("correlation"),
        external_id=argument("External id"),
        level=interned([row.level for row in rows]),
        evidence=interned([row.evidence for row in rows]),
        mechanism=interned([_mechanism(row) for row in rows]),
        gap=interned([row.gap for row in rows]),
        share_evidence=interned([""] * len(rows)),
    )


def _mechanism(row: Row) -> str:
    is_attributed = row.graph is not None and row.level == Level.LINE
    return Mechanism.OWN if is_attributed else ""


def shares(rows: Sequence[Row]) -> Shares:
    """Return the parts of all rows as columns."""
    flat = [(launch, *part) for launch, row in enumerate(rows) for part in row.parts]
    return Shares(
        launch=ints([launch for launch, _, _ in flat]),
        place=np.array([place for _, place, _ in flat], dtype=np.int32),
        duration_ns=ints([duration for _, _, duration in flat]),
    )


NO_LINE = Place(gap="lines_not_recorded")


@dataclass(frozen=True)
class Piece:
    """One piece of idle time; ``place`` is a place, or why there is none."""

    step: int
    span: int
    start_ns: int
    duration_ns: int
    cause: str
    cpu_activity: str = ""
    place: Place = NO_LINE
    cause_place: Place = NO_LINE
    device: int = 0


def idle(pieces: Sequence[Piece]) -> IdlePieces:
    """Return the idle time that consists of these pieces."""
    at = [piece.place for piece in pieces]
    of_cause = [piece.cause_place for piece in pieces]
    places = tuple(dict.fromkeys((*at, *of_cause)))
    return IdlePieces(
        step=ints([piece.step for piece in pieces]),
        device=ints([piece.device for piece in pieces]),
        span=ints([piece.span for piece in pieces]),
        start_ns=ints([piece.start_ns for piece in pieces]),
        duration_ns=ints([piece.duration_ns for piece in pieces]),
        cause=interned([piece.cause for piece in pieces]),
        place=np.array([places.index(place) for place in at], dtype=np.int32),
        cause_place=np.array([places.index(place) for place in of_cause], dtype=np.int32),
        cpu_activity=interned([piece.cpu_activity for piece in pieces]),
        places=places,
    )


def pieces(analysis: Analysis) -> list[Piece]:
    """Return the idle time of an analysis, one piece after the other."""
    found = analysis.idle
    return [
        Piece(
            int(found.step[row]),
            int(found.span[row]),
            int(found.start_ns[row]),
            int(found.duration_ns[row]),
            found.cause[row],
            found.cpu_activity[row],
            found.places[found.place[row]],
            found.places[found.cause_place[row]],
            int(found.device[row]),
        )
        for row in range(len(found))
    ]
