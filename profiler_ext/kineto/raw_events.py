"""Raw events as JSON text: repaired to strict JSON, their arguments read, added or edited.

A repair keeps the length of the text, so events keep their positions. Additions come last in the
arguments, after a key that marks them, and can be cut off again.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np

from profiler_ext.records.stored import known

_CHUNK_BYTES = 1 << 20
_ASCII_ONLY = bytes(range(128)) + b"?" * 128
_NUMBER_WORD = rb"-?(?:NaN|nan|Infinity|inf)|N/A"
_NONSTANDARD_VALUE = re.compile(rb"[:,\[]\s*(?:" + _NUMBER_WORD + rb")\s*[,\]}]")
# Strings are passed over without a step of Python for each of them: a trace has millions.
_NEXT_WORD = re.compile(
    rb'(?:[^"NnIi/-]++|"(?:[^"\\]++|\\.)*+"|(?!' + _NUMBER_WORD + rb")[NnIi/-])*+"
    rb"(" + _NUMBER_WORD + rb")",
    re.DOTALL,
)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# An escape is taken whole, so that the `\u` after an escaped backslash is none.
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
ADDED_KEY = "compile.added"
_ADDED = f'"{ADDED_KEY}"'.encode()
_KEYS, _ARGS = b'"keys"', b'"args"'
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def readable(text: bytes) -> bytes:
    """Return the text as valid UTF-8 of the same length, with ``?`` for other bytes."""
    # Names of functions that are gone hold any bytes:
    # https://github.com/pytorch/pytorch/pull/186359.
    return text if text.isascii() or _is_utf8(text) else text.translate(_ASCII_ONLY)


def is_nonstandard(text: bytes) -> bool:
    """Tell whether the text may hold what :func:`repaired` repairs."""
    return _NONSTANDARD_VALUE.search(text) is not None or _SURROGATE.search(text) is not None


def repaired(text: bytes) -> bytes:
    """Make strict JSON of a trace with bare ``NaN``, ``inf`` or ``N/A``, or half surrogates.

    Returns the text with each bare word an empty string, each half of a pair U+FFFD.
    """
    if _NONSTANDARD_VALUE.search(text):
        changed = bytearray(text)
        match = _NEXT_WORD.match(text)
        while match is not None:
            begin, end = match.span(1)
            changed[begin:end] = b'""'.ljust(end - begin)
            match = _NEXT_WORD.match(text, end)
        text = bytes(changed)
    return _ESCAPE.sub(_replace_surrogate, text) if _SURROGATE.search(text) else text


def strict(text: bytes) -> bytes:
    """Return strict JSON of the same length."""
    # text: one event; for a whole file, first try whether it is strict as it stands
    utf8 = readable(text)
    return repaired(utf8) if is_nonstandard(utf8) else utf8


def _is_utf8(text: bytes) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for at in range(0, len(text), _CHUNK_BYTES):
            decoder.decode(text[at : at + _CHUNK_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _replace_surrogate(match: re.Match[bytes]) -> bytes:
    return match[0] if match[1] is None else b"\\ufffd"


class _RawArgs(msgspec.Struct, gc=False):
    args: dict[str, msgspec.Raw] = {}


class _RawSpan(msgspec.Struct, gc=False):
    args: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _RawMark(msgspec.Struct, gc=False):
    """Marks added arguments; decoding skips the others."""

    mark: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name=ADDED_KEY)


_SPAN = msgspec.json.Decoder(_RawSpan)
_MARK = msgspec.json.Decoder(_RawMark)


def event_arguments(raw: bytes) -> dict[str, Any]:
    """Return the arguments of one raw event; a number that no type holds is its text."""
    args = msgspec.json.decode(strict(raw), type=known(_RawArgs)).args
    return {key: _value(value) for key, value in args.items()}


def with_arguments(raw: bytes, added: Mapping[str, object]) -> bytes:
    """Add arguments to one raw event; an argument that it has already is left alone."""
    span = _args_span(raw)
    if span is None:
        end = raw.rindex(b"}")
        member = b',"args":' + msgspec.json.encode({ADDED_KEY: "args", **added})
        return raw[:end] + member + raw[end:]
    begin, end = span
    present = _members(raw[begin : end + 1])
    new = {key: value for key, value in added.items() if key not in present}
    members = msgspec.json.encode({ADDED_KEY: "keys", **new})[1:-1]
    return raw[:end] + (b"," if present else b"") + members + raw[end:]


def original(raw: bytes) -> bytes:
    """Cut off what :func:`with_arguments` added."""
    if _ADDED not in raw:
        return raw
    try:
        return _without_added(raw, raw)
    except msgspec.DecodeError:
        return _without_added(raw, strict(raw))


def _without_added(raw: bytes, text: bytes) -> bytes:
    """Cut off what was added to an event with a text of the same length."""
    args = _SPAN.decode(text).args
    if args is msgspec.UNSET:
        return raw
    begin = _within(args, text)
    marked = _MARK.decode(args).mark
    if marked is msgspec.UNSET or bytes(marked) not in (_KEYS, _ARGS):
        return raw
    if bytes(marked) == _ARGS:
        return raw[: _end_before(begin, text)] + raw[begin + len(args) :]
    return raw[: _end_before(begin + _within(marked, args), text)] + raw[begin + len(args) - 1 :]


def edited(
    raw: bytes, members: Mapping[str, object], arguments: Mapping[str, object] | None = None
) -> bytes:
    """Return a copy of one raw event with some values replaced."""
    event: dict[str, object] = {**_members(raw), **members}
    if arguments:
        args = event.get("args")
        present = _members(bytes(args)) if isinstance(args, msgspec.Raw) else {}
        event["args"] = {**present, **arguments}
    return msgspec.json.encode(event)


def microseconds(time_ns: int) -> msgspec.Raw:
    """Return a time as Kineto writes it: microseconds with three decimals, exact."""
    whole, rest = divmod(time_ns, 1000)
    return msgspec.Raw(f"{whole}.{rest:03d}".encode())


def offset_of(part: msgspec.Raw, whole: bytes | msgspec.Raw) -> int:
    """Return where in a text a value lies that was decoded from it without a copy."""
    return _address(part) - _address(whole)


def _within(part: msgspec.Raw, whole: bytes | msgspec.Raw) -> int:
    """Return where a value lies in one event, as :func:`offset_of` does."""
    # Searching for its text is faster, and it is nearly always there once.
    text, among = bytes(part), bytes(whole)
    at = among.find(text)
    return at if among.find(text, at + 1) < 0 else offset_of(part, whole)


def _address(text: bytes | msgspec.Raw) -> int:
    address: int = np.frombuffer(text, np.uint8).__array_interface__["data"][0]
    return address


def _members(raw: bytes) -> dict[str, msgspec.Raw]:
    if _may_be_strict(raw):
        with suppress(msgspec.DecodeError):
            return _MEMBERS.decode(raw)
    return _MEMBERS.decode(strict(raw))


def _strictly(raw: bytes) -> bytes:
    """Return strict JSON, after a quick check: nearly all events are strict."""
    if _may_be_strict(raw):
        with suppress(msgspec.DecodeError):
            _SPAN.decode(raw)
            return raw
    return strict(raw)


def _may_be_strict(raw: bytes) -> bool:
    return raw.isascii() and b"\\u" not in raw


def _value(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return bytes(raw).decode()


def _args_span(raw: bytes) -> tuple[int, int] | None:
    text = _strictly(raw)
    args = _SPAN.decode(text).args
    if args is msgspec.UNSET:
        return None
    begin = _within(args, text)
    return begin, begin + len(args) - 1


def _end_before(at: int, text: bytes) -> int:
    """Return where the members end before the one whose value begins here: a comma, or its key."""
    # The key has no quote in it, so the last two before its value are its own.
    key = text.rindex(b'"', 0, text.rindex(b'"', 0, at))
    before = key - 1
    while text[before : before + 1].isspace():
        before -= 1
    return before if text[before : before + 1] == b"," else key
