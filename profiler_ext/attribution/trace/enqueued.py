"""Owns which events are launches, and by which call and under which CPU event each was enqueued."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.trace.launching_ops import find_launching_events
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, find_unique, flag_rows, take
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.kineto import classify, names
from profiler_ext.records import Events, Ints, SiteEvidence, numbered


@dataclass(frozen=True, slots=True)
class EnqueuedLaunches:
    """The launches of a trace in order of start, and where the CPU enqueued them.

    Attributes:
        event: row of the device event (of the CPU event, where the trace has no device).
        call: row of the launching runtime call, or ``NO_ROW``.
        cpu: row of the innermost CPU event around that call, or ``NO_ROW``.
        enqueue_ns: when the CPU enqueued it.
        queue: number of its device and stream; what one queue gets, it runs in order.
        on_cpu: the trace holds no device events, so CPU events are the launches.
        ids_name_ops: external ids are those of ops, so that they confirm ``cpu``.
    """

    event: Ints
    call: Ints
    cpu: Ints
    enqueue_ns: Ints
    queue: Ints
    on_cpu: bool
    ids_name_ops: bool = True

    def __len__(self) -> int:
        """Return the number of launches."""
        return len(self.event)

    @property
    def op_evidence(self) -> SiteEvidence:
        """What tells the op that launched something."""
        return SiteEvidence.LAUNCHING_OP if self.ids_name_ops else SiteEvidence.ENCLOSING_OP


def work_name(events: Events, row: int) -> str:
    """Return the name of what a device event ran.

    Args:
        events: the trace's events.
        row: the row of a device event.
    """
    return classify.work_name(events.name[row], events.category[row])


def find_launches(events: Events, nesting: Nesting) -> EnqueuedLaunches:
    """Find every launch of the trace; no device event is left out.

    Args:
        events: the trace's events.
        nesting: which of them stands in which.

    Returns:
        The launches, in order of start.
    """
    device_rows = np.flatnonzero(flag_rows(events.category, classify.is_device_work))
    if not len(device_rows):
        return _on_cpu(events, nesting)
    rows = device_rows[np.lexsort((device_rows, events.start_ns[device_rows]))]
    call = _launching_calls(events, rows)
    queue = _queues(events, rows)
    cpu, ids_name_ops = find_launching_events(events, nesting, rows, call)
    enqueue_ns = _enqueue_ns(events, rows, call, queue)
    return EnqueuedLaunches(rows, call, cpu, enqueue_ns, queue, False, ids_name_ops)


def _enqueue_ns(events: Events, rows: Ints, call: Ints, queue: Ints) -> Ints:
    """Return when the CPU enqueued each launch; at its start at the latest.

    A queue runs in order what it gets. So a launch whose call is not in the trace, and which ran
    before one that was waiting meanwhile, had been enqueued before that one. Where it is the first
    of its queue, its call was made before the recording began.
    """
    enqueue_ns = np.where(call == NO_ROW, events.start_ns[rows], take(events.start_ns, call, 0))
    unknown = np.flatnonzero(call == NO_ROW)
    if not len(unknown) or len(unknown) == len(rows):
        return enqueue_ns
    before_ns = int(events.start_ns.min()) - 1
    for each in np.unique(queue[unknown]).tolist():
        own = np.flatnonzero(queue == each)
        known = call[own] != NO_ROW
        next_ns = np.where(known, enqueue_ns[own], np.iinfo(np.int64).max)
        next_ns = np.minimum.accumulate(next_ns[::-1])[::-1]
        waited = ~known & (next_ns < enqueue_ns[own])
        enqueue_ns[own[waited]] = next_ns[waited]
        first_waited = np.flatnonzero(waited & (np.cumsum(known) == 0))
        enqueue_ns[own[: first_waited.max(initial=-1) + 1]] = before_ns
    return enqueue_ns


def find_launch_calls(events: Events, nesting: Nesting) -> EnqueuedLaunches:
    """Find every launching runtime call, as if each had run one thing on the device.

    While a CUDA graph is recorded the calls run nothing, yet each becomes a node of the graph.

    Args:
        events: the trace's events.
        nesting: which of them stands in which.

    Returns:
        The calls as launches, whose event is the call itself.
    """
    calls = flag_rows(events.name, names.is_launch_call) & ~flag_rows(
        events.name, names.is_graph_launch
    )
    rows = np.flatnonzero(calls & flag_rows(events.category, classify.is_runtime_call))
    rows = rows[np.lexsort((rows, events.start_ns[rows]))]
    queue = np.zeros(len(rows), dtype=np.int64)
    cpu = take(nesting.parent, rows, NO_ROW).astype(np.int64)
    return EnqueuedLaunches(rows, rows, cpu, events.start_ns[rows], queue, on_cpu=False)


def _queues(events: Events, rows: Ints) -> Ints:
    return numbered([events.device[rows].filled(0), events.stream[rows].filled(0)])


def _launching_calls(events: Events, rows: Ints) -> Ints:
    """Follow each device event's correlation to the one runtime call that has it.

    A driver call within a runtime call of the same correlation is a part of it, as on an XPU.
    """
    calls = np.flatnonzero(flag_rows(events.category, classify.is_runtime_call))
    by_correlation = find_unique(events.correlation, calls, events.correlation[rows])
    if (by_correlation != NO_ROW).all():
        return by_correlation
    outer = calls[~flag_rows(events.category, classify.is_driver_call)[calls]]
    of_runtime = find_unique(events.correlation, outer, events.correlation[rows])
    return np.where(by_correlation == NO_ROW, of_runtime, by_correlation)


def _on_cpu(events: Events, nesting: Nesting) -> EnqueuedLaunches:
    """On a CPU the launches are Inductor's C++ kernels and the outermost operators."""
    is_op = flag_rows(events.category, classify.is_op)
    kernel = is_op & flag_rows(events.name, classify.is_cpu_kernel)
    marker = flag_rows(events.name, names.is_graph_marker)
    operator = is_op & flag_rows(events.name, classify.is_dispatched_op)
    rows = _outermost_work(nesting, kernel | (operator & ~nesting.holds(kernel | marker)))
    rows = rows[np.lexsort((rows, events.start_ns[rows]))]
    nothing = np.full(len(rows), NO_ROW, dtype=np.int64)
    queue = events.thread[rows].astype(np.int64)
    return EnqueuedLaunches(rows, nothing, rows, events.start_ns[rows], queue, on_cpu=True)


def _outermost_work(nesting: Nesting, work: Flags) -> Ints:
    outermost = nesting.outermost(work, np.zeros(len(work), dtype=np.bool_))
    return np.flatnonzero(work & (outermost == np.arange(len(work))))
