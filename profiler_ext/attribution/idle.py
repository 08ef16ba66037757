"""Owns the idle spans: when a device ran nothing within a step, and what the CPU did then."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profiler_ext.attribution.columns import NO_ROW, ask
from profiler_ext.attribution.ledger import Busy
from profiler_ext.attribution.nesting import Nesting
from profiler_ext.kineto import classify
from profiler_ext.records import Events, IdleSpan, Ints, Step

LARGEST_SPANS = 50
"""How many idle spans of each step and device are kept; the ledger counts all of them."""


def find_idle(
    events: Events, nesting: Nesting, busy: Sequence[Busy], steps: Sequence[Step]
) -> tuple[IdleSpan, ...]:
    """Return the largest idle spans of each step and device, largest first."""
    is_mark = ask(events.name, classify.is_call_mark)  # this package's own, around a call
    cpu = np.flatnonzero((nesting.depth != NO_ROW) & ~is_mark)
    spans = [
        _described(events, nesting, cpu, span)
        for step in steps
        for device in busy
        for span in _largest(device, step)
    ]
    return tuple(sorted(spans, key=lambda span: (-span.duration_ns, span.start_ns, span.device)))


def _largest(busy: Busy, step: Step) -> list[IdleSpan]:
    start, end = busy.clipped(step)
    opens = np.concatenate([[step.start_ns], end])
    closes = np.concatenate([start, [step.end_ns]])
    opens = np.maximum.accumulate(opens)
    length = np.maximum(closes - opens, 0)
    largest = np.argsort(-length, kind="stable")[:LARGEST_SPANS]
    return [
        IdleSpan(step.number, busy.device, int(opens[at]), int(length[at]), None)
        for at in largest[length[largest] > 0].tolist()
    ]


def _described(events: Events, nesting: Nesting, cpu: Ints, span: IdleSpan) -> IdleSpan:
    """Name the innermost CPU event that covers more than half of the span.

    A step's own range says nothing: within it and outside all else the CPU was in Python.
    """
    end_ns = span.start_ns + span.duration_ns
    covered = np.minimum(events.end_ns[cpu], end_ns) - np.maximum(
        events.start_ns[cpu], span.start_ns
    )
    rows = cpu[2 * covered > span.duration_ns]
    if not len(rows):
        return span
    deepest = int(rows[np.argmax(nesting.depth[rows])])
    if classify.is_step(events.name[deepest]):
        return span
    return IdleSpan(span.step, span.device, span.start_ns, span.duration_ns, events.name[deepest])
