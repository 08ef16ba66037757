"""Owns the way from a file to its bytes: what may be opened, gzip, and whose file it is."""

from __future__ import annotations

import gzip
import os
import re
import stat
import tempfile
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

from profiler_ext.errors import TraceError
from profiler_ext.kineto.file_text import CAN_READ_AGAIN, IN_MEMORY_BYTES, FileText
from profiler_ext.kineto.limits import Limit, unpacked_limit
from profiler_ext.kineto.no_json import is_utf16_or_utf32, describe_file

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOT_BLANK = re.compile(rb"\S")
_PART_BYTES = _BEGINNING_BYTES = 1 << 20
_KEYS_BYTES = 1 << 16
_FIRST_KEYS = (b'"schemaVersion"', b'"traceEvents"')
_EXPECTED = "expected the JSON that torch.profiler exports"
Text = bytes | FileText
"""A text: held, or in an open file."""


def read_text(path: Path) -> Text:
    """Open a trace file, compressed or not; its first bytes tell, not its name.

    Args:
        path: a ``.json`` or ``.json.gz`` file.

    Returns:
        The uncompressed text, which begins like a JSON value.

    Raises:
        TraceError: There is no such file, it is no regular file, the gzip is damaged, it
            unpacks to more than is read, or it holds something else.
    """
    text = _opened(path, shown(path), "record it again")
    if text[: len(_BYTE_ORDER_MARK)] == _BYTE_ORDER_MARK:
        text = text[len(_BYTE_ORDER_MARK) :]
    beginning = text[:_BEGINNING_BYTES]
    _check_looks_like_json(path, text[:] if beginning.isspace() else beginning)
    return text


def unpacked(path: Path, name: str = "", again: str = "record it again") -> bytes:
    """Read a file, and unpack it where it is gzip.

    Args:
        path: the file, which anyone may have written.
        name: what messages call it; by default its path.
        again: what to do where it is damaged.

    Returns:
        Its bytes.

    Raises:
        TraceError: It cannot be read, is cut short or damaged, or unpacks to more than is read.
    """
    return _opened(path, name or shown(path), again)[:]


def _opened(path: Path, name: str, again: str) -> Text:
    try:
        _check_regular(path, name)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > Limit.BYTES.count:
                raise TraceError(f"{name} {Limit.BYTES.told('has too many bytes')}")
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
    """Refuse what would block or never end when it is read."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise TraceError(f"{name} is a folder; give the .pt.trace.json.gz file in it")
    if not stat.S_ISREG(mode):
        raise TraceError(f"{name} is no regular file; give the .pt.trace.json.gz file")


class _Packed(NamedTuple):
    """What to know of a gzip file: what messages call it, its limit, what to do if damaged."""

    name: str
    limit: int
    again: str


def _inflated(file: IO[bytes], packed: _Packed) -> Text:
    """Unpack into memory what is short, and what is long into a file without a name."""
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
                    told = Limit.BYTES.told("unpacks to too many bytes", packed.limit)
                    raise TraceError(f"{packed.name} {told}")
                yield part
    except EOFError as error:
        told = f"is cut short; reload when it is written, or {packed.again}"
        raise TraceError(f"{packed.name} {told}") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        told = f"is damaged gzip data ({error}); {packed.again}"
        raise TraceError(f"{packed.name} {told}") from error


def is_folder(path: Path) -> bool:
    """Say whether there is a folder; of a path that no system takes there is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def listed(folder: Path) -> list[Path]:
    """Return what is in a folder.

    Args:
        folder: the folder.

    Raises:
        TraceError: It cannot be read.
    """
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise TraceError(
            f"cannot read {shown(folder)}: {error.strerror}; check the path"
        ) from error


def shown(thing: object, most: int = 400) -> str:
    """Return a path or a text of a file as one printable line, cut where it is long.

    Args:
        thing: what to show.
        most: so many characters at most.
    """
    text = str(thing)
    if len(text) > most:
        text = f"{text[:most]}..."
    return text if text.isprintable() else ascii(text)[1:-1]


def looks_like_trace(path: Path) -> bool:
    """Say whether a file of JSON begins as a trace does; what cannot be read does not.

    Args:
        path: the file, which anyone may have written.
    """
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
