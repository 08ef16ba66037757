"""Reading a trace without any code of ours: plain JSON, nesting by intervals, unions.

It shares no line with ``profiler_ext``, so that a mistake of attribution cannot be one here too.
"""

from __future__ import annotations

import gzip
import json
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

Interval = tuple[int, int]

DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
_MTIA, _MTIA_IDLE = "mtia_ccp_events", {"event_record", "event_wait"}
_RANGES = {"cpu_op", "user_annotation", "Operator"}
_CALL = re.compile(r"\w+_(runtime|driver)|Runtime")
_OP = re.compile(r"[A-Za-z_]\w*::[A-Za-z_][\w.]*")
_NODE = re.compile(r"(autograd|torch::autograd|struct torch::autograd)::|\w+Backwards?\d*$")
_CPP = re.compile(r"(graph_\d+_)?cpp_fused_")
_MARKER = re.compile(r"## Call CompiledFxGraph \S+ ##")


@dataclass(frozen=True)
class Event:
    """One complete event, its times in whole nanoseconds since the trace's own zero."""

    at: int
    category: str
    name: str
    thread: tuple[Any, Any]
    start_ns: int
    end_ns: int
    args: dict[str, Any]

    @property
    def is_device(self) -> bool:
        """It is work that a device ran."""
        is_mtias = self.category == _MTIA and self.name not in _MTIA_IDLE
        return self.category in DEVICE or is_mtias

    @property
    def is_op(self) -> bool:
        """An op ran; ranges of ``record_function`` were called operators in torch 1.8 and 1.9."""
        old = self.category == "Operator" and (_OP.match(self.name) or _NODE.match(self.name))
        return self.category == "cpu_op" or bool(old)

    @property
    def device(self) -> int:
        """The device that it ran on."""
        return int(self.args.get("device", self.thread[0]))


@dataclass(frozen=True)
class Launch:
    """What a device ran, or the CPU where no device ran anything, and what stands around its call.

    Attributes:
        event: the device's event.
        around: the ops and ranges around its call, the innermost first.
        op: the innermost op that launched it.
    """

    event: Event
    around: tuple[Event, ...]
    op: Event | None

    @property
    def outermost(self) -> str | None:
        """Name of the outermost dispatched op around it that is within no other graph's call."""
        found = None
        for each in self.around:
            if _MARKER.fullmatch(each.name):
                break
            found = each.name if each.is_op and is_dispatched(each.name) else found
        return found


def is_dispatched(name: str) -> bool:
    """Tell whether an op of this name comes from torch's dispatcher."""
    return _OP.fullmatch(name) is not None and not _NODE.match(name)


def read_events(path: Path) -> list[Event]:
    """Return the complete events of a file."""
    text = path.read_bytes()
    text = gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text
    raw = json.loads(text, parse_float=Decimal, strict=False)["traceEvents"]
    return [_event(at, each) for at, each in enumerate(raw) if each.get("ph") == "X"]


def _event(at: int, raw: dict[str, Any]) -> Event:
    start_ns, took_ns = (
        int((Decimal(raw[key]) * 1000).to_integral_value()) for key in ("ts", "dur")
    )
    thread, end_ns = (raw["pid"], raw["tid"]), start_ns + max(took_ns, 0)
    args = raw.get("args") or {}
    return Event(at, raw.get("cat", ""), raw.get("name", ""), thread, start_ns, end_ns, args)


def launches(events: Sequence[Event]) -> list[Launch]:
    """Return what the devices ran, by nesting on the thread of each launching call."""
    ran = [each for each in events if each.is_device]
    if not ran:
        return list(_on_cpu(events))
    calls, by_id = _calls(events), defaultdict(list)
    for each in filter(lambda one: one.is_op, events):
        by_id[each.args.get("External id")].append(each)
    threads = _Threads(events)
    are_ops = any(_external_id(each) != each.args.get("correlation") for each in ran)
    return [
        _launch(
            each,
            threads.around(calls.get(each.args.get("correlation"))),
            by_id.get(_external_id(each), []) if are_ops else [],
            threads,
        )
        for each in ran
    ]


