"""Owns the devices' side: a group for each GPU (or for the CPU's compute) and its tracks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from profiler_ext.exporters.perfetto.arguments import LaunchArguments
from profiler_ext.exporters.perfetto.counters import Counters
from profiler_ext.exporters.perfetto.flows import Flows
from profiler_ext.exporters.perfetto.idle import IdleSlices
from profiler_ext.exporters.perfetto.label_spans import LANES, MODULE, LabelSpans, apart
from profiler_ext.exporters.perfetto.lanes import Span, span_with
from profiler_ext.exporters.perfetto.launch_spans import LaunchSpans
from profiler_ext.exporters.perfetto.packets import PacketWriter
from profiler_ext.exporters.perfetto.rates import Rates
from profiler_ext.exporters.perfetto.tracks import Tracks, with_rank
from profiler_ext.records import Analysis

CPU_COMPUTE = "CPU compute"
_GROUPS_RANK = 1
_MOST_LABELLED = 64
_LANES_RANK, _IDLE_RANK, _COUNTERS_RANK, _OTHERS_RANK = 1_000_000, 1_000_100, 1_000_200, 1_000_300


class _Group(NamedTuple):
    device: int
    on_gpu: bool


def draw_devices(
    writer: PacketWriter, tracks: Tracks, analysis: Analysis, flows: Flows, rates: Rates
) -> None:
    """Draw steps, every launch once, lanes of what launches computed, idle time and counters.

    Args:
        writer: encodes the slices.
        tracks: describes the tracks.
        analysis: the launches, places and idle time.
        flows: arrows, and the events of the devices.
        rates: estimated rates of the launches.
    """
    drawing = _Drawing(writer, tracks, analysis, flows, rates)
    groups = _groups(analysis)
    if not groups:
        drawing.steps(None)
    for rank, (group, rows) in enumerate(groups.items()):
        uuid = tracks.group(_name(analysis, group), _GROUPS_RANK + rank)
        if rank == 0:
            drawing.steps(uuid)
        drawing.launches(uuid, group, rows)
        if group.on_gpu or _Group(group.device, True) not in groups:
            drawing.idle(uuid, group.device)
        drawing.counters.draw(uuid, _COUNTERS_RANK, rows)
        if group.on_gpu:
            drawing.other_events(uuid, group.device)


class _Drawing:
    def __init__(
        self,
        writer: PacketWriter,
        tracks: Tracks,
        analysis: Analysis,
        flows: Flows,
        rates: Rates,
    ) -> None:
        self._writer = writer
        self._tracks = tracks
        self._analysis = analysis
        arguments = LaunchArguments(analysis, rates)
        self._spans = LaunchSpans(writer, analysis.launches, arguments, flows)
        self._label_spans = LabelSpans(writer, analysis.launches, arguments)
        self._idle_slices = IdleSlices(writer, analysis)
        self._other_rows = _other_rows(analysis, flows)
        self.counters = Counters(writer, tracks, analysis.launches, rates)

    def steps(self, uuid: int | None) -> None:
        rank = self._analysis.recording.settings.rank
        spans = [
            span_with(
                step.start_ns,
                step.end_ns,
                self._writer.constant(f"step {step.number}", "step", {"step": step.number}),
                {"wall_ns": step.wall_ns, "rank": rank},
            )
            for step in self._analysis.steps
        ]
        self._tracks.draw("steps", uuid, 0, spans)

    def launches(self, uuid: int, group: _Group, rows: list[int]) -> None:
        by_track: dict[int, list[int]] = defaultdict(list)
        for row in rows:
            by_track[self._track_number(group, row)].append(row)
        word = "stream" if group.on_gpu else "launches thread"
        for rank, (number, chosen) in enumerate(sorted(by_track.items()), 1):
            self._tracks.draw(f"{word} {number}", uuid, rank, self._spans.of(chosen))
            self._lanes(uuid, chosen)

    def idle(self, uuid: int, device: int) -> None:
        self._tracks.draw("idle", uuid, _IDLE_RANK, self._idle_slices.of(device))

    def other_events(self, uuid: int, device: int) -> None:
        for rank, (category, rows) in enumerate(self._other_rows[device].items()):
            name = category.replace("_", " ")
            self._tracks.draw(name, uuid, _OTHERS_RANK + rank, self._plain(rows))

    def _lanes(self, uuid: int, rows: list[int]) -> None:
        # Lanes of several streams have one name each, so the viewer shows them as one row.
        # What overlaps without end would be rows without end; each launch says its labels itself.
        for chosen in apart(self._analysis.launches, rows, _MOST_LABELLED):
            for rank, lane in enumerate(LANES, _LANES_RANK):
                spans = self._label_spans.of(lane, chosen)
                self._tracks.draw(lane, uuid, rank, spans, nesting=lane == MODULE)

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
            yield span_with(start_ns, start_ns + int(events.duration_ns[row]), constant, {})


def _other_rows(analysis: Analysis, flows: Flows) -> Mapping[int | str, dict[str, list[int]]]:
    """Return the rows of devices that are no launches, by device and category."""
    events = analysis.recording.trace.events
    launched = set(analysis.launches.event.tolist())
    rows: dict[int | str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in flows.device_rows:
        if row not in launched:
            rows[events.threads[events.thread[row]].pid][events.category[row]].append(row)
    return rows


def _groups(analysis: Analysis) -> dict[_Group, list[int]]:
    launches = analysis.launches
    groups: dict[_Group, list[int]] = defaultdict(list)
    devices = launches.device.tolist()
    on_gpu = (~np.ma.getmaskarray(launches.stream)).tolist()
    for row in np.argsort(launches.start_ns, kind="stable").tolist():
        groups[_Group(devices[row], on_gpu[row])].append(row)
    return dict(sorted(groups.items()))


def _name(analysis: Analysis, group: _Group) -> str:
    names = {device.id: device.name for device in analysis.recording.trace.devices}
    known = names.get(group.device)
    gpu = f"GPU {group.device} - {known}" if known else f"GPU {group.device}"
    return with_rank(gpu if group.on_gpu else CPU_COMPUTE, analysis.recording.settings)
