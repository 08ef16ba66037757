"""Owns which of several spans is open at a time: of those that are, the one that opened last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.records import Ints


@dataclass(frozen=True, slots=True)
class Timeline:
    """What is open from each time on, until the next.

    Attributes:
        times_ns: when that changes, in order.
        opened: the span that is open from then on, or ``NO_ROW``.
    """

    times_ns: Ints
    opened: Ints

    def at(self, times_ns: Ints) -> Ints:
        """Return the span that is open at each time, or ``NO_ROW``."""
        before = np.searchsorted(self.times_ns, times_ns, side="right") - 1
        return np.append(self.opened, NO_ROW)[before]


def timeline(starts_ns: Ints, ends_ns: Ints) -> Timeline:
    """Lay out spans; a span is open at its start, and no longer at its end.

    Args:
        starts_ns: where each begins, in order.
        ends_ns: where each ends.

    Returns:
        The times at which anything begins or ends, and what is open from each on.
    """
    changes = list(_changes(starts_ns.tolist(), ends_ns.tolist()))
    times, opened = zip(*changes, strict=True) if changes else ((), ())
    return Timeline(np.array(times, dtype=np.int64), np.array(opened, dtype=np.int64))


def _changes(starts: list[int], ends: list[int]) -> Iterator[tuple[int, int]]:
    still_open = list[int]()
    for span, start in enumerate(starts):
        yield from _closed(still_open, ends, start)
        still_open.append(span)
        yield start, span
    yield from _closed(still_open, ends, None)


def _closed(still_open: list[int], ends: list[int], until: int | None) -> Iterator[tuple[int, int]]:
    """Close the spans that end by a time, and tell what is open under each."""
    while still_open and (until is None or ends[still_open[-1]] <= until):
        end = ends[still_open.pop()]
        while still_open and ends[still_open[-1]] <= end:
            still_open.pop()
        yield end, still_open[-1] if still_open else NO_ROW
