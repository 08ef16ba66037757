"""Owns reading: a Kineto trace becomes columns, and each raw event stays reachable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from profiler_ext.errors import TraceError
from profiler_ext.kineto import source, strictness
from profiler_ext.kineto.checking import (
    OverLimitError,
    check_amount,
    check_events,
    check_records,
    check_steps,
    check_value,
    decoded,
)
from profiler_ext.kineto.decoding import columns_of
from profiler_ext.kineto.events import offset_of
from profiler_ext.kineto.writers import other_writer, writer_of_text
from profiler_ext.records import Device, Ints, Trace

EVENTS_KEY = "traceEvents"
EXTENSION_KEY = "profilerExt"
BASE_KEY = "baseTimeNanoseconds"
DEVICES_KEY = "deviceProperties"
SCHEMA_KEY = "schemaVersion"


@dataclass(frozen=True, slots=True)
class FileEvents:
    """The events of a file as they stood in it, each a slice of its text."""

    text: bytes
    starts: Ints
    ends: Ints

    def __len__(self) -> int:
        """Return the number of events of every kind."""
        return len(self.starts)

    def __getitem__(self, position: int) -> bytes:
        """Return one event's JSON."""
        return self.text[self.starts[position] : self.ends[position]]


class Document(NamedTuple):
    """A trace file taken apart.

    Attributes:
        header: the top-level keys but ``traceEvents``, in order.
        raw: the events as they stood.
        strict: the events as strict JSON.
    """

    header: dict[str, msgspec.Raw]
    raw: FileEvents
    strict: Sequence[msgspec.Raw]


class _NotKinetoError(ValueError):
    """The file is JSON of something else; the message says what was found."""


_Column = Annotated[int, msgspec.Meta(gt=-(2**62), lt=2**62)]


class _Properties(msgspec.Struct, gc=False):
    id: _Column
    name: str


def read_trace(path: Path) -> Trace:
    """Read a Kineto trace.

    Args:
        path: a ``.json`` or ``.json.gz`` file that torch.profiler exported.

    Returns:
        The trace: complete events as columns, every event as it stood, the header.

    Raises:
        TraceError: The file cannot be read, or is no Kineto trace.
    """
    return trace_of(path, read_document(path))


def read_document(path: Path) -> Document:
    """Take a trace file apart without looking into its events.

    Args:
        path: a ``.json`` or ``.json.gz`` file.

    Returns:
        Its header and its events.

    Raises:
        TraceError: The file cannot be read, is no Kineto trace, or goes past a limit.
    """
    text = source.read_bytes(path)
    try:
        return _document(text)
    except OverLimitError as error:
        raise TraceError(f"{source.shown(path)} {error}") from error
    except _NotKinetoError as error:
        raise shape_error(path, str(error)) from error
    except msgspec.DecodeError as error:
        raise _json_error(path, text, error) from error


def trace_of(path: Path, document: Document) -> Trace:
    """Turn a file taken apart into a trace.

    Args:
        path: where it came from, for messages.
        document: the file.

    Returns:
        The trace.

    Raises:
        TraceError: An event or a header value is not what Kineto writes.
    """
    try:
        events, clamped = columns_of(document.strict)
        check_steps(events)
        return Trace(
            events=events,
            raw=document.raw,
            header=tuple((key, bytes(value)) for key, value in document.header.items()),
            base_ns=_base_ns(document),
            devices=_devices(document),
            clamped=clamped,
        )
    except OverLimitError as error:
        raise TraceError(f"{source.shown(path)} {error}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise shape_error(path, str(error)) from error


def shape_error(path: Path, found: str) -> TraceError:
    """Make the error for a file that is JSON but no Kineto trace.

    Args:
        path: the file.
        found: what was found.

    Returns:
        The error to raise.
    """
    return TraceError(
        f"{source.shown(path)} is no Kineto trace: {source.shown(found)}; expected what "
        "torch.profiler's export_chrome_trace writes"
    )


def _json_error(path: Path, text: bytes, error: msgspec.DecodeError) -> TraceError:
    if told := writer_of_text(text):
        return shape_error(path, told)
    if isinstance(error, msgspec.ValidationError):
        return shape_error(path, str(error))
    return TraceError(
        f"{source.shown(path)} is not valid JSON ({error}); it may be cut short: export it again"
    )


def _document(text: bytes) -> Document:
    strict = strictness.readable(text)
    check_amount(strict)
    try:
        return _taken_apart(text, strict)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if not strictness.is_odd(strict):
            raise
        return _taken_apart(text, strictness.repaired(strict))


def _taken_apart(text: bytes, strict: bytes) -> Document:
    header = decoded(strict, dict[str, msgspec.Raw])
    if EVENTS_KEY not in header:
        raise _NotKinetoError(other_writer(header) or f'no "{EVENTS_KEY}" in it')
    listed = header.pop(EVENTS_KEY)
    events = decoded(listed, list[msgspec.Raw])
    raw = _located(text, strict, offset_of(listed, strict), events)
    check_events(strict, raw.starts, raw.ends)
    for key, value in header.items():
        check = check_records if key == EXTENSION_KEY else check_value
        check(bytes(value))
    return Document(header, raw, events)


def _located(text: bytes, strict: bytes, first: int, events: Sequence[msgspec.Raw]) -> FileEvents:
    lengths = np.fromiter(map(len, events), np.int64, len(events))
    starts, end = [], first
    # Between two events stand only blanks and a comma, so the next brace begins an event.
    for length in lengths.tolist():
        start = strict.find(b"{", end)
        if start < 0:
            raise _NotKinetoError(f'"{EVENTS_KEY}" holds what is no object')
        starts.append(start)
        end = start + length
    begins = np.array(starts, dtype=np.int64)
    return FileEvents(text, begins, begins + lengths)


def _base_ns(document: Document) -> int:
    value = document.header.get(BASE_KEY)
    return 0 if value is None else _told_of(BASE_KEY, value, _Column)


def _devices(document: Document) -> tuple[Device, ...]:
    value = document.header.get(DEVICES_KEY)
    if value is None:
        return ()
    return tuple(map(_device, _told_of(DEVICES_KEY, value, list[msgspec.Raw])))


def _told_of(key: str, raw: msgspec.Raw, wanted: Any) -> Any:
    """Decode a value of the header; an error says which."""
    try:
        return msgspec.json.decode(raw, type=wanted)
    except msgspec.DecodeError as error:
        raise ValueError(f"{key}: {error}") from error


def _device(raw: msgspec.Raw) -> Device:
    known = _told_of(DEVICES_KEY, raw, _Properties)
    named = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    rest = ((key, bytes(value).decode()) for key, value in named.items())
    properties = tuple((key, text) for key, text in rest if key not in ("id", "name"))
    return Device(known.id, known.name, properties)
