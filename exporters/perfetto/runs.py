"""Owns the lanes beneath the launches: runs of launches of one phase, module or source line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby

from exporters.perfetto.arguments import LaunchArguments, module_label, optional, source_line
from exporters.perfetto.lanes import Span
from exporters.perfetto.packets import PacketWriter
from profiler_ext.records import Launches, Place

LANES = ("phase", "module", "source line")


class Runs:
    """Makes the spans of a lane: launches in a row with one label are one span."""

    def __init__(
        self, writer: PacketWriter, launches: Launches, arguments: LaunchArguments
    ) -> None:
        self._writer = writer
        self._launches = launches
        self._arguments = arguments
        self._labels: dict[str, Callable[[int], str | None]] = {
            "phase": lambda row: launches.phase[row],
            "module": lambda row: self._of_place(row, module_label),
            "source line": lambda row: self._of_place(row, source_line),
        }

    def of(self, lane: str, rows: list[int]) -> Iterator[Span]:
        """Return the spans of a lane.

        Args:
            lane: one of ``LANES``.
            rows: rows of ``Launches`` in order of start.

        Returns:
            One span for each run of one label within a step and a phase; what has no label ends it.
        """
        label = self._labels[lane]

        def run_of(row: int) -> tuple[str | None, str, int | None]:
            return label(row), self._launches.phase[row], optional(self._launches.step, row)

        for (text, _, _), run in groupby(rows, run_of):
            if text is not None:
                yield self._span(lane, text, list(run))

    def _of_place(self, row: int, say: Callable[[Place], str | None]) -> str | None:
        place = self._arguments.largest_place(row)
        return None if place is None else say(place)

    def _span(self, lane: str, text: str, rows: list[int]) -> Span:
        starts, durations = self._launches.start_ns[rows], self._launches.duration_ns[rows]
        return Span(
            int(starts.min()),
            int((starts + durations).max()),
            self._writer.constant(text, lane, {}),
            {"launches": len(rows), "launch_time_ns": int(durations.sum())},
        )
