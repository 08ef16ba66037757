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
    is_scaling = flag_rows(names, scaling.is_scaling_op) & enclosing.is_op
    rows, place = _neighbours(enclosing, is_scaling)
    for at in np.flatnonzero(is_scaling[rows]).tolist():
        before = rows[max(at - scaling.MAX_OPS_BEFORE, 0) : at]
        before = before[place[before] == place[rows[at]]]
        own = scaling.own_ops_before(names[rows[at]], [names[row] for row in before])
        is_scaling[before[len(before) - own :]] = True
        after = rows[at + 1 : at + 3]
        after = after[place[after] == place[rows[at]]]
        has_step_check = scaling.is_step_check(names[rows[at]], [names[row] for row in after])
        is_scaling[after[: int(has_step_check)]] = True
    return enclosing.nesting.nearest(is_scaling)


def _neighbours(enclosing: EnclosingRanges, is_scaling: Flags) -> tuple[Ints, Ints]:
    """Return the ops and optimizers' steps beside the scaler's in order, and each event's place."""
    parent, events = enclosing.nesting.parent, enclosing.events
    place = np.where(parent == NO_ROW, -1 - events.thread, parent)
    is_candidate = enclosing.is_op | flag_rows(events.name, classify.is_optimizer)
    rows = np.flatnonzero(is_candidate & np.isin(place, place[is_scaling]))
    return rows[np.lexsort((events.start_ns[rows], place[rows]))], place
