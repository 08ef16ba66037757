"""The launches of a trace: the runtime call and CPU event that enqueued each, and their order.

Torch writes the launching op's id as ``External id`` of what runs on a device. Some traces have the
correlation id there, which matches an op only by chance; this is decided from all launches.

A stream runs in order, so what is out of order is tied to the wrong call. Of two that changed
places either may be; certain is what keeps its position whichever is taken out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, find_unique, take
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.kineto import classify, names
from profiler_ext.records.events import Events, Ints, flag_rows, numbered
from profiler_ext.records.evidence import SiteEvidence


class LaunchingEvents(NamedTuple):
    """Where the CPU enqueued launches."""

    cpu: Ints  # row of the innermost CPU event around the call of each, or ``NO_ROW``
    ids_name_ops: bool  # external ids are those of ops; else of correlations


def find_launching_events(
    events: Events, nesting: Nesting, rows: Ints, call: Ints
) -> LaunchingEvents:
    """Find the innermost CPU event around each launch call."""
    # Where the trace's ids name ops, an id also gives the op of a call that is missing, has no op
    # around it, or overhangs its op, as calls are timed by another clock.
    is_op = flag_rows(events.category, classify.is_op)
    by_id = find_unique(events.external_id, np.flatnonzero(is_op), events.external_id[rows])
    nested = take(nesting.parent, call, NO_ROW).astype(np.int64)
    op = take(nesting.nearest(is_op), nested, NO_ROW).astype(np.int64)
    if not _ids_name_ops(events, rows, by_id, op):
        return LaunchingEvents(nested, ids_name_ops=False)
    is_same = take(events.thread, call, NO_ROW) == take(events.thread, by_id, NO_ROW)
    end_ns = events.end_of(np.arange(len(events)))
    begins_before = take(events.start_ns, call, 0) < take(end_ns, by_id, 0)
    ends_after = take(end_ns, call, 0) > take(events.start_ns, by_id, 0)
    overlap: Flags = is_same & begins_before & ends_after
    decides = (by_id != NO_ROW) & ((op == NO_ROW) | overlap)
    return LaunchingEvents(np.where(decides & (by_id != op), by_id, nested), ids_name_ops=True)


def _ids_name_ops(events: Events, rows: Ints, by_id: Ints, op: Ints) -> bool:
    """Tell whether ids agree with the nesting, rather than being correlations."""
    known = (by_id != NO_ROW) & (op != NO_ROW)
    if known.any():
        return int((by_id[known] == op[known]).sum()) * 2 > int(known.sum())
    external, correlation = events.external_id[rows], events.correlation[rows]
    both = ~np.ma.getmaskarray(external) & ~np.ma.getmaskarray(correlation)
    return not both.any() or bool((external.data != correlation.data)[both].any())


@dataclass(frozen=True, slots=True)
class EnqueuedLaunches:
    """The launches of a trace in order of start, and where the CPU enqueued them."""

    event: Ints  # row of the device event (of the CPU event, where the trace has no device)
    call: Ints  # row of the launching runtime call, or ``NO_ROW``
    cpu: Ints  # row of the innermost CPU event around that call, or ``NO_ROW``
    enqueue_ns: Ints
    queue: Ints  # number of its device and stream, which run in order
    on_cpu: bool  # the trace holds no device events, so CPU events are the launches
    ids_name_ops: bool = True  # external ids are those of ops, so that they confirm ``cpu``

    def __len__(self) -> int:
        return len(self.event)

    @property
    def op_evidence(self) -> SiteEvidence:
        """Return the evidence for the op of a launch."""
        return SiteEvidence.LAUNCHING_OP if self.ids_name_ops else SiteEvidence.ENCLOSING_OP


def work_name(events: Events, row: int) -> str:
    """Return the name of what a device event ran."""
    return classify.work_name(events.name[row], events.category[row])


def find_launches(events: Events, nesting: Nesting) -> EnqueuedLaunches:
    """Find every launch of the trace; no device event is left out."""
    device_rows = np.flatnonzero(flag_rows(events.category, classify.is_device_work))
    if not len(device_rows):
        return _on_cpu(events, nesting)
    rows = device_rows[np.lexsort((device_rows, events.start_ns[device_rows]))]
    call = _launching_calls(events, rows)
    queue = numbered([events.device[rows].filled(0), events.stream[rows].filled(0)])
    cpu, ids_name_ops = find_launching_events(events, nesting, rows, call)
    enqueue_ns = _enqueue_ns(events, rows, call, queue)
    return EnqueuedLaunches(rows, call, cpu, enqueue_ns, queue, False, ids_name_ops)


def _enqueue_ns(events: Events, rows: Ints, call: Ints, queue: Ints) -> Ints:
    """Return when the CPU enqueued each launch; at its start at the latest."""
    # A queue runs in order. So a launch whose call is not in the trace was enqueued before the next
    # one in its queue that was waiting meanwhile. Where it is the first of its queue, its call was
    # made before the recording began.
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
    """Find every launch call, as if each had run one thing on the device."""
    # While a CUDA graph is recorded the calls run nothing, yet each becomes a node of the graph.
    calls = flag_rows(events.name, names.is_launch_call) & ~flag_rows(
        events.name, names.is_graph_launch
    )
    rows = np.flatnonzero(calls & flag_rows(events.category, classify.is_runtime_call))
    rows = rows[np.lexsort((rows, events.start_ns[rows]))]
    queue = np.zeros(len(rows), dtype=np.int64)
    cpu = take(nesting.parent, rows, NO_ROW).astype(np.int64)
    return EnqueuedLaunches(rows, rows, cpu, events.start_ns[rows], queue, on_cpu=False)


def _launching_calls(events: Events, rows: Ints) -> Ints:
    """Return the one runtime call with each device event's correlation."""
    # A driver call within a runtime call of the same correlation is a part of it, as on an XPU.
    calls = np.flatnonzero(flag_rows(events.category, classify.is_runtime_call))
    by_correlation = find_unique(events.correlation, calls, events.correlation[rows])
    if (by_correlation != NO_ROW).all():
        return by_correlation
    outer = calls[~flag_rows(events.category, classify.is_driver_call)[calls]]
    of_runtime = find_unique(events.correlation, outer, events.correlation[rows])
    return np.where(by_correlation == NO_ROW, of_runtime, by_correlation)


