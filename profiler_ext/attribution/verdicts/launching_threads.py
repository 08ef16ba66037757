"""Owns which threads launch, and how exactly the times of their runtime calls are known."""

from __future__ import annotations

import numpy as np

from profiler_ext.attribution.calls.enclosing import EnclosingRanges
from profiler_ext.attribution.trace.enqueued import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags


def threads_of_ops(enclosing: EnclosingRanges) -> frozenset[int]:
    """Return the system's ids of the threads that launch: only they can have called a backward."""
    events = enclosing.events
    known = np.unique(events.thread[np.flatnonzero(enclosing.is_op)]).tolist()
    ids = (events.threads[each].tid for each in known)
    return frozenset(tid for tid in ids if isinstance(tid, int))


def max_call_overhang_ns(enclosing: EnclosingRanges, enqueued: EnqueuedLaunches) -> int:
    """Return how far a runtime call juts out of the op that made it: its clock is another.

    Args:
        enclosing: what each event stands in.
        enqueued: the launches, with their calls and ops.

    Returns:
        Nanoseconds, the most that any does.
    """
    events = enclosing.events
    both = (enqueued.cpu != NO_ROW) & (enqueued.call != NO_ROW)
    op, call = enqueued.cpu[both], enqueued.call[both]
    is_op: Flags = enclosing.is_op[op]
    op, call = op[is_op], call[is_op]
    early = events.start_ns[op] - events.start_ns[call]
    late = events.end_of(call) - events.end_of(op)
    return int(max(early.max(initial=0), late.max(initial=0), 0))
