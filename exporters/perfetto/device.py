"""The device side: a group per GPU with launches, idle time, lanes and counters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from profiler_ext.exporters.launch_parts import line_text, position_text
from profiler_ext.exporters.perfetto import window
from profiler_ext.exporters.perfetto.annotations import Argument, IntArgument
from profiler_ext.exporters.perfetto.arguments import LaunchArgumentColumns, path_text
from profiler_ext.exporters.perfetto.encoding import Shared, concatenated
from profiler_ext.exporters.perfetto.flows import Flows
from profiler_ext.exporters.perfetto.label_spans import (
    LANES,
    SOURCE_LINE,
    LabelSpans,
    split_overlapping,
)
from profiler_ext.exporters.perfetto.packets import PacketWriter, Slices, listed
from profiler_ext.exporters.perfetto.queries import RooflineTotals
from profiler_ext.exporters.perfetto.rates import Counters, Rates
from profiler_ext.exporters.perfetto.tracks import Tracks, with_rank
from profiler_ext.exporters.views.formatting import PYTHON, cause_text
from profiler_ext.records.analysis import Analysis, Launches
from profiler_ext.records.events import Ints
from profiler_ext.records.share_sums import largest_places

CPU_COMPUTE = "CPU compute"
_GROUPS_RANK = 1
_MAX_LABELLED_LANES = 64
_LANES_RANK, _IDLE_RANK, _COUNTERS_RANK, _OTHERS_RANK = 1_000_000, 1_000_100, 1_000_200, 1_000_300


class LaunchSlices:
    """Makes the slices of launches; a call site's constant part is encoded once."""

    def __init__(
        self,
        writer: PacketWriter,
        launches: Launches,
        arguments: LaunchArgumentColumns,
        flows: Flows,
    ) -> None:
        self._writer, self._launches, self._arguments = writer, launches, arguments
        self._flows = (flows.from_launch, flows.to_launch)
        shared = Shared(arguments.keys(), self._constant)
        self._own = arguments.own()
        self._constants, self._codes = concatenated([shared, *arguments.few()])

    def of(self, rows: Ints) -> Slices:
        """Return the slices of launches."""
        start_ns = self._launches.start_ns[rows]
        end_ns = start_ns + self._launches.duration_ns[rows]
        return Slices(
            start_ns, end_ns, self._constants, self._codes[rows], rows, self._own, self._flows
        )

    def _constant(self, row: int) -> bytes:
        columns = self._launches
        return self._writer.constant(
            columns.name[row], columns.kind[row], self._arguments.constant(row)
        )


class IdleSlices:
    """Makes the slices of idle time."""

    def __init__(self, writer: PacketWriter, analysis: Analysis, flows: Flows) -> None:
        self._writer, self._idle, self._call_names = writer, analysis.idle, flows.call_names
        idle = analysis.idle
        codes = (idle.cause.codes, idle.cause_place, idle.cpu_activity.codes)
        keys = zip(*(column.tolist() for column in codes), strict=True)
        self._shared = Shared(keys, lambda row: self._constant(*(int(each[row]) for each in codes)))

    def of(self, device: int) -> Slices:
        """Return the slices of a device."""
        idle, rows = self._idle, np.flatnonzero(self._idle.device == device)
        start_ns = idle.start_ns[rows]
        return Slices(
            start_ns,
            start_ns + idle.duration_ns[rows],
            self._shared.constants,
            self._shared.of_row[rows],
            rows,
            (IntArgument("step", idle.step), IntArgument("idle_ns", idle.duration_ns)),
        )

    def _constant(self, cause: int, place: int, activity: int) -> bytes:
        idle = self._idle
        cpu_activity = idle.cpu_activity.strings[activity] or PYTHON
        cpu_activity = self._call_names.get(cpu_activity, cpu_activity)
        why, at = idle.cause.strings[cause], idle.places[place]
        name = f"idle: {cause_text(why)}"
        arguments: dict[str, Argument] = {"cause": why, "cpu_activity": cpu_activity}
        if (position := position_text(at)) is not None:
            name = f"{name} at {position}"
            arguments["source_lines"] = [line_text(at) or position]
            arguments["source_paths"] = [path_text(at) or position]
        return self._writer.constant(name, "idle", arguments, coloured_by=why)


class _Group(NamedTuple):
    device: int
    on_gpu: bool


