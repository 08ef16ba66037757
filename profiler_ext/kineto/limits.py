"""Owns the limits of what is read, and the variable of the environment that raises each.

A file that anyone may have written must not take the reader's memory or time. No trace that a
profiler wrote comes near these limits; for one that does, the error names the variable.
"""

from __future__ import annotations

import os
from enum import Enum

from profiler_ext.errors import UsageError

_PACKED_TIMES = 100
_PACKED_LEAST_BYTES = 64 << 20


class Limit(Enum):
    """A limit: its variable, and what stands without it."""

    BYTES = ("PROFILER_EXT_MAX_BYTES", 4 << 30)
    """Of a file, unpacked."""
    EVENTS = ("PROFILER_EXT_MAX_EVENTS", 10_000_000)
    DEPTH = ("PROFILER_EXT_MAX_DEPTH", 128)
    """How deep the JSON is nested."""
    DIGITS = ("PROFILER_EXT_MAX_DIGITS", 400)
    """Of one number; a double as Kineto prints it has 316 at most."""
    STEPS = ("PROFILER_EXT_MAX_STEPS", 1_000_000)
    """Of all devices together: each step has its ledger on each device."""
    NAME_BYTES = ("PROFILER_EXT_MAX_NAME_BYTES", 64 << 10)
    """Of an event's name, category or thread, and of any text in what we added."""

    @property
    def variable(self) -> str:
        """The variable of the environment."""
        return self.value[0]

    @property
    def count(self) -> int:
        """The limit that holds.

        Raises:
            UsageError: The environment asks for what is no number.
        """
        configured = os.environ.get(self.variable, "")
        if not configured:
            return self.value[1]
        if not (configured.isascii() and configured.isdecimal() and len(configured) < 19):
            raise UsageError(f"{self.variable} is {configured!a}, expected a whole number")
        return int(configured)

    def told(self, excess: str, count: int | None = None) -> str:
        """Return the sentence for a file that goes past the limit.

        Args:
            excess: what it does, ``nests its values``.
            count: the limit that held, where it is not :attr:`count`.
        """
        limit = self.count if count is None else count
        return f"{excess}, and {limit:,} is the limit; if you trust it, set {self.variable} higher"


def unpacked_limit(packed_bytes: int) -> int:
    """Return how many bytes a packed file may unpack to: a trace shrinks to a tenth, not more.

    Args:
        packed_bytes: its size.

    Returns:
        What :attr:`Limit.BYTES` says where it is set; else that or a hundred times the size.
    """
    if os.environ.get(Limit.BYTES.variable):
        return Limit.BYTES.count
    return min(Limit.BYTES.count, max(_PACKED_LEAST_BYTES, _PACKED_TIMES * packed_bytes))