def _launch(
    event: Event, around: tuple[Event, ...], named: Sequence[Event], threads: _Threads
) -> Launch:
    """Return a launch; where no op stands around its call, its id names one."""
    if len(named) == 1 and not any(each.is_op for each in around):
        around = threads.around(named[0])
    return Launch(event, around, next((each for each in around if each.is_op), None))


def _external_id(event: Event) -> Any:
    return event.args.get("External id", event.args.get("external id"))


def _calls(events: Iterable[Event]) -> dict[Any, Event]:
    """Return the one call of each correlation; of an XPU's two the runtime's."""
    found = defaultdict(list)
    for each in events:
        if _CALL.fullmatch(each.category):
            found[each.args.get("correlation")].append(each)
    outer = {key: [c for c in of if "driver" not in c.category] or of for key, of in found.items()}
    return {key: of[0] for key, of in outer.items() if key is not None and len(of) == 1}


class _Threads:
    """The ops and ranges of each thread; what lies wholly in another is nested there."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._of: dict[Any, list[Event]] = defaultdict(list)
        for each in events:
            if each.category in _RANGES:
                self._of[each.thread].append(each)
        for own in self._of.values():
            own.sort(key=lambda e: (e.start_ns, -e.end_ns, int(e.args.get("External id", 0))))
        self._starts = {key: [e.start_ns for e in own] for key, own in self._of.items()}
        self._above = {key: _parents(own) for key, own in self._of.items()}

    def around(self, event: Event | None) -> tuple[Event, ...]:
        """Return what is open as an event begins, itself if it is a range; the innermost first."""
        if event is None:
            return ()
        own, found = self._of.get(event.thread, []), list[Event]()
        at = bisect_right(self._starts.get(event.thread, []), event.start_ns) - 1
        while at >= 0:
            found += [own[at]] if own[at].end_ns > event.start_ns else []
            at = self._above[event.thread][at]
        return tuple(found)


def _parents(own: Sequence[Event]) -> list[int]:
    """Return for each range, in order of start, the last one before it that ends no earlier."""
    open_, above = list[int](), list[int]()
    for at, each in enumerate(own):
        while open_ and own[open_[-1]].end_ns < max(each.end_ns, each.start_ns + 1):
            open_.pop()
        above.append(open_[-1] if open_ else -1)
        open_.append(at)
    return above


def _on_cpu(events: Sequence[Event]) -> Iterator[Launch]:
    """Yield C++ kernels, and the outermost ops that hold no kernel and no graph's call."""
    threads = _Threads(events)
    for thread, own in threads._of.items():
        above = threads._above[thread]
        is_kernel = [e.is_op and bool(_CPP.match(e.name)) for e in own]
        holds = [False] * len(own)
        for at in range(len(own) - 1, -1, -1):
            if above[at] >= 0 and (holds[at] or is_kernel[at] or _MARKER.fullmatch(own[at].name)):
                holds[above[at]] = True
        is_work = [
            kernel or (e.is_op and is_dispatched(e.name) and not held)
            for e, kernel, held in zip(own, is_kernel, holds, strict=True)
        ]
        for at, each in enumerate(own):
            up = above[at]
            while up >= 0 and not is_work[up]:
                up = above[up]
            if is_work[at] and up < 0:
                yield Launch(each, (each,), each)


def union(intervals: Iterable[Interval], window: Interval | None = None) -> int:
    """Return how long at least one interval lasts, within a window if one is given."""
    total, reached = 0, None
    for start, end in sorted(intervals):
        if window is not None:
            start, end = max(start, window[0]), min(end, window[1])
        start = start if reached is None else max(start, reached)
        if end > start:
            total, reached = total + end - start, end
    return total


def by_op(found: Iterable[Launch]) -> Counter[str | None]:
    """Return how long launches of each innermost op took."""
    sums: Counter[str | None] = Counter()
    for each in found:
        sums[each.op.name if each.op else None] += each.event.end_ns - each.event.start_ns
    return sums
