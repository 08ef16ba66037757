"""Links backward events to their forward by autograd's sequence number.

Each thread counts its own sequence numbers. A backward event names the thread of its forward by a
number that is not the trace's thread id; it is inferred from the sequence numbers that only one
thread has, else from torch's own flows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from profiler_ext.kineto.flow_events import ForwardFlow
from profiler_ext.records.events import Events, Ints

Flows = Callable[[], Iterable[ForwardFlow]]


class ForwardLinks:
    """The forward event of each backward event."""

    def __init__(
        self,
        events: Events,
        forward: Ints,
        backward: Ints,
        nodes: Mapping[int, int] | None = None,
        flows: Flows | None = None,
    ) -> None:
        # nodes: rows of backward events that have the number where another has none
        # flows: reads torch's flows; called only where numbers do not show a thread
        self._events, self._nodes = events, nodes or {}
        self._starts = events.start_ns
        self._numbers = events.sequence_number.data
        self._has_number = ~np.ma.getmaskarray(events.sequence_number)
        self._forward = _by_number(events, _numbered(events, forward))
        numbered = _numbered(events, backward)
        self._threads = self._threads_by_candidates(numbered)
        if flows is not None and self._is_open(numbered):
            self._threads |= self._threads_of(flows())

    def forward_of(self, row: int) -> int | None:
        """Return the row of the forward event, if known."""
        if not self._has_number.item(row):
            row = self._nodes.get(row, row)
        candidates = self._candidates(row)
        if len(candidates) == 1:
            return next(iter(candidates.values()))
        return candidates.get(self._threads.get(int(self._events.fwd_thread_id.data[row]), -1))

    def numbered(self, number: int) -> int | None:
        """Return the row of the forward event with a number, ``None`` unless there is one."""
        of_threads = list(self._forward.get(number, {}).values())
        return of_threads[0][0] if sum(map(len, of_threads)) == 1 else None

    def _candidates(self, row: int) -> dict[int | None, int]:
        """Return of each thread the last event with a number that began before its backward."""
        # The system reuses the id of a thread that has ended, and numbers restart.
        if not self._has_number.item(row):
            return {}
        own_ns, start_ns = self._starts.item(row), self._starts.item
        candidates = dict[int | None, int]()
        for thread, rows in self._forward.get(self._numbers.item(row), {}).items():
            if count := bisect_right(rows, own_ns, key=start_ns):
                candidates[thread] = rows[count - 1]
        return candidates

    def _is_open(self, backward: Ints) -> bool:
        numbers = self._events.fwd_thread_id
        return any(
            int(numbers.data[row]) not in self._threads and len(self._candidates(row)) > 1
            for row in backward[~np.ma.getmaskarray(numbers)[backward]].tolist()
        )

    def _threads_of(self, flows: Iterable[ForwardFlow]) -> dict[int, int]:
        """Return the thread behind each number, by flows that end where a node began."""
        events = self._events
        codes = {thread: code for code, thread in enumerate(events.threads)}
        rows = np.flatnonzero(events.fwd_thread_id.filled(0) > 0)
        starts = zip(events.thread[rows].tolist(), events.start_ns[rows].tolist(), strict=True)
        numbers = dict(zip(starts, events.fwd_thread_id.data[rows].tolist(), strict=True))
        seen = dict[int, set[int]]()
        for flow in flows:
            number = numbers.get((codes.get(flow.backward, -1), flow.backward_ns))
            if number is not None and flow.forward in codes:
                seen.setdefault(number, set()).add(codes[flow.forward])
        return {number: t for number, (t, *others) in seen.items() if not others}

    def _threads_by_candidates(self, backward: Ints) -> dict[int, int]:
        """Return the thread behind each forward thread number; an ambiguous one is left out."""
        threads = dict[int, set[int | None]]()
        for row in backward[~np.ma.getmaskarray(self._events.fwd_thread_id)[backward]].tolist():
            candidates = self._candidates(row)
            if len(candidates) == 1:
                threads.setdefault(int(self._events.fwd_thread_id.data[row]), set()).update(
                    candidates
                )
        return {
            number: t for number, (t, *others) in threads.items() if t is not None and not others
        }


def _numbered(events: Events, rows: Ints) -> Ints:
    return rows[~np.ma.getmaskarray(events.sequence_number)[rows]]


def _by_number(events: Events, rows: Ints) -> dict[int, dict[int | None, list[int]]]:
    """Return the forward rows by sequence number and thread, in order of time."""
    # Of the events with one number the last to start made the autograd node; the others only read
    # the counter.
    rows_by_number = dict[int, dict[int | None, list[int]]]()
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    columns = (events.sequence_number.data[rows], events.thread[rows], rows)
    for number, thread, row in zip(*(column.tolist() for column in columns), strict=True):
        rows_by_number.setdefault(number, {}).setdefault(thread, []).append(row)
    return rows_by_number
