"""Owns the slices of launches: exactly one for each launch, with all that is known of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from profiler_ext.exporters.perfetto.arguments import LaunchArguments
from profiler_ext.exporters.perfetto.flows import Flows
from profiler_ext.exporters.perfetto.lanes import SliceContent, Span
from profiler_ext.exporters.perfetto.packets import Constant, PacketWriter
from profiler_ext.records import Launches


class LaunchSpans:
    """Makes the spans of launches; the constant part of a call site is encoded once."""

    def __init__(
        self, writer: PacketWriter, launches: Launches, arguments: LaunchArguments, flows: Flows
    ) -> None:
        """Take what is drawn.

        Args:
            writer: encodes the constant parts.
            launches: the launches.
            arguments: what each shall say.
            flows: the arrows that begin or end at one.
        """
        self._writer = writer
        self._launches = launches
        self._arguments = arguments
        self._flows = flows
        ends = launches.start_ns + launches.duration_ns
        self._starts: list[int] = launches.start_ns.tolist()
        self._ends: list[int] = ends.tolist()
        self._constants: dict[tuple[object, ...], Constant] = {}

    def of(self, rows: Iterable[int]) -> Iterator[Span]:
        """Return the spans of launches.

        Args:
            rows: rows of ``Launches``.

        Returns:
            One span for each.
        """
        return (Span(self._starts[row], self._ends[row], row, self._say) for row in rows)

    def _say(self, row: int) -> SliceContent:
        return SliceContent(
            self._constant(row),
            self._arguments.changing(row),
            self._flows.from_launch.get(row, ()),
            self._flows.to_launch.get(row, ()),
        )

    def _constant(self, row: int) -> Constant:
        key = self._arguments.key(row)
        if key not in self._constants:
            self._constants[key] = self._writer.constant(
                self._launches.name[row], self._launches.kind[row], self._arguments.constant(row)
            )
        return self._constants[key]
