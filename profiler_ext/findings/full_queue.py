"""When the CPU waits for room in a stream's queue: it is ahead of the device, and does not work.

A stream holds some 1,000 launches that have not ended (1,022 in traces of H200s). A call that adds
one more returns when one of them has ended, so it takes as long as a kernel.

Source: https://forums.developer.nvidia.com/t/cuda-stream-are-blocked-when-luanch-lots-of-kernels-1000/68937
"""

from __future__ import annotations

from typing import Final

import numpy as np

from profiler_ext.records.analysis import Launches
from profiler_ext.records.events import Events, Ints

_LATE_NS: Final = 20_000  # a call that takes so much longer than the usual one waited
# Events, waits between streams and copies have a place in the queue, too, and no launch
_LEAST_QUEUED: Final = 512


def waits_for_room(launches: Launches, rows: Ints, events: Events, call: Ints) -> tuple[Ints, Ints]:
    """Return when calls waited for room, begins and ends; spans of several threads may overlap.

    Args:
        rows: launches of kernels, one by one.
        call: row of the event of the call that launched each of these.
    """
    took_ns = events.duration_ns[call]
    usual_ns = int(np.median(took_ns)) if len(took_ns) else 0
    is_late = took_ns > usual_ns + _LATE_NS
    if is_late.any():
        is_late &= _queued(launches, rows, events.start_ns[call]) >= _LEAST_QUEUED
    waiting = call[is_late]
    return events.start_ns[waiting] + usual_ns, events.end_of(waiting)


def _queued(launches: Launches, rows: Ints, call_ns: Ints) -> Ints:
    """Return how many launches of its stream had been queued before each, and had not ended."""
    queued = np.zeros(len(rows), np.int64)
    streams = np.stack([launches.device[rows], launches.stream.filled(-1)[rows]])
    for stream in np.unique(streams, axis=1).T:
        own = np.flatnonzero((stream == streams.T).all(axis=1))
        ends_ns = np.sort((launches.start_ns + launches.duration_ns)[rows[own]])
        before = np.searchsorted(np.sort(call_ns[own]), call_ns[own], side="left")
        queued[own] = before - np.searchsorted(ends_ns, call_ns[own], side="right")
    return queued
