"""Owns the names of what a CPU did in a piece of idle time."""

from __future__ import annotations

import numpy as np

from profiler_ext.attribution.trace.lookups import NO_ROW, Rows, flag_rows, take
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.kineto import classify, names
from profiler_ext.records import Events, Interned, Ints, ranks


class Activities:
    """Names the innermost event that covers more than half of a piece of time."""

    def __init__(self, events: Events, nesting: Nesting) -> None:
        """Find what stands in which, the marks of this package left out.

        Args:
            events: the trace's events.
            nesting: which of them stands in which.
        """
        self._events, self._parent = events, nesting.parent
        self._is_own = flag_rows(events.name, _is_own)

    def rows(self, opened: Rows, start_ns: Ints, end_ns: Ints) -> Rows:
        """Return the innermost event that covers more than half of each piece, or ``NO_ROW``.

        Args:
            opened: the innermost event in the middle of each piece, or ``NO_ROW``: what covers more
                than half of it is open then.
            start_ns: when each piece begins.
            end_ns: when it ends.
        """
        return self._wide_enough(self._others(opened), start_ns, end_ns)

    def named(self, rows: Rows) -> Interned:
        """Return the names of events; a step's own range says nothing.

        Args:
            rows: rows of events, or ``NO_ROW``.
        """
        strings = self._events.name.strings
        silent = [code for code, name in enumerate(strings) if classify.is_step(name)]
        codes = take(self._events.name.codes, rows, len(strings))
        codes = np.where(np.isin(codes, silent), len(strings), codes)
        used, own = ranks(codes)
        texts = tuple((*strings, "")[at] for at in used.tolist())
        return Interned(own.astype(np.int32), texts)

    def _others(self, rows: Rows) -> Rows:
        """Climb from each mark of this package to what it stands in."""
        rows, at = rows.copy(), np.flatnonzero(rows != NO_ROW)
        while len(at := at[self._is_own[rows[at]]]):
            rows[at] = self._parent[rows[at]]
            at = at[rows[at] != NO_ROW]
        return rows

    def _wide_enough(self, rows: Rows, start_ns: Ints, end_ns: Ints) -> Rows:
        """Climb from each row to the first event around it that covers more than half."""
        starts, durations = self._events.start_ns, self._events.duration_ns
        at = np.flatnonzero(rows != NO_ROW)
        while len(at):
            own = rows[at]
            begun = np.maximum(starts[own], start_ns[at])
            over = np.minimum(starts[own] + durations[own], end_ns[at])
            at = at[2 * (over - begun) <= (end_ns - start_ns)[at]]
            rows[at] = self._others(self._parent[rows[at]])
            at = at[rows[at] != NO_ROW]
        return rows


def _is_own(name: str) -> bool:
    """Tell whether an event is a mark of this package, which is no work of the CPU."""
    return classify.is_call_mark(name) or names.is_clock_mark(name)
