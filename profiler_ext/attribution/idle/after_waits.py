"""Owns what follows a wait for the device: idle time that would not be there without it.

A thread that waits for a device loses its lead. When the wait is over the device has nothing left
to run, and idles until the thread has enqueued anew. Had the call not waited, the thread would have
been ahead by as long as the device was busy in the meantime. So idle time that follows, up to that
long in all and until the next wait, is the wait's consequence; what lies beyond that would be there
without it. Waits between which nothing was enqueued are one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.idle.cpu_causes import code, is_of
from profiler_ext.attribution.idle.pieces import Pieces, joined
from profiler_ext.attribution.idle.tracks import Spans
from profiler_ext.attribution.ledger import BusySpans, time_before
from profiler_ext.records import IdleCause, Ints

# What the CPU did on its way to the launch, and what has a cause of its own but takes time too.
_CONSEQUENCES = (
    IdleCause.LAUNCHING,
    IdleCause.PYTHON,
    IdleCause.AUTOGRAD,
    IdleCause.LAUNCH_LATENCY,
    IdleCause.END_OF_STEP,
)
_NOT_OF_CPU = (
    IdleCause.SYNCHRONISATION,
    IdleCause.BETWEEN_LAUNCHES,
    IdleCause.NO_LAUNCH_CALL,
    IdleCause.NO_CPU_EVENTS,
)


@dataclass(frozen=True, slots=True)
class LostLead:
    """Waits for a device, those between which nothing was enqueued as one; in order.

    Attributes:
        begin_ns: when each began.
        lost_ns: how long the device was busy meanwhile.
        blamed_ns: when the call began that waited for most of it.
    """

    begin_ns: Ints
    lost_ns: Ints
    blamed_ns: Ints


def lost_leads(waits: Spans, busy: BusySpans, enqueue_ns: Ints) -> LostLead:
    """Return by how much each wait set back the threads that waited.

    Args:
        waits: when they waited for a device, in order of start.
        busy: when the device ran anything.
        enqueue_ns: when launches were enqueued, in order.
    """
    if not len(waits.start_ns):
        return LostLead(waits.start_ns, waits.start_ns, waits.start_ns)
    spans = (busy.start_ns, busy.end_ns)
    each_ns = time_before(*spans, waits.end_ns) - time_before(*spans, waits.start_ns)
    before = np.searchsorted(enqueue_ns, waits.start_ns, side="left")
    after = np.searchsorted(enqueue_ns, waits.end_ns, side="left")
    firsts = np.flatnonzero(np.append(True, before[1:] > after[:-1]))
    lost_ns = np.add.reduceat(each_ns, firsts)
    group = np.cumsum(np.isin(np.arange(len(each_ns)), firsts)) - 1
    order = np.lexsort((-each_ns, group))
    blamed = order[np.searchsorted(group[order], np.arange(len(firsts)))]
    return LostLead(waits.start_ns[firsts], lost_ns, waits.start_ns[blamed])


def with_consequences(pieces: Pieces, leads: LostLead) -> tuple[Pieces, Ints]:
    """Name what follows a wait.

    Args:
        pieces: pieces of idle spans, in order of time.
        leads: the waits of the threads that ended these spans.

    Returns:
        The pieces, cut where a lead is used up; and for each when the call began that is to
        blame, else when the piece began.
    """
    of = np.searchsorted(leads.begin_ns, pieces.start_ns, side="right") - 1
    counts = (of >= 0) & ~is_of(pieces.cause, _NOT_OF_CPU)
    lengths = np.where(counts, pieces.duration_ns, 0)
    before = np.cumsum(lengths) - lengths
    before = before - before[np.searchsorted(of, of, side="left")] if len(of) else before
    left = np.append(leads.lost_ns, 0)[of] - before
    taken = np.where(is_of(pieces.cause, _CONSEQUENCES), np.clip(left, 0, lengths), 0)
    blamed = np.append(leads.blamed_ns, 0)[of]
    return _split(pieces, taken, blamed)


def _split(pieces: Pieces, taken: Ints, blamed_ns: Ints) -> tuple[Pieces, Ints]:
    some, rest = np.flatnonzero(taken), np.flatnonzero(taken < pieces.duration_ns)
    cause = np.full(len(some), code(IdleCause.AFTER_SYNCHRONISATION))
    first = Pieces(pieces.span[some], pieces.start_ns[some], taken[some], cause)
    begins, left = (pieces.start_ns + taken)[rest], (pieces.duration_ns - taken)[rest]
    other = Pieces(pieces.span[rest], begins, left, pieces.cause[rest])
    moments = np.append(blamed_ns[some], begins)
    order = np.argsort(np.append(first.start_ns, begins), kind="stable")
    return joined([first, other]), moments[order]
