"""Owns the slices of launches: exactly one for each launch, with all that is known of it."""

from __future__ import annotations

from profiler_ext.exporters.perfetto.arguments import LaunchArgumentColumns
from profiler_ext.exporters.perfetto.flows import Flows
from profiler_ext.exporters.perfetto.packets import PacketWriter, Slices
from profiler_ext.exporters.perfetto.shared import Shared, concatenated
from profiler_ext.records import Ints, Launches


class LaunchSlices:
    """Makes the slices of launches; the constant part of a call site is encoded once."""

    def __init__(
        self, writer: PacketWriter, launches: Launches, arguments: LaunchArgumentColumns, flows: Flows
    ) -> None:
        """Take what is drawn.

        Args:
            writer: encodes the constant parts.
            launches: the launches.
            arguments: what each shall say.
            flows: the arrows that begin or end at one.
        """
        self._writer, self._launches, self._arguments = writer, launches, arguments
        self._flows = (flows.from_launch, flows.to_launch)
        shared = Shared(arguments.keys(), self._constant)
        self._own = arguments.own()
        self._constants, self._codes = concatenated([shared, *arguments.few()])

    def of(self, rows: Ints) -> Slices:
        """Return the slices of launches.

        Args:
            rows: rows of ``Launches``.

        Returns:
            One for each.
        """
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
