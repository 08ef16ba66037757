"""Owns the calls of compiled graphs: each marker with what it ran, and where it was called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.calls.enclosing import CallContext, EnclosingRanges
from profiler_ext.attribution.calls.work_items import WorkItem, work_items_of
from profiler_ext.attribution.trace.enqueued import EnqueuedLaunches, work_name
from profiler_ext.attribution.trace.forward_links import ForwardLinks
from profiler_ext.attribution.trace.lookups import NO_ROW, flag_rows, take
from profiler_ext.kineto import classify, names
from profiler_ext.records import Events, GapReason, Ints


@dataclass(frozen=True, slots=True)
class GraphCall:
    """One call of a compiled graph, as the trace shows it.

    Attributes:
        marker: row of the marker.
        key: cache key that the marker carries.
        compile_id: id of the compiled frame, or of the forward's; ``None`` unknown.
        context: where it was called.
        work: what it ran, in enqueue order.
        launches: for each item its launches, in enqueue order.
        event_names: for each item the names of the device events of its launches.
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
    work: tuple[WorkItem, ...]
    launches: tuple[tuple[int, ...], ...]
    trials: tuple[tuple[int, GapReason], ...]
    place: tuple[int, int] = (0, 1)
    graph: int | None = None
    frame_row: int | None = None
    rows: tuple[int, ...] = ()
    caller: tuple[int, int] | None = None
    event_names: tuple[tuple[str, ...], ...] = ()

    @property
    def is_replay(self) -> bool:
        """Whether a CUDA graph was replayed in this call."""
        return any(item.replayed for item in self.work)


def find_calls(enclosing: EnclosingRanges, enqueued: EnqueuedLaunches) -> tuple[GraphCall, ...]:
    """Collect every call of a compiled graph and what it ran.

    Args:
        enclosing: what stands around each event on its thread.
        enqueued: the launches of the trace.

    Returns:
        The calls, in the order of their markers' rows.
    """
    item_row = _item_rows(enclosing, enqueued)
    inside = np.flatnonzero(take(enclosing.marker, enqueued.cpu, NO_ROW) != NO_ROW)
    members = _by_marker(take(enclosing.marker, enqueued.cpu[inside], NO_ROW), inside)
    called = _called_rows(enclosing)
    links, places = _forward_links(enclosing), _places(enclosing)
    return tuple(
        _call(enclosing, enqueued, item_row, members, called, links, places, int(marker))
        for marker in np.flatnonzero(enclosing.is_marker)
    )


def _item_rows(enclosing: EnclosingRanges, enqueued: EnqueuedLaunches) -> Ints:
    """Return for each launch the operator called by the marker, or the runtime call itself."""
    by_operator = take(enclosing.operator, enqueued.cpu, NO_ROW)
    return np.where(by_operator == NO_ROW, enqueued.call, by_operator)


def _called_rows(enclosing: EnclosingRanges) -> dict[int, Ints]:
    """Return for each marker the operators that it called itself, trials left out."""
    operator = enclosing.operator
    rows = np.flatnonzero((operator == np.arange(len(operator))) & (enclosing.marker != NO_ROW))
    rows = rows[~enclosing.is_trial(rows)]
    return _by_marker(enclosing.marker[rows], rows)


def _by_marker(marker: Ints, values: Ints) -> dict[int, Ints]:
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


def _call(
    enclosing: EnclosingRanges,
    enqueued: EnqueuedLaunches,
    item_row: Ints,
    members: dict[int, Ints],
    called: dict[int, Ints],
    links: ForwardLinks,
    places: dict[int, tuple[int, int]],
    marker: int,
) -> GraphCall:
    launches = members.get(marker, np.empty(0, dtype=np.int64))
    trial = enclosing.is_trial(enqueued.cpu[launches])
    forward = _forward_row(enclosing, links, marker)
    frame_row = _frame_row(enclosing, forward)
    items = work_items_of(
        enclosing.events, enqueued, item_row, launches[~trial], called.get(marker)
    )
    return GraphCall(
        marker=marker,
        key=names.graph_key(enclosing.events.name[marker]),
        compile_id=None
        if frame_row is None
        else names.compile_id(enclosing.events.name[frame_row]),
        context=enclosing.context(marker, forward, links),
        work=tuple(item for item, _, _ in items),
        launches=tuple(own for _, own, _ in items),
        trials=tuple(
            (launch, enclosing.compile_work(int(enqueued.cpu[launch])))
            for launch in launches[trial].tolist()
        ),
        place=places[marker],
        graph=enclosing.graph(marker),
        frame_row=frame_row,
        rows=tuple(row for _, _, row in items),
        caller=enclosing.caller(marker),
        event_names=tuple(_names(enclosing.events, enqueued, own) for _, own, _ in items),
    )


def _names(events: Events, enqueued: EnqueuedLaunches, launches: Sequence[int]) -> tuple[str, ...]:
    return tuple(work_name(events, int(enqueued.event[at])) for at in launches)


def _places(enclosing: EnclosingRanges) -> dict[int, tuple[int, int]]:
    """Return for each marker which call it is within one run of a compiled function."""
    markers = np.flatnonzero(enclosing.is_marker)
    markers = markers[np.argsort(enclosing.events.start_ns[markers], kind="stable")]
    runs = _by_marker(enclosing.compiled_range[markers], markers).values()
    return {int(row): (at, len(own)) for own in runs for at, row in enumerate(own)}
