"""Owns the time in which a thread waited for a collective that the CPU does itself.

Gloo works in threads of its own, and the thread that waits for it has no event meanwhile. It waits
if it does nothing from the call on, and goes on within a moment of the collective's end.
"""

from __future__ import annotations

import numpy as np

from profiler_ext.attribution.idle.cpu_causes import NO_CAUSE, code
from profiler_ext.attribution.idle.tracks import Track
from profiler_ext.attribution.trace.lookups import NO_ROW, Rows, flag_rows
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.kineto import waits
from profiler_ext.kineto.communication import is_communication
from profiler_ext.records import Events, IdleCause, Ints

_LINGER_NS = 1_000_000
_IN_PYTHON = (NO_CAUSE, code(IdleCause.PYTHON))


class HostCollectives:
    """The collectives of a trace that the CPU does itself."""

    def __init__(self, events: Events, nesting: Nesting) -> None:
        """Find them.

        Args:
            events: the trace's events.
            nesting: which of them stands in which.
        """
        self._is_collective = flag_rows(events.name, waits.is_host_collective) & (nesting.depth != NO_ROW)
        self._is_call = flag_rows(events.name, is_communication)
        rows = np.flatnonzero(self._is_collective)
        ends_ns = events.start_ns[rows] + events.duration_ns[rows]
        order = np.argsort(ends_ns, kind="stable")
        self._rows, self._ends_ns = rows[order], ends_ns[order]

    def grace_ns(self, rows: Rows) -> Ints:
        """Return for how long after events a thread may still wait for them.

        Args:
            rows: rows of events.
        """
        return np.where(self._is_collective[rows], _LINGER_NS, 0)

    def waited_for(self, own: Track) -> Track:
        """Name the time in which a thread waited for such a collective.

        Args:
            own: what the thread did.

        Returns:
            The track; that time is one in which it waits for another rank.
        """
        if not len(self._rows) or len(own.times_ns) < 2:
            return own
        begins, ends = own.times_ns[:-1], own.times_ns[1:]
        last = np.searchsorted(self._ends_ns, ends, side="right") - 1
        over = np.where(last >= 0, self._ends_ns[last], begins)
        is_after = self._is_call[own.row[:-2]] & (own.row[:-2] != NO_ROW)
        waited = np.isin(own.cause[1:-1], _IN_PYTHON) & is_after
        waited &= (over > begins) & (ends - over <= _LINGER_NS)
        return _split(own, np.flatnonzero(waited), over[waited], self._rows[last[waited]])


def _split(own: Track, at: Ints, over_ns: Ints, rows: Ints) -> Track:
    """Put a segment before each of those that follow some changes, until its collective is over."""
    segment, cause, row = at + 1, own.cause.copy(), own.row.copy()
    following = (own.cause[segment], own.row[segment])
    cause[segment], row[segment] = code(IdleCause.OTHER_RANK), rows
    inside = over_ns < own.times_ns[segment]
    after = segment[inside] + 1
    return Track(
        np.insert(own.times_ns, segment[inside], over_ns[inside]),
        np.insert(cause, after, following[0][inside]),
        np.insert(row, after, following[1][inside]),
    )
