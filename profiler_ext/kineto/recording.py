"""The recording file: a Kineto trace with our records in its header and its events' arguments.

Reading cuts off what was added, so that every event is byte for byte the profiler's. In schema 1 a
graph had the evidence of its nodes' lines in a list, ``line_evidence``; it is still read. In schema
2 each node has its own. In schema 3 some keys have other names; the earlier ones are still read
(:mod:`profiler_ext.records.stored`).
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import msgspec
import numpy as np

from profiler_ext import errors, file_io, version
from profiler_ext.collector import without_collector
from profiler_ext.kineto import checking, distributed, names, raw_events, reader, source
from profiler_ext.kineto.document import EVENTS_KEY, EXTENSION_KEY, Document
from profiler_ext.records import consistency, provenance, stored
from profiler_ext.records.compiles import Compilation
from profiler_ext.records.events import Ints, RawEvents, Trace
from profiler_ext.records.recording import (
    CapturedGraph,
    CaptureRecording,
    Cell,
    GeneratedModule,
    PythonLines,
    Recording,
    Settings,
    capture_recording,
    inconsistency_of_captures,
    inconsistency_of_code,
)
from profiler_ext.records.values import StepValues, inconsistency_of_values

Arguments = Mapping[int, Mapping[str, object]]
Header = Iterable[tuple[str, bytes]]

SCHEMA = 3
_NO_ARGUMENTS: Arguments = MappingProxyType({})
_EVENTS_PER_WRITE = 1_000
_GZIP_LEVEL = 3


class _Schema(msgspec.Struct):
    schema: int


class _Extension(msgspec.Struct):
    schema: int
    settings: Settings
    graphs: tuple[provenance.GraphInstance, ...]
    gaps: tuple[provenance.Gap, ...]
    python: PythonLines | None = None
    compiles: tuple[Compilation, ...] = ()
    generated: tuple[GeneratedModule, ...] = ()
    cells: tuple[Cell, ...] = ()
    cuda_graphs: tuple[CapturedGraph, ...] = ()
    captures: tuple[CaptureRecording, ...] = ()
    values: StepValues | None = None


@dataclass(frozen=True, slots=True)
class OriginalEvents:
    """The events of a recording without what was added to them."""

    written: RawEvents

    def __len__(self) -> int:
        return len(self.written)

    def __getitem__(self, position: int) -> bytes:
        return raw_events.original(self.written[position])

    def at(self, positions: Ints) -> Iterator[bytes]:
        """Return the JSON of several events, much quicker than one by one."""
        return map(raw_events.original, self.written.at(positions))


def as_written(raw: RawEvents) -> RawEvents:
    """Return events with what was added to them, for readers that use none of it."""
    # Cutting it off takes longer than reading an event.
    return raw.written if isinstance(raw, OriginalEvents) else raw


def write_recording(path: Path, recording: Recording, arguments: Arguments = _NO_ARGUMENTS) -> None:
    """Write a recording as a Kineto trace that every viewer opens; raises OutputError."""
    # arguments: what to add to the arguments of events, by position in the file
    ours = _extension_of(recording)
    content = {**stored.flat(ours), stored.WRITER_KEY: version.VERSION}
    header = (*recording.trace.header, (EXTENSION_KEY, msgspec.json.encode(content)))
    write_trace(path, header, _events(recording.trace.raw, arguments))


def packed_capture(recording: Recording) -> CaptureRecording:
    """Compress the file of what was recorded while CUDA graphs were captured."""
    extension = (EXTENSION_KEY, msgspec.json.encode(stored.flat(_extension_of(recording))))
    header = (*recording.trace.header, extension)
    return capture_recording(b"".join(_parts(header, _events(recording.trace.raw, _NO_ARGUMENTS))))


def unpacked_capture(capture: CaptureRecording) -> Recording:
    """Return what was recorded while CUDA graphs were captured; raises TraceError or ValueError."""
    document = reader.read_document_of(capture.content)
    return _recording_of(Path("the capture of a CUDA graph"), document)


def without_source(recording: Recording) -> Recording:
    """Return a recording without source text, and so what was recorded during captures.

    Raises:
        TraceError: What a file holds of a capture is no recording.
        ValueError: It cannot be unpacked.
    """
    captures = (stored.without_source(unpacked_capture(each)) for each in recording.captures)
    return replace(stored.without_source(recording), captures=tuple(map(packed_capture, captures)))


def write_trace(path: Path, header: Header, events: Iterable[bytes]) -> None:
    """Write a Kineto trace; raises OutputError."""
    with file_io.replacing(path) as file, _compressed(path, file) as out:
        for part in _parts(header, events):
            out.write(part)


def read_recording(path: Path, jobs: int | None = 1) -> Recording:
    """Read a recording, or any Kineto trace as a recording without graphs; raises TraceError."""
    # jobs: most processes that read a long file; ``None`` for one a core
    with without_collector():
        return _read(path, jobs)


def _read(path: Path, jobs: int | None) -> Recording:
    return _recording_of(path, reader.read_document(path, jobs))


def _recording_of(path: Path, document: Document) -> Recording:
    extension = document.header.pop(EXTENSION_KEY, None)
    trace = reader.trace_of(path, document)
    if extension is None:
        _check_is_kinetos(path, trace)
        return distributed.with_rank(Recording(trace))
    ours = _extension(path, extension)
    recording = Recording(
        replace(trace, raw=OriginalEvents(trace.raw)),
        ours.graphs,
        ours.settings,
        ours.gaps,
        ours.python,
        ours.compiles,
        ours.generated,
        ours.cells,
        ours.cuda_graphs,
        ours.captures,
        ours.values,
    )
    return distributed.with_rank(recording)


def _check_is_kinetos(path: Path, trace: Trace) -> None:
    """Raise unless torch.profiler wrote it; tools that cut a trace may drop its header."""
    header = {key: msgspec.Raw(value) for key, value in trace.header}
    if reader.SCHEMA_KEY in header:
        return
    content = reader.other_writer(header)
    if content is None and trace.events.category.where(*names.WORK_CATEGORIES).any():
        return
    content = content or f"another tool wrote it; {reader.RECORD}"
    raise reader.shape_error(path, f'no "{reader.SCHEMA_KEY}" in it: {content}')


def with_valid_utf8(recording: Recording) -> Recording:
    """Return a recording whose texts fit every format."""
    # A path may hold bytes that are not UTF-8, lone surrogates in Python; they become ``\udcff``.
    ours = _extension_of(recording)
    try:
        msgspec.json.encode(ours)
        return recording
    except UnicodeEncodeError:
        clean = msgspec.convert(_escaped(msgspec.to_builtins(ours)), stored.known(_Extension))
    return replace(
        recording,
        settings=clean.settings,
        graphs=clean.graphs,
        gaps=clean.gaps,
        python=clean.python,
        compiles=clean.compiles,
        generated=clean.generated,
        cells=clean.cells,
        cuda_graphs=clean.cuda_graphs,
        captures=clean.captures,
        values=clean.values,
    )


def _extension_of(recording: Recording) -> _Extension:
    return _Extension(
        SCHEMA,
        recording.settings,
        recording.graphs,
        recording.gaps,
        recording.python,
        recording.compiles,
        recording.generated,
        recording.cells,
        recording.cuda_graphs,
        recording.captures,
        recording.values,
    )


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {key: _escaped(each) for key, each in value.items()}
    return [*map(_escaped, value)] if isinstance(value, list | tuple) else value


@contextmanager
def _compressed(path: Path, file: IO[bytes]) -> Iterator[IO[bytes]]:
    if path.suffix != ".gz":
        yield file
        return
    # No name and no time inside: the same recording gives the same bytes.
    with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as packed:
        yield packed  # type: ignore[misc]


def _parts(header: Header, events: Iterable[bytes]) -> Iterator[bytes]:
    yield b"{\n"
    for key, value in header:
        yield msgspec.json.encode(key) + b": " + value + b",\n"
    # The events come last: torch-tb-profiler appends its own at the last bracket of the file.
    yield msgspec.json.encode(EVENTS_KEY) + b": [\n"
    separator, remaining = b"", iter(events)
    while some := list(islice(remaining, _EVENTS_PER_WRITE)):
        yield separator + b",\n".join(some)
        separator = b",\n"
    yield b"\n]}\n"


def _events(raw: RawEvents, arguments: Arguments) -> Iterator[bytes]:
    for position, event in enumerate(raw.at(np.arange(len(raw)))):
        yield (
            raw_events.with_arguments(event, arguments[position])
            if position in arguments
            else event
        )


def _extension(path: Path, raw: msgspec.Raw) -> _Extension:
    content: Any = None
    try:
        schema = checking.decoded(raw, _Schema).schema
        if schema > SCHEMA:
            raise errors.TraceError(
                f"{source.shown(path)} was written by a newer profiler-ext (schema {schema}; this "
                f"one reads up to {SCHEMA}); update profiler-ext to read it"
            )
        content = checking.decoded(raw, Any)
        ours = stored.nested(content, _Extension)
    except checking.OverLimitError as error:
        raise errors.TraceError(f"{source.shown(path)} {error}") from error
    except msgspec.DecodeError as error:
        raise _unreadable(path, str(error), content) from error
    problem = consistency.inconsistency_of_session(ours.settings, ours.graphs, ours.compiles)
    if problem is None and ours.python is not None:
        problem = consistency.inconsistency_of_lines(ours.python)
    if problem is None:
        problem = inconsistency_of_code(ours.generated)
    if problem is None:
        problem = inconsistency_of_captures(ours.cuda_graphs, ours.captures)
    if problem is None and ours.values is not None:
        problem = inconsistency_of_values(ours.values)
    if problem is not None:
        raise _unreadable(path, problem, content)
    return ours


def _unreadable(path: Path, problem: str, content: object) -> errors.TraceError:
    if mismatch := stored.version_mismatch(problem, content):
        return errors.TraceError(f"{source.shown(path)} {mismatch}")
    return reader.shape_error(path, f"{EXTENSION_KEY}: {problem}")
