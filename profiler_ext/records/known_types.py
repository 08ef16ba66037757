"""Owns that types are taken apart by one thread at a time, before values are held against them.

msgspec does so when it first meets a type, and keeps what it finds on the type before that is
whole: a second thread that meets it then ends the process.
"""

from __future__ import annotations

import os
import threading
from typing import TypeVar

import msgspec

Kind = TypeVar("Kind")
_LOCK = threading.RLock()
_KNOWN: set[object] = set()


def known(kind: Kind) -> Kind:
    """Return a type that any thread may decode or convert to, as msgspec knows all of it.

    Args:
        kind: the type.
    """
    if kind not in _KNOWN:
        with _LOCK:
            msgspec.json.Decoder(kind)
            _KNOWN.add(kind)
    return kind


# A forked child has a copy: of a lock that nobody holds, of types that are whole.
os.register_at_fork(
    before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release
)
