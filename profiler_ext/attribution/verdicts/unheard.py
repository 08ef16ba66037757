"""Owns which launches are of threads whose operators were not recorded."""

from __future__ import annotations

import numpy as np

from profiler_ext.attribution.trace.enqueued import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, flag_rows, take
from profiler_ext.kineto import classify
from profiler_ext.records import GapReason, Recording


def launches_on_unrecorded_threads(recording: Recording, enqueued: EnqueuedLaunches) -> Flags:
    """Return for each launch whether its thread has no operator, as not all were recorded.

    Args:
        recording: what was recorded.
        enqueued: its launches.
    """
    if all(gap.reason is not GapReason.THREAD_NOT_RECORDED for gap in recording.gaps):
        return np.zeros(len(enqueued), dtype=np.bool_)
    events = recording.trace.events
    recorded = events.thread[flag_rows(events.category, classify.is_op)]
    thread = take(events.thread.astype(np.int64), enqueued.call, NO_ROW)
    is_unrecorded: Flags = (enqueued.call != NO_ROW) & ~np.isin(thread, recorded)
    return is_unrecorded
