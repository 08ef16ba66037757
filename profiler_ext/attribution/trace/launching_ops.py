"""Owns under which CPU event each launch was enqueued: nesting decides, and ids confirm it.

Torch writes the id of the launching op as ``External id`` of what runs on a device. Some traces
have the correlation id there, which then hits an op only by chance: what the ids of a trace are is
judged from all of its launches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, find_unique, flag_rows, take
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.kineto import classify
from profiler_ext.records import Events, Ints


class LaunchingEvents(NamedTuple):
    """Where the CPU enqueued launches.

    Attributes:
        cpu: row of the innermost CPU event around the call of each, or ``NO_ROW``.
        ids_name_ops: external ids are those of ops; else of correlations, and tell nothing.
    """

    cpu: Ints
    ids_name_ops: bool


def find_launching_events(
    events: Events, nesting: Nesting, rows: Ints, call: Ints
) -> LaunchingEvents:
    """Find the innermost CPU event around each launching call.

    Where the trace's ids name ops, an id also tells the op of what has no call in the trace or no
    op around its call, and of a call that juts out of its op: calls are timed by another clock.

    Args:
        events: the trace's events.
        nesting: which of them stands in which.
        rows: rows of the device's events.
        call: row of the launching call of each, or ``NO_ROW``.
    """
    is_op = flag_rows(events.category, classify.is_op)
    by_id = find_unique(events.external_id, np.flatnonzero(is_op), events.external_id[rows])
    nested = take(nesting.parent, call, NO_ROW).astype(np.int64)
    op = take(nesting.nearest(is_op), nested, NO_ROW).astype(np.int64)
    if not _ids_name_ops(events, rows, by_id, op):
        return LaunchingEvents(nested, ids_name_ops=False)
    decides = (by_id != NO_ROW) & ((op == NO_ROW) | _overlaps(events, call, by_id))
    return LaunchingEvents(np.where(decides & (by_id != op), by_id, nested), ids_name_ops=True)


def _ids_name_ops(events: Events, rows: Ints, by_id: Ints, op: Ints) -> bool:
    """Judge all launches: ids agree with the nesting, or each is the launch's correlation."""
    known = (by_id != NO_ROW) & (op != NO_ROW)
    if known.any():
        return int((by_id[known] == op[known]).sum()) * 2 > int(known.sum())
    external, correlation = events.external_id[rows], events.correlation[rows]
    both = ~np.ma.getmaskarray(external) & ~np.ma.getmaskarray(correlation)
    return not both.any() or bool((external.data != correlation.data)[both].any())


def _overlaps(events: Events, call: Ints, op: Ints) -> Flags:
    """Tell of which launches the call overlaps an op on the same thread."""
    is_same = take(events.thread, call, NO_ROW) == take(events.thread, op, NO_ROW)
    end_ns = events.end_of(np.arange(len(events)))
    begins_before = take(events.start_ns, call, 0) < take(end_ns, op, 0)
    ends_after = take(end_ns, call, 0) > take(events.start_ns, op, 0)
    overlap: Flags = is_same & begins_before & ends_after
    return overlap
