"""Owns reading: a Kineto trace becomes columns, and each raw event stays reachable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from profiler_ext.errors import TraceError
from profiler_ext.kineto import source
from profiler_ext.kineto.columns import columns_of
from profiler_ext.records import Device, Ints, Trace

EVENTS_KEY = "traceEvents"
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


class _Properties(msgspec.Struct, gc=False):
    id: int
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
        TraceError: The file cannot be read, or is no Kineto trace.
    """
    text = source.read_bytes(path)
    try:
        return _document(text)
    except msgspec.ValidationError as error:
        raise shape_error(path, str(error)) from error
    except msgspec.DecodeError as error:
        raise TraceError(
            f"{path} is not valid JSON ({error}); it may be cut short: export it again"
        ) from error
    except KeyError as error:
        raise shape_error(path, f'no "{EVENTS_KEY}" in it') from error
    except ValueError as error:
        raise shape_error(path, f'"{EVENTS_KEY}" holds what is no object') from error


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
        return Trace(
            events=columns_of(document.strict),
            raw=document.raw,
            header=tuple((key, bytes(value)) for key, value in document.header.items()),
            base_ns=_base_ns(document),
            devices=_devices(document),
        )
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
        f"{path} is no Kineto trace: {found}; expected what torch.profiler's "
        "export_chrome_trace writes"
    )


def _document(text: bytes) -> Document:
    strict = source.readable(text)
    try:
        return _taken_apart(text, strict)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if not source.has_odd_values(strict):
            raise
        return _taken_apart(text, source.without_odd_values(strict))


def _taken_apart(text: bytes, strict: bytes) -> Document:
    header = msgspec.json.decode(strict, type=dict[str, msgspec.Raw])
    listed = header.pop(EVENTS_KEY)
    events = msgspec.json.decode(listed, type=list[msgspec.Raw])
    first = strict.index(bytes(memoryview(listed)[:4096]))
    return Document(header, _located(text, strict, first, events), events)


def _located(text: bytes, strict: bytes, first: int, events: Sequence[msgspec.Raw]) -> FileEvents:
    lengths = np.fromiter(map(len, events), np.int64, len(events))
    starts, end = [], first
    # Between two events stand only blanks and a comma, so the next brace begins an event.
    for length in lengths.tolist():
        start = strict.index(b"{", end)
        starts.append(start)
        end = start + length
    begins = np.array(starts, dtype=np.int64)
    return FileEvents(text, begins, begins + lengths)


def _base_ns(document: Document) -> int:
    value = document.header.get(BASE_KEY)
    return 0 if value is None else msgspec.json.decode(value, type=int)


def _devices(document: Document) -> tuple[Device, ...]:
    value = document.header.get(DEVICES_KEY)
    if value is None:
        return ()
    return tuple(map(_device, msgspec.json.decode(value, type=list[msgspec.Raw])))


def _device(raw: msgspec.Raw) -> Device:
    known = msgspec.json.decode(raw, type=_Properties)
    named = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    rest = ((key, bytes(value).decode()) for key, value in named.items())
    properties = tuple((key, text) for key, text in rest if key not in ("id", "name"))
    return Device(known.id, known.name, properties)
