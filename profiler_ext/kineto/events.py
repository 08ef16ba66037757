"""Owns one raw event as JSON: its arguments, what is added to them, what is changed in a copy.

What is added stands last in the arguments, behind a key that says so, and can be cut off again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from profiler_ext.kineto.strictness import strict

ADDED_KEY = "compile.added"

_ADDED = f'"{ADDED_KEY}"'.encode()
_KEYS, _ARGS = b'"keys"', b'"args"'


class _RawArgs(msgspec.Struct, gc=False):
    args: dict[str, msgspec.Raw] = {}


class _RawSpan(msgspec.Struct, gc=False):
    args: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def event_arguments(raw: bytes) -> dict[str, Any]:
    """Return the arguments of one raw event.

    Args:
        raw: the event's JSON, as ``Trace.raw`` gives it.

    Returns:
        Its ``args``; empty where it has none. A number that no type holds is its text.
    """
    args = msgspec.json.decode(strict(raw), type=_RawArgs).args
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
    text = strict(raw)
    event = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    args = event.get("args")
    if args is None:
        return raw
    begin = offset_of(args, text)
    members = msgspec.json.decode(args, type=dict[str, msgspec.Raw])
    marked = members.get(ADDED_KEY)
    if marked is None or bytes(marked) not in (_KEYS, _ARGS):
        return raw
    if bytes(marked) == _ARGS:
        return raw[: _end_before(event, begin, text, 0)] + raw[begin + len(args) :]
    at = offset_of(marked, text)
    return raw[: _end_before(members, at, text, begin)] + raw[begin + len(args) - 1 :]


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


def offset_of(part: msgspec.Raw, whole: bytes) -> int:
    """Return where in a text a value lies that was decoded from it without a copy.

    Args:
        part: the value's JSON.
        whole: the text.

    Returns:
        In bytes.
    """
    begin, inside = (np.frombuffer(each, np.uint8).ctypes.data for each in (whole, part))
    return inside - begin


def _members(raw: bytes) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(strict(raw), type=dict[str, msgspec.Raw])


def _value(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return bytes(raw).decode()


def _args_span(raw: bytes) -> tuple[int, int] | None:
    """Return where the braces of ``args`` stand."""
    text = strict(raw)
    args = msgspec.json.decode(text, type=_RawSpan).args
    if args is msgspec.UNSET:
        return None
    begin = offset_of(args, text)
    return begin, begin + len(args) - 1


def _end_before(members: Mapping[str, msgspec.Raw], at: int, text: bytes, begin: int) -> int:
    """Return where the members end that stand before a place: at a comma, or at the first key."""
    ends = [end for value in members.values() if (end := offset_of(value, text) + len(value)) <= at]
    return text.index(b"," if ends else b'"', max(ends, default=begin))
