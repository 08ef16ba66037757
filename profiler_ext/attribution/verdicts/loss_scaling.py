"""Owns which eager ops a gradient scaler runs for the optimizer."""

from __future__ import annotations

import numpy as np

from profiler_ext.attribution.calls.enclosing import EnclosingRanges
from profiler_ext.attribution.trace.lookups import NO_ROW, Rows, flag_rows
from profiler_ext.kineto import scaling


def scaling_ops(enclosing: EnclosingRanges) -> Rows:
    """Return for each event the scaler's op that it is or stands in, or ``NO_ROW``.

    Args:
        enclosing: what stands around each event on its thread.
    """
    events = enclosing.events
    found = flag_rows(events.name, scaling.is_scaling_op) & enclosing.is_op
    place = np.where(
        enclosing.nesting.parent == NO_ROW, -1 - events.thread, enclosing.nesting.parent
    )
    rows = np.flatnonzero(enclosing.is_op & np.isin(place, place[found]))
    rows = rows[np.lexsort((events.start_ns[rows], place[rows]))]
    for at in np.flatnonzero(found[rows]).tolist():
        before = rows[max(at - scaling.MOST_BEFORE, 0) : at]
        before = before[place[before] == place[rows[at]]]
        own = scaling.own_before(events.name[rows[at]], [events.name[row] for row in before])
        found[before[len(before) - own :]] = True
    return enclosing.nesting.nearest(found)
