"""Owns what rules ask of collectives: how quick one can be, and what runs beside one.

A rank alone does not tell a transfer from the wait for another rank. Of collectives that are alike
the quickest waited least, so that the transfer takes no longer than it; of few it may have waited
for long.
"""

from __future__ import annotations

import numpy as np

from profiler_ext.findings.facts import Facts, Rows
from profiler_ext.kineto.events import event_arguments
from profiler_ext.records import Ints, MaskedInts

_FEWEST = 8
_TELL_SIZE = ("In msg nelems", "Out msg nelems", "dtype", "Process Group Name")


def beside_collectives(facts: Facts) -> Rows:
    """Tell of each launch whether a collective ran on its device meanwhile, which slows it.

    A product on an H200 takes 53 us alone, and 100 us beside an all-reduce that waits.

    Args:
        facts: what is known of the session.
    """
    launches, own = facts.launches, facts.analysis.communication.launch
    ends = launches.start_ns + launches.duration_ns
    beside = np.zeros(len(launches), np.bool_)
    for device in np.unique(launches.device[own]).tolist():
        rows = own[launches.device[own] == device]
        rows = rows[np.argsort(launches.start_ns[rows], kind="stable")]
        reach = np.append(np.int64(-1), np.maximum.accumulate(ends[rows]))
        begun = np.searchsorted(launches.start_ns[rows], ends, side="left")
        beside |= (launches.device == device) & (reach[begun] > launches.start_ns)
    beside[own] = False
    return beside


def quickest_ns(facts: Facts, launches: Ints) -> MaskedInts:
    """Return for each launch the time of the quickest one that is alike, which may be itself.

    Args:
        facts: what is known of the session.
        launches: rows of launches that communicate.

    Returns:
        One number for each; masked where fewer than eight are alike.
    """
    trace, names = facts.analysis.recording.trace, facts.launches.name.codes[launches]
    positions = trace.events.position[facts.launches.event[launches]].tolist()
    kinds: dict[tuple[object, ...], int] = {}
    kind = np.zeros(len(launches), np.int64)
    for at, position in enumerate(positions):
        arguments = event_arguments(trace.raw[position])
        key = (int(names[at]), *(str(arguments.get(name)) for name in _TELL_SIZE))
        kind[at] = kinds.setdefault(key, len(kinds))
    quickest = np.full(len(kinds), np.iinfo(np.int64).max, np.int64)
    np.minimum.at(quickest, kind, facts.launches.duration_ns[launches])
    return np.ma.array(quickest[kind], mask=np.bincount(kind)[kind] < _FEWEST)
