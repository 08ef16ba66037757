"""Owns after which launches a device had nothing left to run, as the CPU had enqueued no more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from profiler_ext.kineto import classify, waits
from profiler_ext.records import Analysis, Events, Interned, Ints
from profiler_ext.rooflines.calls import Rows


def drained(analysis: Analysis) -> Rows:
    """Return the launches whose end the CPU did not wait for, and after which the device was idle.

    The CPU began to enqueue what came next when the launch was over. A launch that the CPU waits
    for is none of these, though the device is idle after it.

    Args:
        analysis: what attribution found.

    Returns:
        Whether each launch is one; none where the trace does not tell what enqueued a launch.
    """
    launches = analysis.launches
    end_ns = launches.start_ns + launches.duration_ns
    enqueued_ns = _enqueued(analysis)
    is_drained = np.zeros(len(end_ns), np.bool_)
    on_gpu = ~np.ma.getmaskarray(launches.stream)
    for device in np.unique(launches.device[on_gpu]):
        rows = np.flatnonzero(on_gpu & (launches.device == device))
        rows = rows[np.lexsort((rows, launches.start_ns[rows]))]
        until = np.maximum.accumulate(end_ns[rows])
        is_late = enqueued_ns[rows[1:]] > until[:-1]
        is_drained[rows[:-1][is_late & (end_ns[rows[:-1]] == until[:-1])]] = True
    return is_drained & ~_awaited(analysis.recording.trace.events, end_ns)


def _enqueued(analysis: Analysis) -> Ints:
    """Return when the CPU began to enqueue each launch; 0 where the trace does not tell."""
    events = analysis.recording.trace.events
    rows = np.flatnonzero(
        _flags(events.category, classify.is_runtime_call) & ~np.ma.getmaskarray(events.correlation)
    )
    number, first, count = np.unique(
        events.correlation.data[rows], return_index=True, return_counts=True
    )
    correlations = analysis.launches.correlation
    if not len(number):
        return np.zeros(len(correlations), np.int64)
    at = np.minimum(np.searchsorted(number, correlations.data), len(number) - 1)
    known = (number[at] == correlations.data) & (count[at] == 1) & ~np.ma.getmaskarray(correlations)
    return np.where(known, events.start_ns[rows[first[at]]], 0)


def _awaited(events: Events, end_ns: Ints) -> Rows:
    """Whether a call that waits for the device spans the end of each launch."""
    is_call = _flags(events.category, classify.is_runtime_call)
    rows = np.flatnonzero(is_call & _flags(events.name, waits.is_device_wait))
    if not len(rows):
        return np.zeros(len(end_ns), np.bool_)
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    until = np.maximum.accumulate(events.end_of(rows))
    begun = np.searchsorted(events.start_ns[rows], end_ns, side="right") - 1
    spans: Rows = (begun >= 0) & (until[np.maximum(begun, 0)] >= end_ns)
    return spans


def _flags(column: Interned, predicate: Callable[[str], bool]) -> Rows:
    passes = np.array([predicate(text) for text in column.strings], np.bool_)
    return passes[column.codes] if len(passes) else np.zeros(len(column), np.bool_)
