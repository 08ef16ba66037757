"""Opens trace files: regular files only, gzip, size limits, and what other files are.

An untrusted file must not take the reader's memory or time; traces of profilers are far below the
limits, and the error names the variable that raises one. A file may be renamed, replaced or removed
while it is read, but not written.
"""

from __future__ import annotations

import functools
import gzip
import os
import re
import stat
import tempfile
import zlib
from collections.abc import Iterator
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

from profiler_ext.errors import TraceError, UsageError

_INSTEAD = "record with torch.profiler"
_OF_A_SESSION = "of a session give its folder or the session.pt.trace.json.gz beside it"
_PFTRACE = (
    f"a Perfetto protobuf trace, which is for the Perfetto UI; {_OF_A_SESSION}, and torch's Cuspy "
    "writes JSON when the path that is exported to ends with .json"
)
# XSpace of XProf: its planes stand where Perfetto has its packets, and begin with their names
_XPLANE = re.compile(rb"\n.{1,5}(?:\x08.{1,10})?\x12./(?:host|device):", re.DOTALL)
_UNPACK = "{} data; unpack it, and give what is inside"
# With a byte order mark or without; in UTF-8 no value begins with a NUL or has one next
_WIDE = re.compile(rb'\xff\xfe|\xfe\xff|\0\0\xfe\xff|[{\[\s]\0{1,3}["{\[\s]|\0{1,3}[{\[\s]\0')
_TABLE = re.compile(rb'[\w"-]+(?:,[\w"-]+)+\r?\n')
# How each line of torch's own logs begins. Source: ``torch/_logging/_internal.py``.
_LOG = re.compile(rb"[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+:\d+\] ")
_TAR_MAGIC = slice(257, 262)
_NAMED = (
    ((".nsys-rep", ".qdrep"), f"a report of Nsight Systems and not JSON; {_INSTEAD}"),
    ((".ncu-rep",), f"a report of Nsight Compute and not JSON; {_INSTEAD}"),
)
_KINDS = (
    (b"\n", _PFTRACE),
    (b"BZh", _UNPACK.format("bzip2")),
    (b"\xfd7zXZ", _UNPACK.format("xz")),
    (b"\x28\xb5\x2f\xfd", _UNPACK.format("Zstandard")),
    (b"\x1f\x8b", _UNPACK.format("gzip within gzip")),
    (b"PK\x03\x04", "a zip archive, as torch.save writes; unpack it, and give the trace in it"),
    (b"SQLite format 3", f"a SQLite database, as Nsight Systems exports; {_INSTEAD}"),
    (b"NSYS", _NAMED[0][1]),
    (b"\x80", f"a pickle, as torch's memory snapshots are, and not read; {_INSTEAD}"),
    (b"PAR1", f"a table in Parquet; {_OF_A_SESSION}"),
    (b"PERFILE", f"a recording of Linux's perf and not JSON; {_INSTEAD}"),
    (b"memray", f"a recording of memray and not JSON; {_INSTEAD}"),
    (b"<", f"a page or a picture, as report.html is; {_OF_A_SESSION}"),
)
_PACKED_TIMES = 100
_PACKED_LEAST_BYTES = 64 << 20
# Shorter texts are held: a thousand small files shall not need a thousand open ones
IN_MEMORY_BYTES = 32 << 20
_WINDOW_BYTES = 16 << 10
_WINDOWS = 32
CAN_READ_AGAIN = hasattr(os, "pread")
_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOT_BLANK = re.compile(rb"\S")
_PART_BYTES = _BEGINNING_BYTES = 1 << 20
_KEYS_BYTES = 1 << 16
_FIRST_KEYS = (b'"schemaVersion"', b'"traceEvents"')
_EXPECTED = "expected the JSON that torch.profiler exports"


def is_utf16_or_utf32(text: bytes) -> bool:
    """Tell whether the first bytes of a file are UTF-16 or UTF-32."""
    return _WIDE.match(text) is not None


def describe_file(path: Path, text: bytes) -> str:
    """Describe a file that is no trace, with the remedy, if known."""
    if is_utf16_or_utf32(text):
        return "UTF-16 or UTF-32 text; save it as UTF-8"
    if _XPLANE.match(text):
        return f"a profile of JAX or XProf and not JSON; {_INSTEAD}"
    if text[_TAR_MAGIC] == b"ustar":
        return _UNPACK.format("tar")
    if _LOG.match(text):
        return (
            "a log of TORCH_TRACE or TORCH_LOGS, which says what torch compiled and has no times "
            "of a device (tlparse shows it)"
        )
    named = (description for suffixes, description in _NAMED if path.suffix in suffixes)
    begun = (description for magic, description in _KINDS if text.startswith(magic))
    tables = (f"a table in CSV; {_OF_A_SESSION}" for _ in [0] if _TABLE.match(text))
    return next(
        (description for each in (named, begun, tables) for description in each), "not JSON"
    )


