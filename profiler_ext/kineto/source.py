"""Owns the way from a file to JSON bytes: gzip, and the words in them that are no JSON."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path

from profiler_ext.errors import TraceError

_GZIP_MAGIC = b"\x1f\x8b"
_PROTOBUF_PACKET = b"\n"
_NOT_BLANK = re.compile(rb"\S")
_NUMBER_WORD = rb"-?(?:NaN|nan|Infinity|inf)|N/A"
_ODD_VALUE = re.compile(rb"[:,\[]\s*(?:" + _NUMBER_WORD + rb")\s*[,\]}]")
_STRING_OR_WORD = re.compile(rb'"(?:[^"\\]|\\.)*"|' + _NUMBER_WORD, re.DOTALL)


def read_bytes(path: Path) -> bytes:
    """Read a trace file, compressed or not; its first bytes tell, not its name.

    Args:
        path: a ``.json`` or ``.json.gz`` file.

    Returns:
        The uncompressed bytes, which begin like a JSON value.

    Raises:
        TraceError: There is no such file, the gzip is damaged, or it holds something else.
    """
    try:
        content = path.read_bytes()
    except IsADirectoryError as error:
        raise TraceError(f"{path} is a folder; give the .pt.trace.json.gz file in it") from error
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}; check the path") from error
    text = _inflated(path, content) if content.startswith(_GZIP_MAGIC) else content
    _check_looks_like_json(path, text)
    return text


def _inflated(path: Path, content: bytes) -> bytes:
    try:
        return gzip.decompress(content)
    except EOFError as error:
        raise TraceError(f"{path} is cut short inside its gzip data; record it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"{path} is damaged gzip data ({error}); record it again") from error


def _check_looks_like_json(path: Path, text: bytes) -> None:
    first = _NOT_BLANK.search(text)
    if first is None:
        raise TraceError(f"{path} is empty; expected the JSON that torch.profiler exports")
    if first[0] in b"{[":
        return
    guess = "a Perfetto protobuf trace" if text.startswith(_PROTOBUF_PACKET) else "not JSON"
    raise TraceError(f"{path} is {guess}; expected the JSON that torch.profiler exports")


def readable(text: bytes) -> bytes:
    """Return the text as valid UTF-8 of the same length.

    Args:
        text: the file.

    Returns:
        The text itself; where it is not UTF-8, with ``?`` for each byte outside ASCII.
    """
    if text.isascii():
        return text
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return text.decode("ascii", "replace").encode("ascii", "replace")
    return text


def has_odd_values(text: bytes) -> bool:
    """Say whether bare words stand in the text that JSON does not know (``NaN``, ``inf``)."""
    return _ODD_VALUE.search(text) is not None


def without_odd_values(text: bytes) -> bytes:
    """Make strict JSON of a trace in which Kineto wrote ``NaN``, ``inf`` or ``N/A`` bare.

    Args:
        text: the file.

    Returns:
        The text with each bare word an empty string of the same length.
    """
    return _STRING_OR_WORD.sub(_without_word, text)


def _without_word(found: re.Match[bytes]) -> bytes:
    token = found[0]
    return token if token.startswith(b'"') else b'""'.ljust(len(token))


def strict(text: bytes) -> bytes:
    """Return strict JSON of the same length, whatever Kineto wrote.

    Args:
        text: one event; for a whole file, first try whether it is strict as it stands.

    Returns:
        The text, changed only where it was not strict.
    """
    utf8 = readable(text)
    return without_odd_values(utf8) if has_odd_values(utf8) else utf8
