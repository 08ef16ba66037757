"""Owns the slices in which a device ran nothing: named by the cause, and its line."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profiler_ext.exporters.display_text import cause_text
from profiler_ext.exporters.idle_texts import PYTHON, ActivityNames
from profiler_ext.exporters.launch_places import line_text, position_text
from profiler_ext.exporters.perfetto.arguments import path_text
from profiler_ext.exporters.perfetto.lanes import Span, span_with
from profiler_ext.exporters.perfetto.packets import Argument, Constant, PacketWriter
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
        self._constants: dict[tuple[int, int, int], Constant] = {}

    def of(self, device: int) -> Iterator[Span]:
        """Yield the slices of a device."""
        idle = self._idle
        rows = np.flatnonzero(idle.device == device)
        columns = (idle.start_ns, idle.duration_ns, idle.step)
        codes = (idle.cause.codes, idle.cause_place, idle.cpu_activity.codes)
        lists = (column[rows].tolist() for column in (*columns, *codes))
        for start_ns, duration_ns, step, *key in zip(*lists, strict=True):
            changing = {"step": step, "idle_ns": duration_ns}
            constant = self._constant((key[0], key[1], key[2]))
            yield span_with(start_ns, start_ns + duration_ns, constant, changing)

    def _constant(self, key: tuple[int, int, int]) -> Constant:
        if key not in self._constants:
            name, arguments = self._told(*key)
            self._constants[key] = self._writer.constant(name, "idle", arguments)
        return self._constants[key]

    def _told(self, cause: int, place: int, activity: int) -> tuple[str, dict[str, Argument]]:
        """Return the name and the arguments of slices of one cause, place and activity."""
        idle = self._idle
        did = idle.cpu_activity.strings[activity] or None
        why, at = idle.cause.strings[cause], idle.places[place]
        name = f"idle: {cause_text(why)}"
        arguments: dict[str, Argument] = {"cause": why, "cpu_activity": did or PYTHON}
        if (position := position_text(at)) is not None:
            name = f"{name} at {position}"
            arguments["source_lines"] = [line_text(at) or position]
            arguments["source_paths"] = [path_text(at) or position]
        return name, arguments
