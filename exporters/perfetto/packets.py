"""Owns the bytes of a Perfetto trace: packets, interned strings, written in chunks.

The messages are those of the ``perfetto`` package, which has the numbers of all fields. A trace
has a million events of few fields, so these are put together from bytes here; the rest is left
to the library. What is the same for many slices is encoded once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from profiler_ext.exporters.perfetto.fields import double, fixed, key_of, sized, varint

Argument = str | int | float | Sequence[str] | Sequence[int] | Mapping[str, int]

_CHUNK_PACKETS = 2000
# Each rank has sequences and ids of its own, so that the files of ranks can be joined.
_IDS_OF_RANK = 2**40
_STATE_CLEARED = pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED

_PACKET = key_of(pb.Trace, "packet")
_TIMESTAMP = key_of(pb.TracePacket, "timestamp")
_SEQUENCE = key_of(pb.TracePacket, "trusted_packet_sequence_id")
_TRACK_EVENT = key_of(pb.TracePacket, "track_event")
_INTERNED = key_of(pb.TracePacket, "interned_data")
_NEEDS_STATE = key_of(pb.TracePacket, "sequence_flags") + varint(
    pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
)
_CATEGORY = key_of(pb.TrackEvent, "category_iids")
_ANNOTATION = key_of(pb.TrackEvent, "debug_annotations")
_TYPE = key_of(pb.TrackEvent, "type")
_BEGIN, _END, _COUNTER = (
    _TYPE + varint(number)
    for number in (
        pb.TrackEvent.TYPE_SLICE_BEGIN,
        pb.TrackEvent.TYPE_SLICE_END,
        pb.TrackEvent.TYPE_COUNTER,
    )
)
_NAME = key_of(pb.TrackEvent, "name_iid")
_TRACK = key_of(pb.TrackEvent, "track_uuid")
_VALUE = key_of(pb.TrackEvent, "double_counter_value")
_FLOW_FROM = key_of(pb.TrackEvent, "flow_ids")
_FLOW_TO = key_of(pb.TrackEvent, "terminating_flow_ids")
_KEY = key_of(pb.DebugAnnotation, "name_iid")
_INT = key_of(pb.DebugAnnotation, "int_value")
_DOUBLE = key_of(pb.DebugAnnotation, "double_value")
_TEXT = key_of(pb.DebugAnnotation, "string_value_iid")
_ENTRY = key_of(pb.DebugAnnotation, "dict_entries")
_ITEM = key_of(pb.DebugAnnotation, "array_values")


class Constant(NamedTuple):
    """What many slices share, encoded.

    Attributes:
        before: the fields before a slice's own arguments: the category, constant arguments.
        after: those after them: that it begins, and its name.
    """

    before: bytes
    after: bytes


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
        self._of_event = _SEQUENCE + varint(self._events) + _TRACK_EVENT
        self._chunk: list[bytes | pb.TracePacket] = []
        self._unsent: pb.InternedData | None = None
        self._numbers: dict[str, dict[str, bytes]] = defaultdict(dict)

    def clock(self, boot_ns: int, wall_ns: int) -> None:
        """Say which wall-clock time a time of the trace is; must come first.

        Args:
            boot_ns: a time on the trace's clock, which is that of all ranks.
            wall_ns: the same moment in nanoseconds since 1970.
        """
        packet = self._added(self._events)
        packet.sequence_flags = _STATE_CLEARED
        clocks = packet.clock_snapshot.clocks
        clocks.add(clock_id=pb.BUILTIN_CLOCK_BOOTTIME, timestamp=boot_ns)
        clocks.add(clock_id=pb.BUILTIN_CLOCK_REALTIME, timestamp=wall_ns)

    def descriptor(self) -> Any:
        """Return a new, empty ``TrackDescriptor``, already part of the trace."""
        return self._added(self._descriptors).track_descriptor

    def constant(self, name: str, category: str, arguments: Mapping[str, Argument]) -> Constant:
        """Encode what many slices share.

        Args:
            name: name of the slice.
            category: its category.
            arguments: its constant arguments.

        Returns:
            The encoded part, for ``begin``.
        """
        named = self._number("event_names", name)
        category_number = self._number("event_categories", category)
        before = _CATEGORY + category_number + self._annotated(arguments)
        return Constant(before, _BEGIN + _NAME + named)

    def begin(
        self,
        track: int,
        time_ns: int,
        constant: Constant,
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
        event = constant.before + self._annotated(changing) + constant.after
        event += _TRACK + varint(track)
        for flow in flows_from:
            event += _FLOW_FROM + fixed(self.first_id + flow)
        for flow in flows_to:
            event += _FLOW_TO + fixed(self.first_id + flow)
        interned = b""
        if self._unsent is not None:
            interned = sized(_INTERNED, self._unsent.SerializeToString())
            self._unsent = None
        self._event(time_ns, event, interned)

    def end(self, track: int, time_ns: int) -> None:
        """End the innermost open slice of a track.

        Args:
            track: id of the track.
            time_ns: when, in nanoseconds of the trace's clock.
        """
        self._event(time_ns, _END + _TRACK + varint(track))

    def count(self, track: int, time_ns: int, value: float) -> None:
        """Set a counter's value from a time on.

        Args:
            track: id of the counter's track.
            time_ns: from when on, in nanoseconds of the trace's clock.
            value: the value, in the track's unit.
        """
        self._event(time_ns, _COUNTER + _TRACK + varint(track) + _VALUE + double(value))

    def flush(self) -> None:
        """Write what is held back."""
        packets = (
            each if isinstance(each, bytes) else sized(_PACKET, each.SerializeToString())
            for each in self._chunk
        )
        self._file.write(b"".join(packets))
        self._chunk = []

    def _added(self, sequence: int) -> Any:
        packet = pb.TracePacket(trusted_packet_sequence_id=sequence)
        self._chunk.append(packet)
        return packet

    def _event(self, time_ns: int, event: bytes, interned: bytes = b"") -> None:
        """Add an event; the fields of a packet are in order of their numbers."""
        if len(self._chunk) >= _CHUNK_PACKETS:
            self.flush()
        time = _TIMESTAMP + varint(time_ns + self._shift_ns)
        of_event = self._of_event + varint(len(event)) + event
        self._chunk.append(sized(_PACKET, time + of_event + interned + _NEEDS_STATE))

    def _annotated(self, arguments: Mapping[str, Argument]) -> bytes:
        encoded = b""
        for key, value in arguments.items():
            encoded += sized(_ANNOTATION, self._named(key) + self._value(value))
        return encoded

    def _value(self, value: Argument) -> bytes:
        if isinstance(value, int) and -(2**63) <= value < 2**63:
            return _INT + varint(value)
        if isinstance(value, int):  # as a file may say that another tool wrote
            value = str(value)
        if isinstance(value, str):
            return _TEXT + self._number("debug_annotation_string_values", value)
        if isinstance(value, float):
            return _DOUBLE + double(value)
        if isinstance(value, Mapping):
            return b"".join(self._entry(key, part) for key, part in value.items())
        return b"".join(sized(_ITEM, self._value(item)) for item in value)

    def _entry(self, key: str, part: int) -> bytes:
        return sized(_ENTRY, self._named(key) + self._value(part))

    def _named(self, key: str) -> bytes:
        return _KEY + self._number("debug_annotation_names", key)

    def _number(self, table: str, text: str) -> bytes:
        """Return the number of a text, encoded; a new text is sent with the next slice."""
        known = self._numbers[table]
        number = known.get(text)
        if number is None:
            number = known[text] = varint(len(known) + 1)
            self._send(table, len(known), text)
        return number

    def _send(self, table: str, number: int, text: str) -> None:
        if self._unsent is None:
            self._unsent = pb.InternedData()
        # A name from a trace may hold half a surrogate pair, which UTF-8 has no bytes for.
        encoded = text.encode("utf-8", "replace")
        entry = getattr(self._unsent, table).add(iid=number)
        if table == "debug_annotation_string_values":
            entry.str = encoded
        else:
            entry.name = encoded.decode()
