"""Owns the idle time of an analysis: its pieces as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiler_ext.records.events import Codes, Interned, Ints
from profiler_ext.records.places import Place


@dataclass(frozen=True, slots=True)
class IdlePieces:
    """All idle time of the steps, cut where its cause or the CPU's line changes; in order of time.

    The pieces of a step and device do not overlap. They add up to the ledger's idle time; where
    steps overlap a moment is of the step that opened last.

    Attributes:
        step: number of the step.
        device: the device.
        span: number of the idle span that it is a piece of; what lies between two launches.
        start_ns: when it began.
        duration_ns: how long it was.
        cause: an ``IdleCause``.
        place: index into ``places``: where the thread that makes the steps was; where a compiled
            graph waited, the line of what waited.
        cause_place: the same, of what caused it: after a synchronisation the line that waited.
        cpu_activity: the innermost CPU event that covers most of it; ``""`` when nothing does.
        places: what these point at; one without a line says why.
    """

    step: Ints
    device: Ints
    span: Ints
    start_ns: Ints
    duration_ns: Ints
    cause: Interned
    place: Codes
    cause_place: Codes
    cpu_activity: Interned
    places: tuple[Place, ...]

    def __len__(self) -> int:
        """Return the number of pieces."""
        return len(self.start_ns)


_NOTHING = np.empty(0, dtype=np.int64)
_NO_TEXTS = Interned(np.empty(0, dtype=np.int32), ())
_NO_CODES = np.empty(0, dtype=np.int32)
NO_IDLE = IdlePieces(
    *(_NOTHING,) * 5, _NO_TEXTS, _NO_CODES, _NO_CODES, cpu_activity=_NO_TEXTS, places=()
)
"""Devices that were never idle."""
