"""Owns the calls of compiled graphs: each marker with what it ran, and where it was called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from profiler_ext.attribution.calls.enclosing import CallContext, EnclosingRanges
from profiler_ext.attribution.calls.patterns import Pattern, WorkItem
from profiler_ext.attribution.calls.work_items import WorkOfCalls
from profiler_ext.attribution.trace.enqueued import EnqueuedLaunches
from profiler_ext.attribution.trace.forward_links import ForwardLinks
from profiler_ext.attribution.trace.lookups import NO_ROW, Rows, flag_rows, take
from profiler_ext.kineto import classify, names
from profiler_ext.records import GapReason, Ints


@dataclass(frozen=True, slots=True, eq=False)
class GraphCall:
    """One call of a compiled graph, as the trace shows it.

    Attributes:
        marker: row of the marker.
        key: cache key that the marker carries.
        compile_id: id of the compiled frame, or of the forward's; ``None`` unknown.
        context: where it was called.
        pattern: what it ran.
        launches: its launches, by item of what it ran and in enqueue order.
        trials: launches of compile work inside the call, each with what it was.
        place: which call it is within one run of a compiled function, and of how many.
        graph: the index of its graph that the process noted, ``None`` where it noted none.
        frame_row: row of the compiled frame that it belongs to, a backward to its forward's.
        rows: the row of the operator that each item is, ``NO_ROW`` of a launch without one.
        caller: the marker of the call that it lies within and the operator there, if it does.
    """

    marker: int
    key: str | None
    compile_id: str | None
    context: CallContext
    pattern: Pattern
    launches: Ints
    trials: tuple[tuple[int, GapReason], ...]
    place: tuple[int, int]
    graph: int | None
    frame_row: int | None
    rows: Ints
    caller: tuple[int, int] | None

    @property
    def work(self) -> tuple[WorkItem, ...]:
        """What it ran, in enqueue order."""
        return self.pattern.work

    @property
    def is_replay(self) -> bool:
        """Whether a CUDA graph was replayed in this call."""
        return self.pattern.is_replay

    def launches_of_items(self) -> list[list[int]]:
        """Return for each item of what it ran its launches, in enqueue order."""
        launches = iter(self.launches.tolist())
        return [list(islice(launches, len(own))) for own in self.pattern.events]


def find_calls(enclosing: EnclosingRanges, enqueued: EnqueuedLaunches) -> tuple[GraphCall, ...]:
    """Collect every call of a compiled graph and what it ran.

    Args:
        enclosing: what stands around each event on its thread.
        enqueued: the launches of the trace.

    Returns:
        The calls, in the order of their markers' rows.
    """
    return _Calls(enclosing, enqueued).every()


class _Calls:
    def __init__(self, enclosing: EnclosingRanges, enqueued: EnqueuedLaunches) -> None:
        self._enclosing, self._enqueued = enclosing, enqueued
        marker = take(enclosing.marker, enqueued.cpu, NO_ROW)
        is_trial = enclosing.is_trial(enqueued.cpu)
        own = np.flatnonzero((marker != NO_ROW) & ~is_trial)
        trials = np.flatnonzero((marker != NO_ROW) & is_trial)
        self._work = WorkOfCalls(enclosing, enqueued, own)
        self._trials = _by_marker(marker[trials], trials)
        self._links, self._places = _forward_links(enclosing), _places(enclosing)

    def every(self) -> tuple[GraphCall, ...]:
        return tuple(map(self._call, np.flatnonzero(self._enclosing.is_marker).tolist()))

    def _call(self, marker: int) -> GraphCall:
        enclosing, name = self._enclosing, self._enclosing.events.name
        forward = _forward_row(enclosing, self._links, marker)
        frame_row = _frame_row(enclosing, forward)
        pattern, launches, rows = self._work.of_call(marker)
        return GraphCall(
            marker=marker,
            key=names.graph_key(name[marker]),
            compile_id=None if frame_row is None else names.compile_id(name[frame_row]),
            context=enclosing.context(marker, forward, self._links),
            pattern=pattern,
            launches=launches,
            trials=tuple(self._trials_of(marker)),
            place=self._places[marker],
            graph=enclosing.graph(marker),
            frame_row=frame_row,
            rows=rows,
            caller=enclosing.caller(marker),
        )

    def _trials_of(self, marker: int) -> Iterator[tuple[int, GapReason]]:
        for launch in self._trials.get(marker, np.empty(0, dtype=np.int64)).tolist():
            yield launch, self._enclosing.compile_work(int(self._enqueued.cpu[launch]))


def _by_marker(marker: Rows, values: Ints) -> dict[int, Ints]:
    order = np.argsort(marker, kind="stable")
    distinct, first = np.unique(marker[order], return_index=True)
    return dict(zip(distinct.tolist(), np.split(values[order], first[1:]), strict=False))


def _forward_links(enclosing: EnclosingRanges) -> ForwardLinks:
    def rows(predicate: Callable[[str], bool]) -> Ints:
        return np.flatnonzero(flag_rows(enclosing.events.name, predicate) & enclosing.is_op)

    forward, backward = rows(classify.is_compiled_forward), rows(classify.is_compiled_backward)
    return ForwardLinks(enclosing.events, forward, backward)


def _forward_row(enclosing: EnclosingRanges, links: ForwardLinks, marker: int) -> int | None:
    """Return the row at which the forward of a call ran: its own, or by sequence number."""
    backward = enclosing.own(enclosing.backward, marker)
    return marker if backward == NO_ROW else links.forward_of(backward)


def _frame_row(enclosing: EnclosingRanges, forward: int | None) -> int | None:
    """Return the row of a call's compiled frame; a backward's is that of its forward."""
    frame = NO_ROW if forward is None else enclosing.own(enclosing.frame, forward)
    return None if frame == NO_ROW else frame


def _places(enclosing: EnclosingRanges) -> dict[int, tuple[int, int]]:
    """Return for each marker which call it is within one run of a compiled function."""
    markers = np.flatnonzero(enclosing.is_marker)
    markers = markers[np.argsort(enclosing.events.start_ns[markers], kind="stable")]
    runs = _by_marker(enclosing.compiled_range[markers], markers).values()
    return {int(row): (at, len(own)) for own in runs for at, row in enumerate(own)}
