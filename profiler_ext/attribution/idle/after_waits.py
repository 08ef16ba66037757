"""Owns what follows a wait for the device: idle time that would not be there without it.

A thread that waits for a device loses its lead. When the wait is over the device has nothing left
to run, and idles until the thread has enqueued anew. Had the call not waited, the thread would be
ahead by as long as the device was busy in the meantime. So idle time that follows is the waits'
consequence, as long in all as the device was busy during them; what lies beyond that would be
there without them. What a wait cost is used up in the order in which it was lost.
"""

from __future__ import annotations

import numpy as np

from profiler_ext.attribution.idle.cpu_causes import code, is_of
from profiler_ext.attribution.idle.pieces import Pieces
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
_NOT_CPU_CAUSES = (
    IdleCause.SYNCHRONISATION,
    IdleCause.BETWEEN_LAUNCHES,
    IdleCause.NO_LAUNCH_CALL,
    IdleCause.NO_CPU_EVENTS,
)


def consequences(pieces: Pieces, waits: Spans, busy: BusySpans) -> tuple[Ints, Ints]:
    """Return how much of each piece, from its beginning on, is the consequence of a wait.

    Args:
        pieces: pieces of one device's idle spans, in order of time, all ended by the same threads.
        waits: when these threads waited for a device, in order of start; at least one.
        busy: when the device ran anything.

    Returns:
        That time; and when the call began that is to blame.
    """
    spans = (busy.start_ns, busy.end_ns)
    each_ns = time_before(*spans, waits.end_ns) - time_before(*spans, waits.start_ns)
    lost = np.cumsum(each_ns)
    counts = ~is_of(pieces.cause, _NOT_CPU_CAUSES)
    used = np.where(counts, pieces.duration_ns, 0)
    np.cumsum(used, out=used)
    # A lead that is used up cannot fall below nothing: what was lost so far bounds what is used.
    left = np.append(0, lost)[np.searchsorted(waits.start_ns, pieces.start_ns, side="right")]
    left -= used
    np.minimum.accumulate(left, out=left)
    used += np.minimum(left, 0, out=left)
    before = np.append(0, used[:-1])[: len(used)]
    is_named = is_of(pieces.cause, _CONSEQUENCES)
    blamed = np.searchsorted(lost, before, side="right")
    np.minimum(blamed, len(lost) - 1, out=blamed)
    used -= before
    used[~is_named] = 0
    return used, waits.start_ns[blamed]


def split(pieces: Pieces, consequence_ns: Ints, blamed_ns: Ints) -> tuple[Pieces, Ints]:
    """Cut pieces where a lead is used up.

    Args:
        pieces: pieces of idle spans, in order.
        taken: how much of each, from its beginning on, is the consequence of a wait.
        blamed_ns: when the call began that is to blame.

    Returns:
        The pieces; and for each when the call began that is to blame, else when the piece began.
    """
    is_cut, has_rest = consequence_ns > 0, consequence_ns < pieces.duration_ns
    own = np.repeat(np.arange(len(consequence_ns)), is_cut.astype(np.int64) + has_rest)
    is_first = np.append(True, own[1:] != own[:-1])[: len(own)]
    is_consequence, consequence_ns = is_cut[own] & is_first, consequence_ns[own]
    selected = pieces.at(own)
    begins = selected.start_ns + np.where(is_consequence, 0, consequence_ns)
    lengths = np.where(is_consequence, consequence_ns, selected.duration_ns - consequence_ns)
    cause = np.where(is_consequence, code(IdleCause.AFTER_SYNCHRONISATION), selected.cause)
    moments = np.where(is_consequence, blamed_ns[own], begins)
    return Pieces(selected.span, begins, lengths, cause), moments
