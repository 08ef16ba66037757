"""Owns how much of each collective was exposed: while it ran, the device ran nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profiler_ext.attribution.ledger import BusySpans
from profiler_ext.attribution.trace.enqueued import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW, flag_rows, intern, take
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.kineto.collectives import collective_of
from profiler_ext.kineto.communication import collective_name, op_collective
from profiler_ext.kineto.distributed import only_group
from profiler_ext.records import (
    NO_COMMUNICATION,
    Communication,
    Events,
    Ints,
    Launches,
    LaunchKind,
    MaskedInts,
    Trace,
)


def find_communication(
    trace: Trace,
    launches: Launches,
    busy: Sequence[BusySpans],
    nesting: Nesting,
    enqueued: EnqueuedLaunches,
) -> Communication:
    """Return the launches that communicate, and how much of each was exposed.

    Args:
        trace: the trace.
        launches: its launches.
        busy: when each device was busy, collectives only where nothing else ran.
        nesting: the events of the CPU.
        enqueued: where it enqueued the launches.
    """
    rows = np.flatnonzero(launches.kind.where(LaunchKind.COMMUNICATION))
    if not len(rows):
        return NO_COMMUNICATION
    exposed = np.zeros(len(launches), dtype=np.int64)
    for own in busy:
        np.add.at(exposed, own.launch, own.end_ns - own.start_ns)
    only = only_group(trace) or ""
    known = [collective_of(trace, launches, row) for row in rows.tolist()]
    named = _names(trace.events, launches, rows, nesting, enqueued)
    return Communication(
        launch=rows,
        collective=intern(
            [each.name if each else name for each, name in zip(known, named, strict=True)]
        ),
        process_group=intern([each.group if each else only for each in known]),
        exposed_ns=exposed[rows],
        waiting_ns=_unknown(len(rows)),
        late_ns=_unknown(len(rows)),
    )


def _names(
    events: Events, launches: Launches, rows: Ints, nesting: Nesting, enqueued: EnqueuedLaunches
) -> list[str]:
    """Return what each does, as the range around its call or else its kernel's name says."""
    ranges_of_op = nesting.nearest(flag_rows(events.name, lambda name: op_collective(name) != ""))
    ranges = take(ranges_of_op, enqueued.cpu[rows], NO_ROW).tolist()
    return [
        collective_name(launches.name[row], "" if at == NO_ROW else events.name[at])
        for row, at in zip(rows.tolist(), ranges, strict=True)
    ]


def _unknown(count: int) -> MaskedInts:
    return np.ma.MaskedArray(np.zeros(count, dtype=np.int64), mask=np.ones(count, dtype=np.bool_))
