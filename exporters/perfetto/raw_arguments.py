"""Owns the quick ways to a raw event's arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from profiler_ext.kineto.events import event_arguments


class _Args(msgspec.Struct, gc=False):
    args: dict[str, Any] = {}


_DECODE = msgspec.json.Decoder(_Args).decode


def raw_arguments(raw: bytes) -> dict[str, Any]:
    """Return the arguments of one raw event.

    Nearly every event is strict JSON; only one that is not takes the slower way of ``kineto``.
    """
    try:
        return _DECODE(raw).args
    except msgspec.DecodeError:
        return event_arguments(raw)


def reader(
    texts: Mapping[str, str], numbers: Sequence[str] = (), no_others: bool = False
) -> Callable[[bytes], Any]:
    """Return what reads some arguments of raw events, many times quicker than all.

    Args:
        texts: the arguments that are read, and what the attribute of each is called. It has the
            JSON of the argument, ``b""`` where the event lacks it.
        numbers: arguments that are passed over, as long as they are integers or null.
        no_others: an event that has any other argument is refused, with ``ValidationError``.

    Returns:
        A function from an event's JSON to what has its arguments as ``args``; it raises
        ``msgspec.DecodeError``.
    """
    read: list[Any] = [
        (attribute, msgspec.Raw, msgspec.field(default=msgspec.Raw(b""), name=name))
        for name, attribute in texts.items()
    ]
    passed: list[Any] = [
        (f"_{at}", int | None, msgspec.field(default=None, name=name))
        for at, name in enumerate(numbers)
    ]
    args = msgspec.defstruct(
        "_Args", [*read, *passed], frozen=True, gc=False, forbid_unknown_fields=no_others
    )
    event = msgspec.defstruct("_Event", [("args", args, args())], gc=False)
    return msgspec.json.Decoder(event).decode
