"""Owns the arrows: from a CPU call to its launches, and from a forward to a backward launch."""

from __future__ import annotations

import numpy as np

from profiler_ext.exporters.perfetto.flow_ids import FROM, TO, FlowIds
from profiler_ext.exporters.perfetto.pairs import forward_launches
from profiler_ext.records import Analysis, Events, Ints, Launches


class Flows:
    """One flow for each launch, so that a replayed CUDA graph is a star and not a chain.

    Attributes:
        host_rows: rows of ``Events`` which are not on a device's track.
        device_rows: the others.
        from_host: the flows that start at a row of ``Events``.
        from_launch: the flows that start at a launch: a forward's, to its backward.
        to_launch: the flows that end at a launch.
    """

    def __init__(self, analysis: Analysis) -> None:
        events, launches = analysis.recording.trace.events, analysis.launches
        on_device = _on_device(events, launches)
        self.host_rows: Ints = np.flatnonzero(~on_device)
        self.device_rows: Ints = np.flatnonzero(on_device)
        called, calls = _calls(events, self.host_rows, launches)
        pairs = forward_launches(analysis)
        backward, forward = (np.array([*each], np.int64) for each in (pairs, pairs.values()))
        between = np.arange(len(pairs)) + len(launches) + 1
        self.from_host = FlowIds(FROM, calls, called + 1)
        self.from_launch = FlowIds(FROM, forward, between)
        self.to_launch = FlowIds(
            TO, np.concatenate((called, backward)), np.concatenate((called + 1, between))
        )


def _on_device(events: Events, launches: Launches) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    on_stream = launches.event[~np.ma.getmaskarray(launches.stream)]
    pids = {events.threads[index].pid for index in np.unique(events.thread[on_stream])}
    device_threads = [index for index, thread in enumerate(events.threads) if thread.pid in pids]
    return np.isin(events.thread, device_threads)


def _calls(events: Events, host_rows: Ints, launches: Launches) -> tuple[Ints, Ints]:
    """Return the launches whose call on the CPU is known, and the rows of their calls."""
    rows = host_rows[~np.ma.getmaskarray(events.correlation)[host_rows]]
    numbers = events.correlation.data[rows]
    order = np.argsort(numbers, kind="stable")
    numbers, rows = numbers[order], rows[order]
    absent = np.ma.getmaskarray(launches.correlation) | np.ma.getmaskarray(launches.stream)
    correlated = np.flatnonzero(~absent)
    wanted = launches.correlation.data[correlated]
    # Of several calls with one number the last in the file.
    last = np.searchsorted(numbers, wanted, "right") - 1
    known = last >= 0
    known[known] = numbers[last[known]] == wanted[known]
    return correlated[known], rows[last[known]]
