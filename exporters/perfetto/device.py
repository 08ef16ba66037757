"""Owns the devices' side: a group for each GPU (or for the CPU's compute) and its tracks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from exporters.perfetto.arguments import LaunchArguments, optional
from exporters.perfetto.flows import Flows
from exporters.perfetto.lanes import Span
from exporters.perfetto.launches import LaunchSpans
from exporters.perfetto.packets import PacketWriter
from exporters.perfetto.runs import LANES, Runs
from exporters.perfetto.tracks import Tracks
from profiler_ext.records import Analysis

CPU_COMPUTE = "CPU compute"
NO_ACTIVITY = "nothing recorded on the CPU"
_GROUPS_RANK = 1
_LANES_RANK, _IDLE_RANK, _OTHERS_RANK = 1_000_000, 1_000_100, 1_000_200


class _Group(NamedTuple):
    device: int
    on_gpu: bool


def draw_devices(writer: PacketWriter, tracks: Tracks, analysis: Analysis, flows: Flows) -> None:
    """Draw every launch once, lanes which say what launches computed, and idle time.

    Args:
        writer: encodes the slices.
        tracks: describes the tracks.
        analysis: the launches, places and idle spans.
        flows: arrows from the CPU, and the events of the devices.
    """
    drawing = _Drawing(writer, tracks, analysis, flows)
    groups = _groups(analysis)
    for rank, (group, rows) in enumerate(groups.items()):
        uuid = tracks.track(_name(analysis, group), rank=_GROUPS_RANK + rank)
        drawing.launches(uuid, group, rows)
        drawing.lanes(uuid, rows)
        if group.on_gpu or _Group(group.device, True) not in groups:
            drawing.idle(uuid, group.device)
        if group.on_gpu:
            drawing.other_events(uuid, group.device)


class _Drawing:
    def __init__(
        self, writer: PacketWriter, tracks: Tracks, analysis: Analysis, flows: Flows
    ) -> None:
        self._writer = writer
        self._tracks = tracks
        self._analysis = analysis
        self._flows = flows
        arguments = LaunchArguments(analysis)
        self._spans = LaunchSpans(writer, analysis.launches, arguments, flows)
        self._runs = Runs(writer, analysis.launches, arguments)

    def launches(self, uuid: int, group: _Group, rows: list[int]) -> None:
        by_track: dict[int, list[int]] = defaultdict(list)
        for row in rows:
            by_track[self._track_number(group, row)].append(row)
        word = "stream" if group.on_gpu else "launches thread"
        for rank, (number, chosen) in enumerate(sorted(by_track.items())):
            self._tracks.draw(f"{word} {number}", uuid, rank, self._spans.of(chosen))

    def lanes(self, uuid: int, rows: list[int]) -> None:
        for rank, lane in enumerate(LANES):
            self._tracks.draw(lane, uuid, _LANES_RANK + rank, self._runs.of(lane, rows))

    def idle(self, uuid: int, device: int) -> None:
        spans = [
            Span(
                idle.start_ns,
                idle.start_ns + idle.duration_ns,
                self._writer.constant(idle.cpu_activity or NO_ACTIVITY, "idle", {}),
                {"step": idle.step, "idle_ns": idle.duration_ns},
            )
            for idle in self._analysis.idle
            if idle.device == device
        ]
        self._tracks.draw("idle", uuid, _IDLE_RANK, spans)

    def other_events(self, uuid: int, device: int) -> None:
        events = self._analysis.recording.trace.events
        launched = set(self._analysis.launches.event.tolist())
        by_category: dict[str, list[int]] = defaultdict(list)
        for row in self._flows.device_rows:
            if row not in launched and events.threads[events.thread[row]].pid == device:
                by_category[events.category[row]].append(row)
        for rank, (category, rows) in enumerate(by_category.items()):
            name = category.replace("_", " ")
            self._tracks.draw(name, uuid, _OTHERS_RANK + rank, self._plain(rows))

    def _track_number(self, group: _Group, row: int) -> int:
        launches = self._analysis.launches
        if group.on_gpu:
            return int(launches.stream.data[row])
        events = self._analysis.recording.trace.events
        thread = events.threads[events.thread[launches.event[row]]]
        return thread.tid if isinstance(thread.tid, int) else 0

    def _plain(self, rows: list[int]) -> Iterator[Span]:
        events = self._analysis.recording.trace.events
        for row in rows:
            start_ns = int(events.start_ns[row])
            constant = self._writer.constant(events.name[row], events.category[row], {})
            yield Span(start_ns, start_ns + int(events.duration_ns[row]), constant, {})


def _groups(analysis: Analysis) -> dict[_Group, list[int]]:
    launches = analysis.launches
    groups: dict[_Group, list[int]] = defaultdict(list)
    for row in np.argsort(launches.start_ns, kind="stable").tolist():
        on_gpu = optional(launches.stream, row) is not None
        groups[_Group(int(launches.device[row]), on_gpu)].append(row)
    return dict(sorted(groups.items()))


def _name(analysis: Analysis, group: _Group) -> str:
    if not group.on_gpu:
        return CPU_COMPUTE
    names = {device.id: device.name for device in analysis.recording.trace.devices}
    known = names.get(group.device)
    return f"GPU {group.device} - {known}" if known else f"GPU {group.device}"
