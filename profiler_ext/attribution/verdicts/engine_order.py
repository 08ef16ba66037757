"""Owns which node autograd's engine evaluated before it added to a parameter's gradient."""

from __future__ import annotations

import numpy as np

from profiler_ext.attribution.calls.enclosing import EnclosingRanges
from profiler_ext.attribution.trace.lookups import NO_ROW
from profiler_ext.kineto import names
from profiler_ext.records import Ints


def nodes_before(enclosing: EnclosingRanges) -> dict[int, int]:
    """Return for each accumulation the node that the same thread evaluated before it."""
    events, parent = enclosing.events, enclosing.nesting.parent
    rows: Ints = np.flatnonzero(enclosing.engine == np.arange(len(events)))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    last: dict[tuple[int, int], int] = {}
    before: dict[int, int] = {}
    for row in rows.tolist():
        around = int(parent[row])
        outer = NO_ROW if around == NO_ROW else int(enclosing.engine[around])
        key = (int(events.thread[row]), outer)
        if names.evaluated_function(events.name[row]) != names.ACCUMULATE_GRAD:
            last[key] = row
        elif key in last:
            before[row] = last[key]
    return before
