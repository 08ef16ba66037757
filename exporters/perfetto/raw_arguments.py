"""Owns the quick way to a raw event's arguments."""

from __future__ import annotations

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