def _on_cpu(events: Events, nesting: Nesting) -> EnqueuedLaunches:
    """Return the launches of a CPU-only trace: Inductor's C++ kernels and outermost operators."""
    is_op = flag_rows(events.category, classify.is_op)
    kernel = is_op & flag_rows(events.name, classify.is_cpu_kernel)
    marker = flag_rows(events.name, names.is_graph_marker)
    operator = is_op & flag_rows(events.name, classify.is_dispatched_op)
    work = kernel | (operator & ~nesting.holds(kernel | marker))
    outermost = nesting.outermost(work, np.zeros(len(work), dtype=np.bool_))
    rows = np.flatnonzero(work & (outermost == np.arange(len(work))))
    rows = rows[np.lexsort((rows, events.start_ns[rows]))]
    nothing = np.full(len(rows), NO_ROW, dtype=np.int64)
    queue = events.thread[rows].astype(np.int64)
    return EnqueuedLaunches(rows, nothing, rows, events.start_ns[rows], queue, on_cpu=True)


def out_of_order(events: Events, enqueued: EnqueuedLaunches) -> Flags:
    """Flag the launches of which it is not sure that they ran in the order of their calls."""
    flags = np.zeros(len(enqueued), dtype=np.bool_)
    known = np.flatnonzero(enqueued.call != NO_ROW)
    queue, call = enqueued.queue[known], enqueued.call[known]
    for rows in _groups(known, numbered([queue, events.thread[call]])):
        times = enqueued.enqueue_ns[rows]
        if (np.diff(times) < 0).any():
            flags[rows] |= _is_uncertain(times)
    for rows in _groups(known, queue):
        # Tell whether a call was over before one began whose launch ran earlier, in any thread.
        # Threads that launch at the same time may be served in either order.
        calls = enqueued.call[rows]
        starts, ends = events.start_ns[calls], events.end_of(calls)
        if bool((ends[1:] < np.maximum.accumulate(starts)[:-1]).any()):
            flags[rows] |= _is_uncertain(enqueued.enqueue_ns[rows])
    return flags


def _groups(rows: Ints, keys: Ints) -> Iterator[Ints]:
    """Yield the rows that have the same key, in their order."""
    order = np.argsort(keys, kind="stable")
    bounds = np.flatnonzero(np.diff(keys[order])) + 1
    yield from (rows[group] for group in np.split(order, bounds) if len(group))


def _is_uncertain(times: Ints) -> Flags:
    return np.array([not sure for sure in in_every_longest_order(times.tolist())], dtype=np.bool_)


def in_every_longest_order(values: Sequence[int]) -> list[bool]:
    """Flag values that are in every longest non-decreasing subsequence."""
    before = _lengths(values)
    after = _lengths([-value for value in reversed(values)])[::-1]
    longest = max(before, default=0)
    is_in_one = [a + b - 1 == longest for a, b in zip(before, after, strict=True)]
    alike = [0] * (longest + 1)
    for length, is_in in zip(before, is_in_one, strict=True):
        alike[length] += is_in
    return [is_in and alike[n] == 1 for n, is_in in zip(before, is_in_one, strict=True)]


def _lengths(values: Iterable[int]) -> list[int]:
    """Return the length of the longest non-decreasing subsequence that ends with each value."""
    ends: list[int] = []
    lengths: list[int] = []
    for value in values:
        at = bisect_right(ends, value)
        ends[at : at + 1] = [value]
        lengths.append(at + 1)
    return lengths
