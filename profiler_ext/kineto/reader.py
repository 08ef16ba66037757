"""Owns reading: a Kineto trace becomes columns, and each raw event stays reachable."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec

from profiler_ext.errors import TraceError
from profiler_ext.kineto import source
from profiler_ext.kineto.blocks import read_in_blocks
from profiler_ext.kineto.careful import read_slow_path
from profiler_ext.kineto.checking import OverLimitError, check_steps
from profiler_ext.kineto.document import Document, NotKinetoError
from profiler_ext.kineto.file_text import FileText
from profiler_ext.kineto.together import reader_processes, read_in_parallel
from profiler_ext.kineto.writers import writer_of_text
from profiler_ext.records import Device, Trace
from profiler_ext.records.known_types import known

BASE_KEY = "baseTimeNanoseconds"
DEVICES_KEY = "deviceProperties"
SCHEMA_KEY = "schemaVersion"


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


def read_document(path: Path, jobs: int | None = 1) -> Document:
    """Take a trace file apart without looking into its events.

    Args:
        path: a ``.json`` or ``.json.gz`` file.
        jobs: so many processes read it at most, if it is long; ``None`` for one a core.

    Returns:
        Its header and its events.

    Raises:
        TraceError: The file cannot be read, is no Kineto trace, or goes past a limit.
    """
    text = source.read_text(path)
    if isinstance(text, FileText) and (processes := reader_processes(text, jobs)) > 1:
        # What several cannot read one process reads, or says why not.
        with suppress(ValueError, RecursionError, OSError):
            return read_in_parallel(text, processes)
    try:
        return read_in_blocks(text)
    except OverLimitError as error:  # the rest of the file, which may be long, changes nothing
        raise TraceError(f"{source.shown(path)} {error}") from error
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _read_slow_path(path, text[:])


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
        events, clamped = document.columns()
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


def shape_error(path: Path, problem: str) -> TraceError:
    """Make the error for a file that is JSON but no Kineto trace.

    Args:
        path: the file.
        found: what was found.

    Returns:
        The error to raise.
    """
    return TraceError(
        f"{source.shown(path)} is no Kineto trace: {source.shown(problem)}; expected what "
        "torch.profiler's export_chrome_trace writes"
    )


def _read_slow_path(path: Path, text: bytes) -> Document:
    try:
        return read_slow_path(text)
    except OverLimitError as error:
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
    """Decode a value of the header; an error says which."""
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
