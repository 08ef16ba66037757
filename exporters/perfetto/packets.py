"""The packets of a Perfetto trace, written many at a time.

Messages come from the ``perfetto`` package. The millions of small slice packets are assembled here
from byte columns; the library encodes the rest. What many slices share is encoded once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from profiler_ext.exporters.perfetto import encoding
from profiler_ext.exporters.perfetto.annotations import (
    CATEGORIES,
    GROUPS,
    NAMES,
    Argument,
    ColumnArgument,
    Texts,
)
from profiler_ext.records.events import Codes, Ints

FROM = encoding.key_of(pb.TrackEvent, "flow_ids")
TO = encoding.key_of(pb.TrackEvent, "terminating_flow_ids")
_ROWS_AT_ONCE = 16_000
# Sequences and ids are unique per rank, so that ranks' files can be concatenated.
_IDS_OF_RANK = 2**40
_STATE_CLEARED = pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
_PACKET = encoding.key_of(pb.Trace, "packet")
_TIMESTAMP = encoding.key_of(pb.TracePacket, "timestamp")
_SEQUENCE = encoding.key_of(pb.TracePacket, "trusted_packet_sequence_id")
_TRACK_EVENT = encoding.key_of(pb.TracePacket, "track_event")
_NEEDS_STATE = encoding.key_of(pb.TracePacket, "sequence_flags") + encoding.varint(
    pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
)
_CATEGORY = encoding.key_of(pb.TrackEvent, "category_iids")
_TYPE = encoding.key_of(pb.TrackEvent, "type")
_BEGIN, _END, _COUNTER = (
    _TYPE + encoding.varint(number)
    for number in (
        pb.TrackEvent.TYPE_SLICE_BEGIN,
        pb.TrackEvent.TYPE_SLICE_END,
        pb.TrackEvent.TYPE_COUNTER,
    )
)
_NAME = encoding.key_of(pb.TrackEvent, "name_iid")
_GROUP = encoding.key_of(pb.TrackEvent, "correlation_id_str_iid")
_VALUE = encoding.key_of(pb.TrackEvent, "double_counter_value")


class FlowIds:
    """The flow arrows of one direction."""

    def __init__(self, direction: bytes, rows: Ints, ids: Ints) -> None:
        self._direction, self._ids = direction, ids[np.argsort(rows, kind="stable")]
        self._bounds = encoding.offsets_of(np.bincount(rows))

    def cells(self, first_id: int, rows: Ints) -> encoding.Cells | None:
        """Return the encoded arrows of rows; ``None`` where there is none."""
        last = len(self._bounds) - 1
        firsts = self._bounds[np.minimum(rows, last)]
        bounds = encoding.offsets_of(self._bounds[np.minimum(rows + 1, last)] - firsts)
        if not bounds[-1]:
            return None
        at = np.repeat(firsts - bounds[:-1], np.diff(bounds)) + np.arange(bounds[-1])
        ids = encoding.fixed_integers(self._ids[at] + first_id)
        return encoding.Cells(encoding.hstack(len(at), self._direction, ids), bounds)


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices to draw, a row each."""

    start_ns: Ints
    end_ns: Ints
    constants: encoding.ByteDictionary  # encoded shared parts
    constant: Codes | Ints  # each slice's index into ``constants``
    row: Ints  # row in ``own`` and ``flows``
    own: Sequence[ColumnArgument] = ()  # arguments that vary by slice
    flows: Sequence[FlowIds] = ()

    def some(self, at: Ints) -> Slices:
        """Return a subset of the slices."""
        return replace(
            self,
            start_ns=self.start_ns[at],
            end_ns=self.end_ns[at],
            constant=self.constant[at],
            row=self.row[at],
        )


def listed(encoded_parts: Iterable[tuple[int, int, bytes]]) -> Slices:
    """Return a few slices that share nothing."""
    rows = list(encoded_parts)
    times = np.array([row[:2] for row in rows], np.int64).reshape(-1, 2)
    numbers = np.arange(len(rows))
    return Slices(
        times[:, 0],
        times[:, 1],
        encoding.ByteDictionary([row[2] for row in rows]),
        numbers,
        numbers,
    )


