"""Owns the bytes of a Perfetto trace: packets, interned strings, written in chunks.

The messages are those of the ``perfetto`` package. What is the same for many slices is
encoded once and merged into each packet by the library, so only times and counts are new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

Argument = str | int | float | Sequence[str] | Sequence[int] | Mapping[str, int]

_CHUNK_PACKETS = 2000
# Each rank has sequences and ids of its own, so that the files of ranks can be joined.
_IDS_OF_RANK = 2**40
_STATE_CLEARED = pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
_NEEDS_STATE = pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
_SLICE_BEGIN = pb.TrackEvent.TYPE_SLICE_BEGIN
_SLICE_END = pb.TrackEvent.TYPE_SLICE_END
_COUNTER = pb.TrackEvent.TYPE_COUNTER


class PacketWriter:
    """Writes the packets of one rank's trace to an open file; strings are sent once.

    Attributes:
        first_id: tracks and flows have numbers above this one.
    """

    def __init__(self, file: IO[bytes], rank: int = 0, shift_ns: int = 0) -> None:
        """Write to a file.

        Args:
            file: where to.
            rank: whose trace it is.
            shift_ns: what to add to its times, so that all ranks count from one moment.
        """
        self._file = file
        self._shift_ns = shift_ns
        self.first_id = rank * _IDS_OF_RANK
        self._events = 2 * rank + 1
        # A thread's descriptor among the events would mark every slice with its thread.
        self._descriptors = self._events + 1
        self._chunk = pb.Trace()
        self._unsent = pb.InternedData()
        self._numbers: dict[str, dict[str, int]] = {}

    def clock(self, boot_ns: int, wall_ns: int) -> None:
        """Say which wall-clock time a time of the trace is; must come first.

        Args:
            boot_ns: a time on the trace's clock, which is that of all ranks.
            wall_ns: the same moment in nanoseconds since 1970.
        """
        packet = self._chunk.packet.add(
            trusted_packet_sequence_id=self._events, sequence_flags=_STATE_CLEARED
        )
        clocks = packet.clock_snapshot.clocks
        clocks.add(clock_id=pb.BUILTIN_CLOCK_BOOTTIME, timestamp=boot_ns)
        clocks.add(clock_id=pb.BUILTIN_CLOCK_REALTIME, timestamp=wall_ns)

    def descriptor(self) -> Any:
        """Return a new, empty ``TrackDescriptor``, already part of the trace."""
        packet = self._chunk.packet.add(trusted_packet_sequence_id=self._descriptors)
        return packet.track_descriptor

    def constant(self, name: str, category: str, arguments: Mapping[str, Argument]) -> bytes:
        """Encode what many slices share.

        Args:
            name: name of the slice.
            category: its category.
            arguments: its constant arguments.

        Returns:
            The encoded part, for ``begin``.
        """
        event = pb.TrackEvent(type=_SLICE_BEGIN, name_iid=self._number("event_names", name))
        event.category_iids.append(self._number("event_categories", category))
        self._annotate(event, arguments)
        encoded: bytes = event.SerializeToString()
        return encoded

    def begin(
        self,
        track: int,
        time_ns: int,
        constant: bytes,
        changing: Mapping[str, Argument],
        flows_from: Sequence[int] = (),
        flows_to: Sequence[int] = (),
    ) -> None:
        """Begin a slice.

        Args:
            track: the track's uuid.
            time_ns: when.
            constant: what ``constant`` returned.
            changing: this slice's own arguments.
            flows_from: ids of the flows which start at it.
            flows_to: ids of the flows which end at it.
        """
        packet = self._event(time_ns)
        event = packet.track_event
        event.MergeFromString(constant)
        event.track_uuid = track
        if changing:
            self._annotate(event, changing)
        if flows_from:
            event.flow_ids.extend(self.first_id + flow for flow in flows_from)
        if flows_to:
            event.terminating_flow_ids.extend(self.first_id + flow for flow in flows_to)
        if self._unsent.ByteSize():
            packet.interned_data.CopyFrom(self._unsent)
            self._unsent = pb.InternedData()

    def end(self, track: int, time_ns: int) -> None:
        """End the innermost open slice of a track.

        Args:
            track: id of the track.
            time_ns: when, in nanoseconds of the trace's clock.
        """
        event = self._event(time_ns).track_event
        event.type = _SLICE_END
        event.track_uuid = track

    def count(self, track: int, time_ns: int, value: float) -> None:
        """Set a counter's value from a time on.

        Args:
            track: id of the counter's track.
            time_ns: from when on, in nanoseconds of the trace's clock.
            value: the value, in the track's unit.
        """
        event = self._event(time_ns).track_event
        event.type = _COUNTER
        event.track_uuid = track
        event.double_counter_value = value

    def flush(self) -> None:
        """Write what is held back."""
        self._file.write(self._chunk.SerializeToString())
        # A new one: the memory of a cleared message is kept until the message goes.
        self._chunk = pb.Trace()

    def _event(self, time_ns: int) -> Any:
        if len(self._chunk.packet) >= _CHUNK_PACKETS:
            self.flush()
        return self._chunk.packet.add(
            timestamp=time_ns + self._shift_ns,
            trusted_packet_sequence_id=self._events,
            sequence_flags=_NEEDS_STATE,
        )

    def _annotate(self, event: Any, arguments: Mapping[str, Argument]) -> None:
        for key, value in arguments.items():
            number = self._number("debug_annotation_names", key)
            self._fill(event.debug_annotations.add(name_iid=number), value)

    def _fill(self, annotation: Any, value: Argument) -> None:
        if isinstance(value, str):
            annotation.string_value_iid = self._number("debug_annotation_string_values", value)
        elif isinstance(value, int):
            annotation.int_value = value
        elif isinstance(value, float):
            annotation.double_value = value
        elif isinstance(value, Mapping):
            for key, part in value.items():
                number = self._number("debug_annotation_names", key)
                annotation.dict_entries.add(name_iid=number, int_value=part)
        else:
            for item in value:
                self._fill(annotation.array_values.add(), item)

    def _number(self, table: str, text: str) -> int:
        known = self._numbers.setdefault(table, {})
        number = known.get(text)
        if number is None:
            number = known[text] = len(known) + 1
            self._send(table, number, text)
        return number

    def _send(self, table: str, number: int, text: str) -> None:
        # A name from a trace may hold half a surrogate pair, which UTF-8 has no bytes for.
        encoded = text.encode("utf-8", "replace")
        entry = getattr(self._unsent, table).add(iid=number)
        if table == "debug_annotation_string_values":
            entry.str = encoded
        else:
            entry.name = encoded.decode()