class Limit(Enum):
    """A limit: its variable, and its default."""

    BYTES = ("PROFILER_EXT_MAX_BYTES", 4 << 30)  # of a file, unpacked
    EVENTS = ("PROFILER_EXT_MAX_EVENTS", 10_000_000)
    DEPTH = ("PROFILER_EXT_MAX_DEPTH", 128)  # how deep the JSON is nested
    # Of one number; a double as Kineto prints it has 316 at most
    DIGITS = ("PROFILER_EXT_MAX_DIGITS", 400)
    # Of all devices together: each step has its step time breakdown on each device
    STEPS = ("PROFILER_EXT_MAX_STEPS", 1_000_000)
    # Of an event's name, category or thread, and of any text in what we added
    NAME_BYTES = ("PROFILER_EXT_MAX_NAME_BYTES", 64 << 10)

    @property
    def variable(self) -> str:
        """The variable of the environment."""
        return self.value[0]

    @property
    def count(self) -> int:
        """The limit; raises UsageError."""
        configured = os.environ.get(self.variable, "")
        if not configured:
            return self.value[1]
        if not (configured.isascii() and configured.isdecimal() and len(configured) < 19):
            raise UsageError(f"{self.variable} is {configured!a}, expected a whole number")
        return int(configured)

    def exceeded(self, excess: str, count: int | None = None) -> str:
        """Return the sentence for a file that exceeds the limit."""
        limit = self.count if count is None else count
        return f"{excess}, and {limit:,} is the limit; if you trust it, set {self.variable} higher"


def unpacked_limit(packed_bytes: int) -> int:
    """Return the limit of bytes that a packed file may unpack to."""
    # A trace shrinks to a tenth, not more: without the variable, a hundred times the size.
    if os.environ.get(Limit.BYTES.variable):
        return Limit.BYTES.count
    return min(Limit.BYTES.count, max(_PACKED_LEAST_BYTES, _PACKED_TIMES * packed_bytes))


class FileText:
    """The text of an open file, read on demand: ``text[begin:end]``."""

    def __init__(self, descriptor: int, name: str) -> None:
        """Take over an open file; it is closed with this."""
        file = _File(descriptor, name)
        self._file = file
        # Events are mostly read in order, at two or three positions alternately.
        self._window = functools.lru_cache(maxsize=_WINDOWS)(functools.partial(_window, file))

    @property
    def descriptor(self) -> int:
        """The open file, for a process that reads it too."""
        return self._file.descriptor

    def __len__(self) -> int:
        return self._file.bytes

    def __getitem__(self, part: slice) -> bytes:
        begin, end, _ = part.indices(self._file.bytes)
        window, first = divmod(begin, _WINDOW_BYTES)
        last = end - begin + first
        if last <= _WINDOW_BYTES:
            return self._window(window)[first:last]
        return self._file.read(begin, end - begin)


