"""Owns how much of each collective was exposed: while it ran, the device ran nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profiler_ext.attribution.ledger import BusySpans
from profiler_ext.attribution.trace.lookups import intern
from profiler_ext.kineto.collectives import collective_of, kernel_collective, only_group
from profiler_ext.records import (
    NO_COMMUNICATION,
    Communication,
    Launches,
    LaunchKind,
    MaskedInts,
    Trace,
)


def find_communication(
    trace: Trace, launches: Launches, busy: Sequence[BusySpans]
) -> Communication:
    """Return the launches that communicate, and how much of each was exposed.

    Args:
        trace: the trace.
        launches: its launches.
        busy: when each device was busy, collectives only where nothing else ran.
    """
    rows = np.flatnonzero(launches.kind.where(LaunchKind.COMMUNICATION))
    if not len(rows):
        return NO_COMMUNICATION
    exposed = np.zeros(len(launches), dtype=np.int64)
    for own in busy:
        np.add.at(exposed, own.launch, own.end_ns - own.start_ns)
    only = only_group(trace) or ""
    told = [(collective_of(trace, launches, row), launches.name[row]) for row in rows.tolist()]
    return Communication(
        launch=rows,
        collective=intern([each.name if each else kernel_collective(name) for each, name in told]),
        process_group=intern([each.group if each else only for each, _ in told]),
        exposed_ns=exposed[rows],
        waiting_ns=_unknown(len(rows)),
        late_ns=_unknown(len(rows)),
    )


def _unknown(count: int) -> MaskedInts:
    return np.ma.MaskedArray(np.zeros(count, dtype=np.int64), mask=np.ones(count, dtype=np.bool_))
