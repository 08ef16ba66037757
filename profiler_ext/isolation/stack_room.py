"""Owns how deep the program may call: as deep as without us, though our code runs above its own.

A callback of ``sys.monitoring`` stands on the stack of the frame that it is called in, and where
Python finds that too deep, the program has the RecursionError before anything can catch it.
"""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack

_HEADROOM_FRAMES = 100
"""More than any callback of ours and what it calls."""


class RecursionHeadroom:
    """Room for our own frames above the deepest of the program's."""

    _limit: int | None = None

    def make(self) -> None:
        """Raise the limit of recursion."""
        self._limit = program_limit() + _HEADROOM_FRAMES
        set_program_limit(self._limit)

    def restore(self) -> None:
        """Lower it again, unless the program has set another one meanwhile."""
        if self._limit is not None and program_limit() == self._limit:
            set_program_limit(self._limit - _HEADROOM_FRAMES)
        self._limit = None


def program_limit() -> int:
    """Return the limit of recursion that the program's own code has."""
    limits = _thread.limits
    return limits[0] if limits else sys.getrecursionlimit()


def set_program_limit(limit: int) -> None:
    """Set the limit of recursion that the program's own code has."""
    limits = _thread.limits
    if limits:
        limits[0] = limit
    else:
        sys.setrecursionlimit(limit)


def set_own_limit(limit: int, back: ExitStack) -> None:
    """Set a limit for work of ours.

    Args:
        limit: the limit.
        back: is given what puts the program's into force again, as it stands then.
    """
    limits = [sys.getrecursionlimit()]
    back.callback(list, map(sys.setrecursionlimit, limits))  # no code of ours, which could fail
    back.callback(setattr, _thread, "limits", _thread.limits)
    _thread.limits = limits
    sys.setrecursionlimit(limit)


class _Thread(threading.local):
    """What work of ours in this thread puts back: the limit of the program's own code."""

    limits: list[int] | None = None


_thread = _Thread()
