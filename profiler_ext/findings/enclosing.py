"""Owns which op of a name stands around another op of the trace."""

from __future__ import annotations

import numpy as np

from profiler_ext.records import Events, Ints


def enclosing(events: Events, rows: Ints, name: str) -> Ints:
    """Return the last op of a name that is open around each event; itself where there is none.

    Ops of that name stand in no other of it.

    Args:
        events: those of the trace.
        rows: the events.
        name: the op's.
    """
    codes = [code for code, text in enumerate(events.name.strings) if text == name]
    named = np.flatnonzero(np.isin(events.name.codes, codes))
    named = named[np.lexsort((events.start_ns[named], events.thread[named]))]
    result = rows.copy()
    for thread in np.unique(events.thread[named]).tolist():
        own = named[events.thread[named] == thread]
        on_thread = np.flatnonzero(events.thread[rows] == thread)
        at = np.searchsorted(events.start_ns[own], events.start_ns[rows[on_thread]], side="right") - 1
        around = own[np.maximum(at, 0)]
        is_open = (at >= 0) & (events.end_ns[around] >= events.end_ns[rows[on_thread]])
        result[on_thread[is_open]] = around[is_open]
    return result