class _File:
    """An open file; every use raises once it has changed."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.descriptor, self._name = descriptor, name
        self._written = self._state()
        self.bytes = self._written[0]

    def __del__(self) -> None:
        os.close(self.descriptor)

    def read(self, begin: int, count: int) -> bytes:
        parts, end = [], begin + count
        while begin < end and (part := os.pread(self.descriptor, end - begin, begin)):
            parts.append(part)
            begin += len(part)
        if begin < end or self._state() != self._written:
            raise TraceError(
                f"{self._name} was written into after it was opened; load it again, and write a "
                "new file instead"
            )
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _state(self) -> tuple[int, int]:
        """Return what a write changes; renaming or removing does not."""
        state = os.fstat(self.descriptor)
        return state.st_size, state.st_mtime_ns


def _window(file: _File, number: int) -> bytes:
    begin = number * _WINDOW_BYTES
    return file.read(begin, min(_WINDOW_BYTES, file.bytes - begin))


Text = bytes | FileText  # A text: held, or in an open file


def read_text(path: Path) -> Text:
    """Open a trace file, compressed or not, by its first bytes; raises TraceError."""
    text = _opened(path, shown(path), "record it again")
    if text[: len(_BYTE_ORDER_MARK)] == _BYTE_ORDER_MARK:
        text = text[len(_BYTE_ORDER_MARK) :]
    beginning = text[:_BEGINNING_BYTES]
    _check_looks_like_json(path, text[:] if beginning.isspace() else beginning)
    return text


def unpacked(path: Path, name: str = "", again: str = "record it again") -> bytes:
    """Read a file, and unpack gzip; raises TraceError."""
    return _opened(path, name or shown(path), again)[:]


def _opened(path: Path, name: str, again: str) -> Text:
    try:
        _check_regular(path, name)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > Limit.BYTES.count:
                raise TraceError(f"{name} {Limit.BYTES.exceeded('has too many bytes')}")
            if file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC:
                return _inflated(file, _Packed(name, unpacked_limit(size), again))
            file.seek(0)
            return FileText(os.dup(file.fileno()), name) if _is_long(size) else file.read(size)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TraceError(f"cannot read {name}: {reason}; check the path") from error


def _is_long(size: int) -> bool:
    return size > IN_MEMORY_BYTES and CAN_READ_AGAIN


def _check_regular(path: Path, name: str) -> None:
    """Raise for files that would block or never end."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise TraceError(f"{name} is a folder; give the .pt.trace.json.gz file in it")
    if not stat.S_ISREG(mode):
        raise TraceError(f"{name} is no regular file; give the .pt.trace.json.gz file")


class _Packed(NamedTuple):
    """A gzip file: its name in messages, its limit, the remedy if it is damaged."""

    name: str
    limit: int
    again: str


def _inflated(file: IO[bytes], packed: _Packed) -> Text:
    """Unpack short files into memory, long ones into a file without a name."""
    try:
        return _spooled(_unpacking(file, packed), packed.name)
    except OSError:  # there is no room for it
        return b"".join(_unpacking(file, packed))


def _spooled(parts: Iterator[bytes], name: str) -> Text:
    in_memory: list[bytes] = []
    size = 0
    for part in parts:
        in_memory.append(part)
        size += len(part)
        if _is_long(size):
            break
    else:
        return b"".join(in_memory)
    with tempfile.TemporaryFile() as spool:
        spool.writelines(chain(in_memory, parts))
        spool.flush()
        return FileText(os.dup(spool.fileno()), name)


def _unpacking(file: IO[bytes], packed: _Packed) -> Iterator[bytes]:
    file.seek(0)
    size = 0
    try:
        with gzip.GzipFile(fileobj=file) as text:
            while part := text.read(min(_PART_BYTES, packed.limit + 1 - size)):
                size += len(part)
                if size > packed.limit:
                    message = Limit.BYTES.exceeded("unpacks to too many bytes", packed.limit)
                    raise TraceError(f"{packed.name} {message}")
                yield part
    except EOFError as error:
        message = f"is cut short; reload when it is written, or {packed.again}"
        raise TraceError(f"{packed.name} {message}") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        message = f"is damaged gzip data ({error}); {packed.again}"
        raise TraceError(f"{packed.name} {message}") from error


def is_folder(path: Path) -> bool:
    """Tell whether there is a folder; of a path that no system takes there is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def listed(folder: Path) -> list[Path]:
    """Return a folder's entries; raises TraceError."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise TraceError(
            f"cannot read {shown(folder)}: {error.strerror}; check the path"
        ) from error


def shown(thing: object, most: int = 400) -> str:
    """Return a path or a text of a file as one printable line, cut where it is long."""
    text = str(thing)
    if len(text) > most:
        text = f"{text[:most]}..."
    return text if text.isprintable() else ascii(text)[1:-1]


def looks_like_trace(path: Path) -> bool:
    """Tell whether a file of JSON begins as a trace does; what cannot be read does not."""
    try:
        _check_regular(path, "")
        with path.open("rb") as file:
            packed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            file.seek(0)
            opened = gzip.GzipFile(fileobj=file) if packed else file
            beginning = opened.read(_KEYS_BYTES)
    except (OSError, EOFError, ValueError, zlib.error, TraceError):
        return False
    return any(key in beginning for key in _FIRST_KEYS)


def _check_looks_like_json(path: Path, text: bytes) -> None:
    first = _NOT_BLANK.search(text)
    if first is None:
        raise TraceError(f"{shown(path)} is empty; {_EXPECTED}")
    if first[0] not in b"{[" or is_utf16_or_utf32(text):
        raise TraceError(f"{shown(path)} is {describe_file(path, text)}; {_EXPECTED}")
