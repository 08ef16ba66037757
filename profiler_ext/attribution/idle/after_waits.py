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
from profiler_ext.attribution.trace.lookups import NO_ROW
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
    """Waits for a device, those between which nothing was enqueued as one; by turn, and in order.

    Attributes:
        turn: which threads waited.
        begin_ns: when each began.
        lost_ns: how long the device was busy meanwhile.
        blamed_ns: when the call began that waited for most of it.
    """

    turn: Ints
    begin_ns: Ints
    lost_ns: Ints
    blamed_ns: Ints

    def before(self, turn: Ints, times_ns: Ints) -> Ints:
        """Return the last wait of threads before a time, or ``NO_ROW``.

        Args:
            turn: the threads.
            times_ns: a time for each.
        """
        moments = np.unique(self.begin_ns)
        of_all = len(moments) + 1
        keys = self.turn * of_all + np.searchsorted(moments, self.begin_ns, side="right")
        wanted = turn * of_all + np.searchsorted(moments, times_ns, side="right")
        last = np.searchsorted(keys, wanted, side="right") - 1
        return np.where(np.append(self.turn, NO_ROW)[last] == turn, last, NO_ROW)


def lost_leads(waits: Spans, turn: Ints, busy: BusySpans, enqueue_ns: Ints) -> LostLead:
    """Return by how much each wait set back the threads that waited.

    Args:
        waits: when threads waited for a device, by turn, and in order of start.
        turn: which threads take turns with those of each.
        busy: when the device ran anything.
        enqueue_ns: when launches were enqueued, in order.

    Returns:
        The waits; there is at least one.
    """
    spans = (busy.start_ns, busy.end_ns)
    each_ns = time_before(*spans, waits.end_ns) - time_before(*spans, waits.start_ns)
    before = np.searchsorted(enqueue_ns, waits.start_ns, side="left")
    after = np.searchsorted(enqueue_ns, waits.end_ns, side="left")
    begins = (before[1:] > after[:-1]) | (turn[1:] != turn[:-1])
    firsts = np.flatnonzero(np.append(True, begins))
    group = np.cumsum(np.append(True, begins)) - 1
    order = np.lexsort((-each_ns, group))
    blamed = order[np.searchsorted(group[order], np.arange(len(firsts)))]
    lost_ns = np.add.reduceat(each_ns, firsts)
    return LostLead(turn[firsts], waits.start_ns[firsts], lost_ns, waits.start_ns[blamed])


def consequences(pieces: Pieces, turn: Ints, leads: LostLead) -> tuple[Ints, Ints]:
    """Return how much of each piece, from its beginning on, is the consequence of a wait.

    Args:
        pieces: pieces of one device's idle spans, in order of time.
        turn: which threads ended the span of each.
        leads: the waits.

    Returns:
        That time; and when the call began that is to blame.
    """
    of = leads.before(turn, pieces.start_ns)
    counts = (of != NO_ROW) & ~is_of(pieces.cause, _NOT_OF_CPU)
    lengths = np.where(counts, pieces.duration_ns, 0)
    order = np.argsort(of, kind="stable")
    before = np.cumsum(lengths[order]) - lengths[order]
    used = np.empty(len(of), dtype=np.int64)
    used[order] = before - before[np.searchsorted(of[order], of[order], side="left")]
    left = np.append(leads.lost_ns, 0)[of] - used
    taken = np.where(is_of(pieces.cause, _CONSEQUENCES), np.clip(left, 0, lengths), 0)
    return taken, np.append(leads.blamed_ns, 0)[of]


def split(pieces: Pieces, taken: Ints, blamed_ns: Ints) -> tuple[Pieces, Ints]:
    """Cut pieces where a lead is used up.

    Args:
        pieces: pieces of idle spans, in order.
        taken: how much of each, from its beginning on, is the consequence of a wait.
        blamed_ns: when the call began that is to blame.

    Returns:
        The pieces; and for each when the call began that is to blame, else when the piece began.
    """
    some, rest = np.flatnonzero(taken), np.flatnonzero(taken < pieces.duration_ns)
    cause = np.full(len(some), code(IdleCause.AFTER_SYNCHRONISATION))
    first = Pieces(pieces.span[some], pieces.start_ns[some], taken[some], cause)
    begins, left = (pieces.start_ns + taken)[rest], (pieces.duration_ns - taken)[rest]
    other = Pieces(pieces.span[rest], begins, left, pieces.cause[rest])
    moments = np.append(blamed_ns[some], begins)
    order = np.lexsort((np.append(first.start_ns, begins), np.append(first.span, other.span)))
    return joined([first, other]), moments[order]
