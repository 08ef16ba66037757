"""Owns which launches a stream ran in another order than its thread enqueued them.

A stream runs in order, so what is out of it is tied to the wrong call. Of two that changed places
either may be: what is sure is what stands in its place whichever is taken out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from profiler_ext.attribution.trace.enqueued import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags
from profiler_ext.records import Events, Ints, numbered


def out_of_order(events: Events, enqueued: EnqueuedLaunches) -> Flags:
    """Flag the launches of which it is not sure that they ran in the order of their calls.

    Args:
        events: the trace's events.
        enqueued: its launches, in order of start.

    Returns:
        A flag for each launch.
    """
    flags = np.zeros(len(enqueued), dtype=np.bool_)
    known = np.flatnonzero(enqueued.call != NO_ROW)
    queue, call = enqueued.queue[known], enqueued.call[known]
    for rows in _groups(known, numbered([queue, events.thread[call]])):
        times = enqueued.enqueue_ns[rows]
        if (np.diff(times) < 0).any():
            flags[rows] |= _is_uncertain(times)
    for rows in _groups(known, queue):
        if _is_impossible(events, enqueued.call[rows]):
            flags[rows] |= _is_uncertain(enqueued.enqueue_ns[rows])
    return flags


def _groups(rows: Ints, keys: Ints) -> Iterator[Ints]:
    """Yield the rows that have the same key, in their order."""
    order = np.argsort(keys, kind="stable")
    bounds = np.flatnonzero(np.diff(keys[order])) + 1
    yield from (rows[group] for group in np.split(order, bounds) if len(group))


def _is_uncertain(times: Ints) -> Flags:
    return np.array([not sure for sure in in_every_longest_order(times.tolist())], dtype=np.bool_)


def _is_impossible(events: Events, calls: Ints) -> bool:
    """Tell whether a call was over before one began whose launch ran earlier, in any thread.

    Threads that launch at the same time may be served in either order.
    """
    starts, ends = events.start_ns[calls], events.end_of(calls)
    return bool((ends[1:] < np.maximum.accumulate(starts)[:-1]).any())


def in_every_longest_order(values: Sequence[int]) -> list[bool]:
    """Tell of each value whether it is in every longest part of a sequence that never falls."""
    before = _lengths(values)
    after = _lengths([-value for value in reversed(values)])[::-1]
    longest = max(before, default=0)
    is_in_one = [a + b - 1 == longest for a, b in zip(before, after, strict=True)]
    alike = [0] * (longest + 1)
    for length, is_in in zip(before, is_in_one, strict=True):
        alike[length] += is_in
    return [is_in and alike[n] == 1 for n, is_in in zip(before, is_in_one, strict=True)]


def _lengths(values: Iterable[int]) -> list[int]:
    """Return for each value how long the longest such part is that ends with it."""
    ends: list[int] = []
    lengths: list[int] = []
    for value in values:
        at = bisect_right(ends, value)
        ends[at : at + 1] = [value]
        lengths.append(at + 1)
    return lengths
