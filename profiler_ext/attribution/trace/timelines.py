"""Owns which of several spans is open at a time: of those that are, the one that opened last."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.trace.last_reaching import last_reaching
from profiler_ext.attribution.trace.lookups import NO_ROW, Rows
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
    below, hidden_by = _enclosing(ends_ns)
    starts_after = np.append(starts_ns, np.iinfo(np.int64).max)[hidden_by]
    closing = np.flatnonzero(starts_after >= ends_ns)
    # What ends when others begin is over before them; a span of no time is so after it began.
    begun = np.maximum(np.searchsorted(starts_ns, ends_ns[closing]), closing + 1)
    order = np.lexsort((ends_ns[closing], begun))
    closing, begun = closing[order], begun[order]
    at = np.arange(len(closing)) + begun
    times, opened = np.empty((2, len(starts_ns) + len(closing)), dtype=np.int64)
    is_start = np.ones(len(times), dtype=np.bool_)
    is_start[at] = False
    times[is_start], opened[is_start] = starts_ns, np.arange(len(starts_ns))
    times[at], opened[at] = ends_ns[closing], below[closing]
    return Timeline(times, opened)


def _enclosing(ends_ns: Ints) -> tuple[Rows, Rows]:
    """Return for each span the last before it that ends later, and the next that ends no earlier.

    The first is open when the span is over; the other, if it begins before that, hides its end.
    """
    backwards = last_reaching(ends_ns[::-1], ends_ns[::-1])[::-1]
    last = len(ends_ns) - 1
    return last_reaching(ends_ns, ends_ns + 1), np.where(
        backwards == NO_ROW, last + 1, last - backwards
    )
