"""Owns one raw event as JSON: its arguments, what is added to them, what is changed in a copy.

What is added stands last in the arguments, behind a key that says so, and can be cut off again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from profiler_ext.kineto import source

ADDED_KEY = "compile.added"

_ADDED = f'"{ADDED_KEY}"'.encode()
_ADDED_KEYS = re.compile(rb'(?:,\s*)?"compile\.added"\s*:\s*"keys"')
_ADDED_ARGS = re.compile(rb',\s*"args"\s*:\s*\{\s*"compile\.added"\s*:\s*"args"')


class _Args(msgspec.Struct, gc=False):
    args: dict[str, Any] = {}


class _RawArgs(msgspec.Struct, gc=False):
    args: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def event_arguments(raw: bytes) -> dict[str, Any]:
    """Return the arguments of one raw event.

    Args:
        raw: the event's JSON, as ``Trace.raw`` gives it.

    Returns:
        Its ``args``; empty where it has none.
    """
    return msgspec.json.decode(source.strict(raw), type=_Args).args


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
    span, keys = _args_span(raw), _ADDED_KEYS.search(raw)
    if span is not None and keys is not None:
        return raw[: keys.start()] + raw[span[1] :]
    member = _ADDED_ARGS.search(raw)
    return raw if span is None or member is None else raw[: member.start()] + raw[span[1] + 1 :]


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


def _members(raw: bytes) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(source.strict(raw), type=dict[str, msgspec.Raw])


def _args_span(raw: bytes) -> tuple[int, int] | None:
    """Return where the braces of ``args`` stand."""
    strict = source.strict(raw)
    args = msgspec.json.decode(strict, type=_RawArgs).args
    if args is msgspec.UNSET:
        return None
    begin = strict.index(bytes(args), strict.index(b'"args"'))
    return begin, begin + len(args) - 1
