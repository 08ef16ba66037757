"""Owns which eager ops a gradient scaler runs for the optimizer."""

from __future__ import annotations

import numpy as np

from profiler_ext.attribution.calls.enclosing import EnclosingRanges
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, Rows, flag_rows
from profiler_ext.kineto import classify, scaling
from profiler_ext.records import Ints


def scaling_ops(enclosing: EnclosingRanges) -> Rows:
    """Return for each event the scaler's op that it is or stands in, or ``NO_ROW``.

    Args:
        enclosing: what stands around each event on its thread.
    """
    names = enclosing.events.name
    found = flag_rows(names, scaling.is_scaling_op) & enclosing.is_op
    rows, place = _beside(enclosing, found)
    for at in np.flatnonzero(found[rows]).tolist():
        before = rows[max(at - scaling.MOST_BEFORE, 0) : at]
        before = before[place[before] == place[rows[at]]]
        own = scaling.own_before(names[rows[at]], [names[row] for row in before])
        found[before[len(before) - own :]] = True
        after = rows[at + 1 : at + 3]
        after = after[place[after] == place[rows[at]]]
        asks = scaling.asks_whether_to_step(names[rows[at]], [names[row] for row in after])
        found[after[: int(asks)]] = True
    return enclosing.nesting.nearest(found)


def _beside(enclosing: EnclosingRanges, found: Flags) -> tuple[Ints, Ints]:
    """Return the ops and optimizers' steps beside the scaler's in order, and each event's place."""
    parent, events = enclosing.nesting.parent, enclosing.events
    place = np.where(parent == NO_ROW, -1 - events.thread, parent)
    is_asked = enclosing.is_op | flag_rows(events.name, classify.is_optimizer)
    rows = np.flatnonzero(is_asked & np.isin(place, place[found]))
    return rows[np.lexsort((events.start_ns[rows], place[rows]))], place
