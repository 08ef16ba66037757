"""Owns which launch of an eager forward op each launch of its backward differentiates."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from profiler_ext.attribution.trace.enqueued import EnqueuedLaunches
from profiler_ext.attribution.trace.lookups import NO_ROW, take
from profiler_ext.attribution.trace.nesting import Nesting
from profiler_ext.records import Ints


def forward_launches(
    forward: Mapping[int, int], nesting: Nesting, enqueued: EnqueuedLaunches, duration_ns: Ints
) -> Ints:
    """Return for each launch the longest launch of the forward op that it differentiates.

    On the CPU an op's event is a launch itself, and what autograd numbers may lie within.

    Args:
        forward: row of the forward op of each launch that has one.
        nesting: which events stand in which.
        enqueued: the launches.
        duration_ns: how long each launch took.

    Returns:
        A launch for each, or ``NO_ROW``.
    """
    is_forward = np.zeros(len(nesting.parent), dtype=np.bool_)
    is_forward[list(forward.values())] = True
    op = take(nesting.nearest(is_forward), enqueued.cpu, NO_ROW)
    shortest_first = np.argsort(duration_ns, kind="stable")
    # Of several the last stays: the longest launch of an op. Behind the events stands ``NO_ROW``.
    longest, launch_at = (
        np.full(len(nesting.parent) + 1, NO_ROW, dtype=np.int32) for _ in range(2)
    )
    longest[op[shortest_first]] = shortest_first
    launch_at[enqueued.event] = np.arange(len(op))
    is_launch = np.zeros(len(nesting.parent), dtype=np.bool_)
    is_launch[enqueued.event] = True
    around = nesting.nearest(is_launch)
    rows = np.array([*forward.values()], dtype=np.int64)
    longest_own, outer = longest[rows], launch_at[around[rows]]
    column = np.full(len(op), NO_ROW, dtype=np.int64)
    column[[*forward]] = np.where(longest_own == NO_ROW, outer, longest_own)
    return column
