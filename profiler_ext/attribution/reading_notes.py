"""Owns the sentences on how a trace was read that torch wrote otherwise than today, or on a CPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profiler_ext.attribution.trace.lookups import flag_rows
from profiler_ext.kineto import classify, names
from profiler_ext.kineto.reader import SCHEMA_KEY
from profiler_ext.records import Launches, Recording, SiteEvidence, Trace


def reading_notes(recording: Recording, launches: Launches) -> Iterator[str]:
    """Say what of a trace was not as torch.profiler writes it today.

    Args:
        recording: what was recorded.
        launches: what it was led to.
    """
    trace = recording.trace
    if trace.header and SCHEMA_KEY not in dict(trace.header):
        yield f"the trace has no {SCHEMA_KEY}, which torch.profiler writes: a tool changed it."
    if launches.evidence.where(SiteEvidence.ENCLOSING_OP).any():
        yield (
            "the external ids of this trace are correlation ids and name no op: each launch has "
            "the op around its launching call, on the thread of that call."
        )
    if len(launches) and np.ma.getmaskarray(launches.stream).all():
        yield from _cpu_notes(trace)


def _cpu_notes(trace: Trace) -> Iterator[str]:
    """Say that times are the CPU's where the trace speaks of other devices."""
    events = trace.events
    calls = flag_rows(events.category, classify.is_runtime_call)
    count = int((calls & flag_rows(events.name, names.is_launch_call)).sum())
    ranges = int(flag_rows(events.category, classify.is_profiler_range).sum())
    listed = ", ".join(dict.fromkeys(filter(None, (device.name for device in trace.devices))))
    if not (count or ranges or listed):
        return
    parts = [f"lists {listed}"] if listed else []
    parts += [f"has {count} calls that launch work"] if count else []
    parts += [f"has {ranges} profiler ranges, whose times are not measured"] if ranges else []
    yield (
        f"the trace {', '.join(parts)}, and has no event of a device: all times are the CPU's. If "
        "the program used a device, record it with that device's ProfilerActivity."
    )
