"""Owns the arrows: from a CPU call to its launches, and from a forward to a backward launch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from profiler_ext.exporters.perfetto.pairs import forward_of_backward
from profiler_ext.records import Analysis, Events, Launches


class Flows:
    """One flow for each launch, so that a replayed CUDA graph is a star and not a chain.

    Attributes:
        host_rows: rows of ``Events`` which are not on a device's track.
        device_rows: the others.
        from_host: ids of the flows that start at a row of ``Events``.
        from_launch: ids of the flows that start at a launch: a forward's, to its backward.
        to_launch: ids of the flows that end at a launch.
    """

    def __init__(self, analysis: Analysis) -> None:
        events, launches = analysis.recording.trace.events, analysis.launches
        on_device = _on_device(events, launches)
        self.host_rows: list[int] = np.flatnonzero(~on_device).tolist()
        self.device_rows: list[int] = np.flatnonzero(on_device).tolist()
        self._from_host: dict[int, list[int]] = defaultdict(list)
        self._from_launch: dict[int, list[int]] = defaultdict(list)
        self._to_launch: dict[int, list[int]] = defaultdict(list)
        self._from_calls(_calls(events, self.host_rows), launches)
        self._from_forward(forward_of_backward(analysis), first=len(launches) + 1)
        self.from_host = _frozen(self._from_host)
        self.from_launch = _frozen(self._from_launch)
        self.to_launch = _frozen(self._to_launch)

    def _from_calls(self, calls: Mapping[int, int], launches: Launches) -> None:
        for launch, correlation in _correlated(launches):
            if correlation in calls:
                self._from_host[calls[correlation]].append(launch + 1)
                self._to_launch[launch].append(launch + 1)

    def _from_forward(self, pairs: Mapping[int, int], first: int) -> None:
        for flow, (backward, forward) in enumerate(pairs.items(), first):
            self._from_launch[forward].append(flow)
            self._to_launch[backward].append(flow)


def _frozen(flows: Mapping[int, list[int]]) -> dict[int, tuple[int, ...]]:
    return {row: tuple(ids) for row, ids in flows.items()}


def _on_device(events: Events, launches: Launches) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    on_stream = launches.event[~np.ma.getmaskarray(launches.stream)]
    pids = {events.threads[index].pid for index in np.unique(events.thread[on_stream])}
    device_threads = [index for index, thread in enumerate(events.threads) if thread.pid in pids]
    return np.isin(events.thread, device_threads)


def _calls(events: Events, host_rows: list[int]) -> dict[int, int]:
    absent = np.ma.getmaskarray(events.correlation)
    numbers = events.correlation.data
    return {int(numbers[row]): row for row in host_rows if not absent[row]}


def _correlated(launches: Launches) -> list[tuple[int, int]]:
    present = np.flatnonzero(
        ~(np.ma.getmaskarray(launches.correlation) | np.ma.getmaskarray(launches.stream))
    )
    return [(int(row), int(launches.correlation.data[row])) for row in present]
