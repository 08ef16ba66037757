"""Owns the arrows: which CPU call started which launch, and which events are the CPU's."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from profiler_ext.records import Analysis, Events, Launches


class Flows:
    """One flow for each launch, so that a replayed CUDA graph is a star and not a chain.

    Attributes:
        host_rows: rows of ``Events`` which are not on a device's track.
        device_rows: the others.
        from_host: ids of the flows that start at a row of ``Events``.
        to_launch: id of the flow that ends at a launch.
    """

    def __init__(self, analysis: Analysis) -> None:
        events, launches = analysis.recording.trace.events, analysis.launches
        on_device = _on_device(events, launches)
        self.host_rows: list[int] = np.flatnonzero(~on_device).tolist()
        self.device_rows: list[int] = np.flatnonzero(on_device).tolist()
        self.to_launch: dict[int, int] = {}
        started: dict[int, list[int]] = defaultdict(list)
        calls = _calls(events, self.host_rows)
        for launch, correlation in _correlated(launches):
            if correlation in calls:
                self.to_launch[launch] = launch + 1
                started[calls[correlation]].append(launch + 1)
        self.from_host = {row: tuple(ids) for row, ids in started.items()}


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