def draw_devices(
    writer: PacketWriter,
    tracks: Tracks,
    analysis: Analysis,
    flows: Flows,
    rates: Rates,
    of_steps: RooflineTotals,
) -> None:
    """Draw steps, launches, their lanes, idle time and counters."""
    drawing = _Drawing(writer, tracks, analysis, flows, rates, of_steps)
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
        of_steps: RooflineTotals,
    ) -> None:
        self._writer = writer
        self._tracks = tracks
        self._analysis = analysis
        arguments = LaunchArgumentColumns(analysis, rates, writer.texts)
        self._slices = LaunchSlices(writer, analysis.launches, arguments, flows)
        self._label_spans = LabelSpans(writer, analysis, largest_places(analysis), of_steps)
        self._idle_slices = IdleSlices(writer, analysis, flows)
        self._other_rows = _other_rows(analysis, flows)
        self._window_end_ns = window.end_ns(analysis.recording.trace.events)
        self.counters = Counters(writer, tracks, analysis.launches, rates)

    def steps(self, uuid: int | None) -> None:
        rank = self._analysis.recording.settings.rank
        slices = listed(
            (
                step.start_ns,
                step.end_ns,
                self._writer.constant(f"step {step.number}", "step", step_arguments),
            )
            for step in self._analysis.steps
            for step_arguments in [{"step": step.number, "wall_ns": step.wall_ns, "rank": rank}]
        )
        self._tracks.draw("steps", uuid, 0, slices)

    def launches(self, uuid: int, group: _Group, rows: Ints) -> None:
        numbers = self._track_numbers(group, rows)
        word = "stream" if group.on_gpu else "launches thread"
        for rank, number in enumerate(np.unique(numbers).tolist(), 1):
            chosen = rows[numbers == number]
            self._tracks.draw(f"{word} {number}", uuid, rank, self._slices.of(chosen))
            self._lanes(uuid, chosen)

    def idle(self, uuid: int, device: int) -> None:
        self._tracks.draw("idle", uuid, _IDLE_RANK, self._idle_slices.of(device))

    def other_events(self, uuid: int, device: int) -> None:
        for rank, (category, rows) in enumerate(self._other_rows.get(device, {}).items()):
            name = category.replace("_", " ")
            self._tracks.draw(name, uuid, _OTHERS_RANK + rank, self._plain(rows))

    def _lanes(self, uuid: int, rows: Ints) -> None:
        # Lanes of several streams have one name each, so the viewer shows them as one row.
        # What overlaps without end would be rows without end; each launch says its labels itself.
        for chosen in split_overlapping(self._analysis.launches, rows, _MAX_LABELLED_LANES):
            for rank, lane in enumerate(LANES, _LANES_RANK):
                slices = self._label_spans.of(lane, chosen)
                self._tracks.draw(lane, uuid, rank, slices, nesting=lane != SOURCE_LINE)

    def _track_numbers(self, group: _Group, rows: Ints) -> Ints:
        launches = self._analysis.launches
        if group.on_gpu:
            return launches.stream.data[rows]
        events = self._analysis.recording.trace.events
        tids = [each.tid if isinstance(each.tid, int) else 0 for each in events.threads]
        return np.array(tids, np.int64)[events.thread[launches.event[rows]]]

    def _plain(self, rows: Ints) -> Slices:
        events = self._analysis.recording.trace.events
        names, categories = (column.codes[rows] for column in (events.name, events.category))
        shared = Shared(
            zip(names.tolist(), categories.tolist(), strict=True),
            lambda at: self._writer.constant(events.name[rows[at]], events.category[rows[at]], {}),
        )
        start_ns = events.start_ns[rows]
        end_ns = np.clip(events.end_ns[rows], start_ns, self._window_end_ns)
        return Slices(start_ns, end_ns, shared.constants, shared.of_row, rows)


def _other_rows(analysis: Analysis, flows: Flows) -> Mapping[int | str, dict[str, Ints]]:
    """Return device events that are no launches, by device and category."""
    events = analysis.recording.trace.events
    left_out = events.start_ns > window.end_ns(events)
    left_out[analysis.launches.event] = True
    others = flows.device_rows[~left_out[flows.device_rows]]
    grouped_rows: dict[int | str, dict[str, list[Ints]]] = defaultdict(lambda: defaultdict(list))
    kinds = np.column_stack((events.thread[others], events.category.codes[others]))
    each, firsts, of_row = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
    for kind in np.argsort(firsts).tolist():
        thread, category = each[kind].tolist()
        rows = grouped_rows[events.threads[thread].pid][events.category.strings[category]]
        rows.append(others[of_row.ravel() == kind])
    return {
        pid: {name: np.sort(np.concatenate(rows)) for name, rows in by_category.items()}
        for pid, by_category in grouped_rows.items()
    }


def _groups(analysis: Analysis) -> dict[_Group, Ints]:
    launches = analysis.launches
    order = np.argsort(launches.start_ns, kind="stable")
    device, on_gpu = launches.device[order], ~np.ma.getmaskarray(launches.stream)[order]
    groups = [_Group(*each) for each in {*zip(device.tolist(), on_gpu.tolist(), strict=True)}]
    return {
        group: order[(device == group.device) & (on_gpu == group.on_gpu)]
        for group in sorted(groups)
    }


def _name(analysis: Analysis, group: _Group) -> str:
    names = {device.id: device.name for device in analysis.recording.trace.devices}
    known = names.get(group.device)
    gpu = f"GPU {group.device} - {known}" if known else f"GPU {group.device}"
    return with_rank(gpu if group.on_gpu else CPU_COMPUTE, analysis.recording.settings)
