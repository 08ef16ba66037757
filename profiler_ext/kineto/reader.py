"""Reads a Kineto trace to columns, with each raw event kept reachable."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from profiler_ext.errors import TraceError
from profiler_ext.kineto import checking, raw_events, source
from profiler_ext.kineto.blocks import read_in_blocks
from profiler_ext.kineto.decoding import GrowingColumns
from profiler_ext.kineto.document import (
    EVENTS_KEY,
    Document,
    FileEvents,
    Header,
    NotKinetoError,
    check_header,
    located,
)
from profiler_ext.kineto.event_json import decoded_each
from profiler_ext.kineto.parallel_reading import read_in_parallel, reader_processes
from profiler_ext.kineto.raw_events import offset_of
from profiler_ext.kineto.source import FileText
from profiler_ext.records.events import Device, Events, Ints, RawEvents, Trace
from profiler_ext.records.stored import known

RECORD = "record the step with torch.profiler, or with `profiler-ext run`"
_NSIGHT = (b'"CudaEvent"', b'"NvtxEvent"', b'"TraceProcessEvent"')
_BEGINNING_BYTES = 1 << 20
_LIST = (
    "it is a list: Chrome and torch's legacy autograd profiler write one, Kineto an object; "
    + RECORD
)
_ASCEND = (b'"Ascend Hardware"', b'"async_npu"', b'"HostToDevice"', b'"Overlap Analysis"')
_ASCEND_LIST = (
    "it is a list of events, as torch_npu's trace_view.json is: traces of Ascend devices are not "
    "read; MindStudio Insight reads them"
)
_BY_KEY = (
    ("viztracer_metadata", b"", f"VizTracer wrote it; {RECORD}"),
    ("$schema", b"speedscope", f"it is a profile for speedscope; {RECORD}"),
    ("format", b"profiler_ext.attribution", "it is our attribution for TensorBoard: give the "
     "session.pt.trace.json.gz that it was made from"),
    ("answer", b"", "it is an answer of ours for programs: give the session that was asked"),
    ("timeDeltas", b"", f"it is a CPU profile of V8's; {RECORD}"),
    ("root_frame", b"", f"pyinstrument wrote it; {RECORD}"),
    ("resourceSpans", b"", f"it is a trace of OpenTelemetry; {RECORD}"),
    ("rocprofiler-sdk-tool", b"", f"AMD's rocprofv3 wrote it; {RECORD}"),
    ("nodes", b"", "it is an execution trace of torch, which has no times: give the trace that "
     "torch.profiler's export_chrome_trace wrote beside it"),
    ("metadata", b"DevTools", f"Chrome's DevTools wrote it; {RECORD}"),
    ("metadata", b"highres-ticks", f"JAX or XProf wrote it; {RECORD}"),
)  # fmt: skip
_EVENTS_PER_CHUNK = 50_000
BASE_KEY = "baseTimeNanoseconds"
DEVICES_KEY = "deviceProperties"
SCHEMA_KEY = "schemaVersion"
_Column = Annotated[int, msgspec.Meta(gt=-(2**62), lt=2**62)]


def other_writer(header: Mapping[str, msgspec.Raw]) -> str | None:
    """Return who wrote a file with these top-level keys, and the remedy, if known."""
    for key, word, description in _BY_KEY:
        if key in header and word in bytes(header[key]):
            return description
    return None


def writer_of_text(text: bytes) -> str | None:
    """Return who wrote text that is no single JSON object, and the remedy, if known."""
    beginning = text[:_BEGINNING_BYTES]
    if text.lstrip()[:1] == b"[":
        some = beginning + text[-_BEGINNING_BYTES:]
        is_ascend = any(word in some for word in _ASCEND)
        return _ASCEND_LIST if is_ascend else _LIST
    if any(word in beginning for word in _NSIGHT):
        return f"Nsight Systems wrote it, a line of JSON for each event; {RECORD}"
    return None


def read_slow_path(text: bytes) -> Document:
    """Split a trace; raises msgspec.DecodeError, NotKinetoError or OverLimitError."""
    strict = raw_events.readable(text)
    checking.check_object_count(strict)
    try:
        return _split_document(text, strict)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if not raw_events.is_nonstandard(strict):
            raise
        return _split_document(text, raw_events.repaired(strict))


def _split_document(text: bytes, strict: bytes) -> Document:
    header = checking.decoded(strict, Header)
    if EVENTS_KEY not in header:
        raise NotKinetoError(other_writer(header) or f'no "{EVENTS_KEY}" in it')
    listed = header.pop(EVENTS_KEY)
    events = checking.decoded(listed, list[msgspec.Raw])
    raw = FileEvents(text, *located(strict, offset_of(listed, strict), events))
    checking.check_counts(0, len(raw))
    checking.check_events(strict, raw.starts, raw.ends)
    check_header(header)
    return Document(header, raw, functools.partial(_columns, events))


def _columns(raws: Sequence[msgspec.Raw]) -> tuple[Events, int]:
    columns = GrowingColumns()
    for first in range(0, len(raws), _EVENTS_PER_CHUNK):
        columns.add(first, decoded_each(first, raws[first : first + _EVENTS_PER_CHUNK]))
    return columns.finished()


@dataclass(frozen=True, slots=True)
class _AddedEvents:
    """The events of a file, and more after them."""

    of_file: RawEvents
    added: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.of_file) + len(self.added)

    def __getitem__(self, position: int) -> bytes:
        at = position - len(self.of_file)
        return self.of_file[position] if at < 0 else self.added[at]

    def at(self, positions: Ints) -> Iterator[bytes]:
        return map(self.__getitem__, positions.tolist())


def with_events(trace: Trace, added: Sequence[bytes]) -> Trace:
    """Return a trace with more events, each a JSON object as in the file."""
    raw = _AddedEvents(trace.raw, tuple(added))
    every = raw.at(np.arange(len(raw), dtype=np.int64))
    events, clamped = _columns([msgspec.Raw(raw_events.strict(each)) for each in every])
    return replace(trace, events=events, raw=raw, clamped=clamped)


class _Properties(msgspec.Struct, gc=False):
    id: _Column
    name: str


def read_trace(path: Path) -> Trace:
    """Read a Kineto trace; raises TraceError."""
    return trace_of(path, read_document(path))


def read_document(path: Path, jobs: int | None = 1) -> Document:
    """Split a trace file without decoding its events' arguments; raises TraceError."""
    # jobs: most processes that read a long file; ``None`` for one a core
    text = source.read_text(path)
    if isinstance(text, FileText) and (processes := reader_processes(text, jobs)) > 1:
        # What several processes cannot read, one reads, or reports why not.
        with suppress(ValueError, RecursionError, OSError):
            return read_in_parallel(text, processes)
    try:
        return read_in_blocks(text)
    except (
        checking.OverLimitError
    ) as error:  # the rest of the file, which may be long, changes nothing
        raise TraceError(f"{source.shown(path)} {error}") from error
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _read_slow_path(path, text[:])


