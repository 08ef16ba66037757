"""Owns the way from a backward event to its forward by autograd's sequence number.

Each thread counts its own sequence numbers. A backward event names the thread of its forward
by a number that is not the trace's thread id; which thread is meant is learnt from the
sequence numbers that only one thread has.
"""

from __future__ import annotations

import numpy as np

from profiler_ext.records import Events, Ints


class ForwardLinks:
    """Finds the forward event of a backward event."""

    def __init__(self, events: Events, forward: Ints, backward: Ints) -> None:
        """Index the forward events.

        Args:
            events: the events.
            forward: rows of forward events.
            backward: rows of backward events.
        """
        self._events = events
        self._forward = _by_number(events, _numbered(events, forward))
        self._threads = self._learn_threads(_numbered(events, backward))

    def forward_of(self, row: int) -> int | None:
        """Return the row of the forward event, ``None`` where the trace does not tell."""
        candidates = self._candidates(row)
        if len(candidates) == 1:
            return next(iter(candidates.values()))
        return candidates.get(self._threads.get(int(self._events.fwd_thread_id.data[row]), -1))

    def numbered(self, number: int) -> int | None:
        """Return the row of the forward event with a number, ``None`` unless there is one."""
        rows = set(self._forward.get(number, {}).values())
        return rows.pop() if len(rows) == 1 else None

    def _candidates(self, row: int) -> dict[int | None, int]:
        number = self._events.sequence_number[row]
        return {} if number is np.ma.masked else self._forward.get(int(number), {})

    def _learn_threads(self, backward: Ints) -> dict[int, int]:
        """Return the thread behind each forward thread number; a disputed one is left out."""
        threads = dict[int, set[int | None]]()
        for row in backward[~np.ma.getmaskarray(self._events.fwd_thread_id)[backward]].tolist():
            candidates = self._candidates(row)
            if len(candidates) == 1:
                threads.setdefault(int(self._events.fwd_thread_id[row]), set()).update(candidates)
        return {
            number: t for number, (t, *others) in threads.items() if t is not None and not others
        }


def _numbered(events: Events, rows: Ints) -> Ints:
    return rows[~np.ma.getmaskarray(events.sequence_number)[rows]]


def _by_number(events: Events, rows: Ints) -> dict[int, dict[int | None, int]]:
    """Return the forward rows by sequence number and thread.

    Of the events that carry one number the last to start made the autograd node; the
    earlier ones only read the counter.
    """
    rows_by_number = dict[int, dict[int | None, int]]()
    for row in rows[np.argsort(events.start_ns[rows], kind="stable")].tolist():
        number = int(events.sequence_number[row])
        rows_by_number.setdefault(number, {})[int(events.thread[row])] = row
    return rows_by_number