class PacketWriter:
    """Writes the packets of one rank's trace to an open file; strings are sent once."""

    def __init__(self, file: IO[bytes], rank: int = 0, shift_ns: int = 0) -> None:
        """Write to a file; ``shift_ns`` aligns the clocks of ranks."""
        self._file = file
        self._shift_ns = shift_ns
        self.first_id = rank * _IDS_OF_RANK  # ids of tracks and flows start above it
        self.texts = Texts()
        self._events = 2 * rank + 1
        # A thread's descriptor among the events would mark every slice with its thread.
        self._descriptors = self._events + 1
        self._sequence = _SEQUENCE + encoding.varint(self._events)
        self._unwritten: list[pb.TracePacket] = []

    def clock(self, boot_ns: int, wall_ns: int) -> None:
        """Write the wall-clock time of a trace time; must come first."""
        packet = self._new_packet(self._events)
        packet.sequence_flags = _STATE_CLEARED
        clocks = packet.clock_snapshot.clocks
        clocks.add(clock_id=pb.BUILTIN_CLOCK_BOOTTIME, timestamp=boot_ns)
        clocks.add(clock_id=pb.BUILTIN_CLOCK_REALTIME, timestamp=wall_ns)

    def descriptor(self) -> Any:
        """Return a new, empty ``TrackDescriptor``, already part of the trace."""
        return self._new_packet(self._descriptors).track_descriptor

    def constant(
        self, name: str, category: str, arguments: Mapping[str, Argument], coloured_by: str = ""
    ) -> bytes:
        """Encode what many slices share; the viewer colours by name, or by ``coloured_by``."""
        of_category = _CATEGORY + encoding.varint(self.texts.number(CATEGORIES, category))
        named = _NAME + encoding.varint(self.texts.number(NAMES, name))
        if coloured_by:
            named += _GROUP + encoding.varint(self.texts.number(GROUPS, coloured_by))
        return of_category + _BEGIN + named + self.texts.annotated(arguments)

    def slices(self, track: int, slices: Slices, rows: Ints) -> None:
        """Write the slices of a track, each followed by its end."""
        self._switch_track(track)
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            self._write(self._encoded_slices(slices, rows[first : first + _ROWS_AT_ONCE]))

    def _encoded_slices(self, slices: Slices, rows: Ints) -> bytes:
        source_rows = slices.row[rows]
        own = [each.cells(self.texts, source_rows) for each in slices.own]
        flows = [each.cells(self.first_id, source_rows) for each in slices.flows]
        encoded_parts = [each for each in (*own, *flows) if each is not None]
        ends = self._packets(slices.end_ns[rows], np.full(len(rows), len(_END)))
        lasts, lengths = encoding.encode_rows(encoded_parts, encoding.hstack(len(rows), ends, _END))
        constants, more = slices.constants.chosen(slices.constant[rows])
        heads = self._packets(slices.start_ns[rows], lengths + more)
        whole = [b""] * (3 * len(rows))
        whole[::3], whole[1::3], whole[2::3] = encoding.row_bytes(heads), constants, lasts
        return b"".join(whole)

    def counts(self, track: int, times_ns: Ints, values: npt.NDArray[np.float64]) -> None:
        """Write the values of a counter."""
        self._switch_track(track)
        for first in range(0, len(times_ns), _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            encoded_parts = encoding.hstack(
                len(values[some]), _COUNTER + _VALUE, encoding.doubles(values[some])
            )
            heads = self._packets(
                times_ns[some], np.full(len(encoded_parts), encoded_parts.shape[1])
            )
            self._write(encoding.hstack(len(encoded_parts), heads, encoded_parts).tobytes())

    def flush(self) -> None:
        """Write pending packets."""
        self._write(b"")

    def _switch_track(self, track: int) -> None:
        defaults = self._new_packet(self._events).trace_packet_defaults
        defaults.track_event_defaults.track_uuid = track

    def _new_packet(self, sequence: int) -> Any:
        packet = pb.TracePacket(trusted_packet_sequence_id=sequence)
        self._unwritten.append(packet)
        return packet

    def _packets(self, times_ns: Ints, lengths: Ints) -> encoding.Matrix:
        """Return packet headers, up to events of these lengths."""
        before = _NEEDS_STATE + self._sequence + _TIMESTAMP
        times, sizes = encoding.varints(times_ns + self._shift_ns), encoding.varints(lengths)
        head = len(before) + times.shape[1] + len(_TRACK_EVENT) + sizes.shape[1]
        whole = encoding.varints(lengths + head)
        return encoding.hstack(len(lengths), _PACKET, whole, before, times, _TRACK_EVENT, sizes)

    def _write(self, encoded: bytes) -> None:
        """Write packets, after the pending tracks and texts that they refer to."""
        for packet in self._unwritten:
            self._file.write(encoding.sized(_PACKET, packet.SerializeToString()))
        self._unwritten = []
        if texts := self.texts.unsent():
            self._file.write(encoding.sized(_PACKET, _NEEDS_STATE + self._sequence + texts))
        self._file.write(encoded)
