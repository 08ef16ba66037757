"""Owns the arrows in a trace that lead from a forward op to its backward.

They are no complete events, so no column has them. Torch knows of each op the number of its thread
that backward events name, and the file does not: only its arrows tell, which thread that is.

Source: ``torch/csrc/profiler/collection.cpp``, ``generateForwardBackwardLinks``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

import msgspec
import numpy as np

from profiler_ext.kineto.names import Category
from profiler_ext.records import Thread, Trace
from profiler_ext.records.known_types import known

_START, _END = "s", "f"
_MARKER = Category.FORWARD_BACKWARD.encode()
_TIMES = range(-(2**61), 2**61)


@dataclass(frozen=True, slots=True)
class ForwardFlow:
    """An arrow from a forward op to its backward.

    Attributes:
        forward: thread of the forward op.
        backward: thread of the backward event.
        backward_ns: when that began.
    """

    forward: Thread
    backward: Thread
    backward_ns: int


class _End(msgspec.Struct):
    """One end of an arrow, as it stands in the file."""

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
    """Yield the arrows of a trace that have both ends; what is no arrow of torch's is none.

    Args:
        trace: the trace.
    """
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
