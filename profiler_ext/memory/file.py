"""The file of a memory record, next to the session's trace."""

from __future__ import annotations

import gzip
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from profiler_ext.errors import TraceError
from profiler_ext.file_io import read_regular, replacing
from profiler_ext.kineto.source import shown
from profiler_ext.records.memory import Blocks, MemoryRecord
from profiler_ext.records.stored import known

FILE_NAME = "memory.json.gz"
_OF_SESSION = "session.pt.trace.json.gz"
VERSION = 1
MAX_PACKED_BYTES = 256 << 20
_MAX_BYTES = 2 << 30
_LEVEL = 6


_ADDED: dict[type, tuple[str, ...]] = {Blocks: ("requested_bytes", "stack")}
"""The columns that earlier versions leave empty."""


class _Stored(msgspec.Struct):
    version: int
    memory: MemoryRecord


class _Version(msgspec.Struct):
    version: int


def path_next_to(session: Path) -> Path:
    """Return the path of the memory that belongs to a session's file."""
    return session.with_name(session.name.removesuffix(_OF_SESSION) + FILE_NAME)


def write(path: Path, record: MemoryRecord | None) -> None:
    """Write a record, or remove that of an earlier session; raises OutputError."""
    if record is None:
        with suppress(NotADirectoryError):  # the trace's own error says that there is no folder
            path.unlink(missing_ok=True)
        return
    content = msgspec.json.encode(_Stored(VERSION, record))
    with replacing(path) as file, gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
        packed.write(content)


def read(path: Path, trace_base_ns: int) -> MemoryRecord | None:
    """Read the record of a trace, ``None`` if there is none.

    Raises:
        TraceError: It is damaged, of another trace, or of a newer version.
    """
    try:
        content = unpacked(read_regular(path, MAX_PACKED_BYTES))
        version = msgspec.json.decode(content, type=known(_Version)).version
        if version > VERSION:
            raise TraceError(
                f"{shown(path)} was written by a newer profiler-ext (version {version}; this one "
                f"reads up to {VERSION}); update profiler-ext to read it"
            )
        record = msgspec.json.decode(content, type=known(_Stored)).memory
    except FileNotFoundError:
        return None
    except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
        raise _unreadable(path, str(error)) from error
    problem = _problem(record, trace_base_ns)
    if problem is not None:
        raise _unreadable(path, problem)
    return record


def _unreadable(path: Path, why: str) -> TraceError:
    return TraceError(
        f"{shown(path)} is no memory record of this session ({why}); record again with "
        "`profiler-ext run --memory`, or remove it to read the session without memory"
    )


def unpacked(packed: bytes) -> bytes:
    """Unpack a file; raises OSError or zlib.error."""
    unpacking = zlib.decompressobj(16 + zlib.MAX_WBITS)
    content = unpacking.decompress(packed, _MAX_BYTES)
    if not unpacking.eof:
        raise OSError("it is cut off, or too long")
    return content


def _problem(record: MemoryRecord, trace_base_ns: int) -> str | None:
    """Return what is wrong with a record, if anything is."""
    if record.trace_base_ns != trace_base_ns:
        return "it is of another trace"
    tables: tuple[Any, ...] = (record.events, record.history, record.base, record.end)
    tables = (*tables, record.owners, record.saved, record.holders)
    for table in (*tables, record.base_segments, record.end_segments, record.awaiting):
        added = _ADDED.get(type(table), ())
        columns = {name: len(getattr(table, name)) for name in table.__slots__}
        lengths = {length for name, length in columns.items() if length or name not in added}
        if len(lengths) > 1:
            return f"columns of {type(table).__name__} have different lengths"
    named = (*record.history.stack, *record.base.stack, *record.end.stack)
    numbers = [stack for stack in named if not -1 <= stack < len(record.stacks)]
    if numbers or any(not 0 <= f < len(record.frames) for each in record.stacks for f in each):
        return "it names stacks or frames that it does not have"
    return None
