"""Owns the recording file: the Kineto trace as it was, with our data beside and inside it.

What is added to an event's arguments stands last in them, behind a key that says so; reading
cuts it off again, so that every event comes back byte for byte.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import IO

import msgspec

from exporters.writing import replacing
from profiler_ext.errors import TraceError
from profiler_ext.kineto import source
from profiler_ext.kineto.reader import EVENTS_KEY, read_document, shape_error, trace_of
from profiler_ext.records import (
    SCHEMA_VERSION,
    Gap,
    GraphInstance,
    RawEvents,
    Recording,
    Settings,
    Trace,
)

EXTENSION_KEY = "profilerExt"
ADDED_KEY = "compile.added"

Arguments = Mapping[int, Mapping[str, object]]

_NO_ARGUMENTS: Arguments = MappingProxyType({})
_ADDED = f'"{ADDED_KEY}"'.encode()
_ADDED_KEYS = re.compile(rb'(?:,\s*)?"compile\.added"\s*:\s*"keys"')
_ADDED_ARGS = re.compile(rb',\s*"args"\s*:\s*\{\s*"compile\.added"\s*:\s*"args"')
_EVENTS_A_WRITE = 1_000
_GZIP_LEVEL = 3


class _Schema(msgspec.Struct):
    schema: int


class _Extension(msgspec.Struct):
    schema: int
    settings: Settings
    graphs: tuple[GraphInstance, ...]
    gaps: tuple[Gap, ...]


class _ArgsOf(msgspec.Struct):
    args: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class OriginalEvents:
    """The events of a recording as they were before anything was added to them."""

    written: RawEvents

    def __len__(self) -> int:
        """Return the number of events of every kind."""
        return len(self.written)

    def __getitem__(self, position: int) -> bytes:
        """Return one event's JSON as the profiler wrote it."""
        return original(self.written[position])


def write_recording(path: Path, recording: Recording, arguments: Arguments = _NO_ARGUMENTS) -> None:
    """Write a recording as a Kineto trace that every viewer opens.

    Args:
        path: the file; compressed when its name ends with ``.gz``.
        recording: what to write.
        arguments: what to add to the arguments of events, by position in the file.

    Raises:
        OutputError: The file cannot be written.
    """
    with replacing(path) as file, _compressed(path, file) as out:
        for part in _parts(recording, arguments):
            out.write(part)


def read_recording(path: Path) -> Recording:
    """Read a recording, or any Kineto trace as a recording without graphs.

    Args:
        path: a ``.json`` or ``.json.gz`` file.

    Returns:
        The recording; its events as the profiler wrote them.

    Raises:
        TraceError: The file cannot be read, is no Kineto trace, or was written by a newer
            version of this package.
    """
    document = read_document(path)
    extension = document.header.pop(EXTENSION_KEY, None)
    trace = trace_of(path, document)
    if extension is None:
        return Recording(trace)
    ours = _extension(path, extension)
    return Recording(_restored(trace), ours.graphs, ours.settings, ours.gaps)


def with_arguments(raw: bytes, added: Mapping[str, object]) -> bytes:
    """Add arguments to one raw event; an argument that it has already is left alone.

    Args:
        raw: the event's JSON.
        added: the arguments.

    Returns:
        The event's JSON; :func:`original` gives back ``raw``.
    """
    span = _args_span(raw)
    if span is None:
        end = raw.rindex(b"}")
        member = b',"args":' + msgspec.json.encode({ADDED_KEY: "args", **added})
        return raw[:end] + member + raw[end:]
    begin, end = span
    present = _keys(raw[begin : end + 1])
    new = {key: value for key, value in added.items() if key not in present}
    members = msgspec.json.encode({ADDED_KEY: "keys", **new})[1:-1]
    return raw[:end] + (b"," if present else b"") + members + raw[end:]


def original(raw: bytes) -> bytes:
    """Cut off what :func:`with_arguments` added.

    Args:
        raw: an event's JSON.

    Returns:
        The event as it was.
    """
    if _ADDED not in raw:
        return raw
    span, keys = _args_span(raw), _ADDED_KEYS.search(raw)
    if span is not None and keys is not None:
        return raw[: keys.start()] + raw[span[1] :]
    member = _ADDED_ARGS.search(raw)
    return raw if span is None or member is None else raw[: member.start()] + raw[span[1] + 1 :]


@contextmanager
def _compressed(path: Path, file: IO[bytes]) -> Iterator[IO[bytes]]:
    if path.suffix != ".gz":
        yield file
        return
    # No name and no time inside: the same recording gives the same bytes.
    with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as packed:
        yield packed  # type: ignore[misc]


def _parts(recording: Recording, arguments: Arguments) -> Iterator[bytes]:
    yield b"{\n"
    for key, value in recording.trace.header:
        yield msgspec.json.encode(key) + b": " + value + b",\n"
    yield msgspec.json.encode(EVENTS_KEY) + b": [\n"
    yield from _event_parts(recording.trace.raw, arguments)
    yield b"\n],\n" + msgspec.json.encode(EXTENSION_KEY) + b": "
    yield msgspec.json.encode(
        _Extension(SCHEMA_VERSION, recording.settings, recording.graphs, recording.gaps)
    )
    yield b"\n}\n"


def _event_parts(raw: RawEvents, arguments: Arguments) -> Iterator[bytes]:
    for first in range(0, len(raw), _EVENTS_A_WRITE):
        positions = range(first, min(first + _EVENTS_A_WRITE, len(raw)))
        if first:
            yield b",\n"
        yield b",\n".join(_event(raw[at], arguments.get(at)) for at in positions)


def _event(raw: bytes, added: Mapping[str, object] | None) -> bytes:
    return with_arguments(raw, added) if added else raw


def _args_span(raw: bytes) -> tuple[int, int] | None:
    """Return where the braces of ``args`` stand."""
    strict = source.strict(raw)
    args = msgspec.json.decode(strict, type=_ArgsOf).args
    if args is msgspec.UNSET:
        return None
    begin = strict.index(bytes(args), strict.index(b'"args"'))
    return begin, begin + len(args) - 1


def _keys(args: bytes) -> set[str]:
    return set(msgspec.json.decode(source.strict(args), type=dict[str, msgspec.Raw]))


def _restored(trace: Trace) -> Trace:
    return replace(trace, raw=OriginalEvents(trace.raw))


def _extension(path: Path, raw: msgspec.Raw) -> _Extension:
    try:
        schema = msgspec.json.decode(raw, type=_Schema).schema
        if schema > SCHEMA_VERSION:
            raise TraceError(
                f"{path} was written by a newer profiler-ext (schema {schema}; this one reads up "
                f"to {SCHEMA_VERSION}); update profiler-ext to read it"
            )
        return msgspec.json.decode(raw, type=_Extension)
    except msgspec.DecodeError as error:
        raise shape_error(path, f"{EXTENSION_KEY}: {error}") from error
