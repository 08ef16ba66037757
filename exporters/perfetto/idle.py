"""Owns the slices in which a device ran nothing: named by the cause, and its line."""

from __future__ import annotations

import numpy as np

from profiler_ext.exporters.activity_names import PYTHON, ActivityNames
from profiler_ext.exporters.display_text import cause_text
from profiler_ext.exporters.launch_places import line_text, position_text
from profiler_ext.exporters.perfetto.arguments import path_text
from profiler_ext.exporters.perfetto.own_arguments import IntArgument
from profiler_ext.exporters.perfetto.packets import PacketWriter, Slices
from profiler_ext.exporters.perfetto.shared import Shared
from profiler_ext.exporters.perfetto.texts import Argument
from profiler_ext.records import Analysis


class IdleSlices:
    """Makes the slices in which the devices ran nothing, one for each piece of idle time."""

    def __init__(self, writer: PacketWriter, analysis: Analysis) -> None:
        """Take the idle time.

        Args:
            writer: encodes the slices.
            analysis: the idle time and the graphs.
        """
        self._writer, self._idle = writer, analysis.idle
        self._named = ActivityNames(analysis.recording.graphs)
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
        name, arguments = self._name_and_arguments(cause, place, activity)
        return self._writer.constant(name, "idle", arguments)

    def _name_and_arguments(self, cause: int, place: int, activity: int) -> tuple[str, dict[str, Argument]]:
        """Return the name and the arguments of slices of one cause, place and activity."""
        idle = self._idle
        cpu_activity = idle.cpu_activity.strings[activity] or None
        why, at = idle.cause.strings[cause], idle.places[place]
        name = f"idle: {cause_text(why)}"
        arguments: dict[str, Argument] = {"cause": why, "cpu_activity": cpu_activity or PYTHON}
        if (position := position_text(at)) is not None:
            name = f"{name} at {position}"
            arguments["source_lines"] = [line_text(at) or position]
            arguments["source_paths"] = [path_text(at) or position]
        return name, arguments
