"""Owns one raw event as JSON: its arguments, what is added to them, what is changed in a copy.

What is added stands last in the arguments, behind a key that says so, and can be cut off again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np

from profiler_ext.kineto.strictness import strict
from profiler_ext.records.known_types import known

ADDED_KEY = "compile.added"

_ADDED = f'"{ADDED_KEY}"'.encode()
_KEYS, _ARGS = b'"keys"', b'"args"'


class _RawArgs(msgspec.Struct, gc=False):
    args: dict[str, msgspec.Raw] = {}


class _RawSpan(msgspec.Struct, gc=False):
    args: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _RawMark(msgspec.Struct, gc=False):
    """Of a million arguments the one; the others are passed over."""

    mark: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name=ADDED_KEY)


_SPAN = msgspec.json.Decoder(_RawSpan)
_MARK = msgspec.json.Decoder(_RawMark)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def event_arguments(raw: bytes) -> dict[str, Any]:
    """Return the arguments of one raw event.

    Args:
        raw: the event's JSON, as ``Trace.raw`` gives it.

    Returns:
        Its ``args``; empty where it has none. A number that no type holds is its text.
    """
    args = msgspec.json.decode(strict(raw), type=known(_RawArgs)).args
    return {key: _value(value) for key, value in args.items()}


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
    present = _members(raw[begin : end + 1])
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
    try:
        return _without_added(raw, raw)
    except msgspec.DecodeError:
        return _without_added(raw, strict(raw))


def _without_added(raw: bytes, text: bytes) -> bytes:
    """Find in a text what was added, and cut it off an event of the same length."""
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
    """Return a copy of one raw event with some values put in place of its own.

    Args:
        raw: the event's JSON.
        members: values of the event.
        arguments: values of its ``args``.

    Returns:
        The changed event's JSON.
    """
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
    """Return where in a text a value lies that was decoded from it without a copy.

    Args:
        part: the value's JSON.
        whole: the text.

    Returns:
        In bytes.
    """
    return _address(part) - _address(whole)


def _within(part: msgspec.Raw, whole: bytes | msgspec.Raw) -> int:
    """Return where a value lies in the few bytes of one event, as :func:`offset_of` does.

    To look for its text is quicker, and it nearly always stands there once.
    """
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
    """Return what ``strict`` does; of a million events nearly all are so, and soon seen to be."""
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
    """Return where the braces of ``args`` stand."""
    text = _strictly(raw)
    args = _SPAN.decode(text).args
    if args is msgspec.UNSET:
        return None
    begin = _within(args, text)
    return begin, begin + len(args) - 1


def _end_before(at: int, text: bytes) -> int:
    """Return where the members end before that whose value begins here: a comma, or its key."""
    # The key has no quote in it, so the last two before its value are its own.
    key = text.rindex(b'"', 0, text.rindex(b'"', 0, at))
    before = key - 1
    while text[before : before + 1].isspace():
        before -= 1
    return before if text[before : before + 1] == b"," else key