def read_document_of(text: bytes) -> Document:
    """Split the text of a trace that this package packed; raises ValueError."""
    try:
        return read_in_blocks(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"it is no trace ({error})") from error


def trace_of(path: Path, document: Document) -> Trace:
    """Turn a split file into a trace; raises TraceError."""
    try:
        events, clamped = document.columns()
        checking.check_steps(events)
        return Trace(
            events=events,
            raw=document.raw,
            header=tuple((key, bytes(value)) for key, value in document.header.items()),
            base_ns=_base_ns(document),
            devices=_devices(document),
            clamped=clamped,
        )
    except checking.OverLimitError as error:
        raise TraceError(f"{source.shown(path)} {error}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise shape_error(path, str(error)) from error


def shape_error(path: Path, problem: str) -> TraceError:
    """Make the error for a file that is JSON but no Kineto trace."""
    return TraceError(
        f"{source.shown(path)} is no Kineto trace: {source.shown(problem)}; expected what "
        "torch.profiler's export_chrome_trace writes"
    )


def _read_slow_path(path: Path, text: bytes) -> Document:
    try:
        return read_slow_path(text)
    except checking.OverLimitError as error:
        raise TraceError(f"{source.shown(path)} {error}") from error
    except NotKinetoError as error:
        raise shape_error(path, str(error)) from error
    except msgspec.DecodeError as error:
        raise _json_error(path, text, error) from error


def _json_error(path: Path, text: bytes, error: msgspec.DecodeError) -> TraceError:
    if writer := writer_of_text(text):
        return shape_error(path, writer)
    if isinstance(error, msgspec.ValidationError):
        return shape_error(path, str(error))
    return TraceError(
        f"{source.shown(path)} is not valid JSON ({error}); it may be cut short: export it again"
    )


def _base_ns(document: Document) -> int:
    value = document.header.get(BASE_KEY)
    return 0 if value is None else _header_value(BASE_KEY, value, _Column)


def _devices(document: Document) -> tuple[Device, ...]:
    value = document.header.get(DEVICES_KEY)
    if value is None:
        return ()
    return tuple(map(_device, _header_value(DEVICES_KEY, value, list[msgspec.Raw])))


def _header_value(key: str, raw: msgspec.Raw, wanted: Any) -> Any:
    try:
        return msgspec.json.decode(raw, type=known(wanted))
    except msgspec.DecodeError as error:
        raise ValueError(f"{key}: {error}") from error


def _device(raw: msgspec.Raw) -> Device:
    known = _header_value(DEVICES_KEY, raw, _Properties)
    named = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    rest = ((key, bytes(value).decode()) for key, value in named.items())
    properties = tuple((key, text) for key, text in rest if key not in ("id", "name"))
    return Device(known.id, known.name, properties)
