"""The analysis of one step alone: its launches, its idle time, and its breakdown.

The trace is cut too, so an export of it is read back as a session with this step: what the CPU did
in the step, and what the device ran for it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import numpy as np

from profiler_ext.attribution.notes import notes_on
from profiler_ext.attribution.trace.lookups import NO_ROW, Flags, masked, take
from profiler_ext.kineto import classify, flow_events, names
from profiler_ext.records.analysis import (
    Analysis,
    Communication,
    IdlePieces,
    Launches,
    RankDelay,
    Shares,
    Step,
)
from profiler_ext.records.events import Interned, Ints, MaskedInts, Trace, flag_rows

Columns = TypeVar("Columns", Launches, Shares, IdlePieces, Communication, RankDelay)
LaunchColumns = TypeVar("LaunchColumns", Shares, Communication, RankDelay)


def of_step(analysis: Analysis, number: int) -> Analysis:
    """Return the analysis of one step, equal to the session's tables narrowed to it."""
    # Its places are those of all steps.
    step = next(each for each in analysis.steps if each.number == number)
    chosen = np.ma.filled(analysis.launches.step == number, False).astype(np.bool_)
    events = _events_of(analysis, step, chosen)
    launches = _launches(analysis.launches, chosen, events)
    recording = dataclasses.replace(
        analysis.recording,
        trace=_trace(analysis, step, chosen, events),
        settings=dataclasses.replace(analysis.recording.settings, first_step_ns=step.start_ns),
    )
    return dataclasses.replace(
        analysis,
        recording=recording,
        steps=(step,),
        launches=launches,
        shares=_of_launches(analysis.shares, chosen),
        idle=_rows(analysis.idle, analysis.idle.step == number),
        communication=_of_launches(analysis.communication, chosen),
        rank_delay=_of_launches(analysis.rank_delay, chosen),
        breakdown=tuple(line for line in analysis.breakdown if line.step == number),
        notes=notes_on(recording, launches),
    )


def _events_of(analysis: Analysis, step: Step, chosen: Flags) -> Flags:
    events, launches = analysis.recording.trace.events, analysis.launches
    start, end = _device_window(launches, step, chosen)
    on_device = flag_rows(events.category, _is_on_device)
    begins_ns = np.where(on_device, start, step.cpu_start_ns)
    ends_ns = np.where(on_device, end, step.cpu_end_ns)
    is_kept: Flags = (events.start_ns < ends_ns) & (events.end_ns > begins_ns)
    is_kept &= ~flag_rows(
        events.name, lambda name: names.step_number(name) not in (None, step.number)
    )
    is_kept[launches.event] = chosen
    return is_kept | flag_rows(events.name, names.is_clock_mark)


def _is_on_device(category: str) -> bool:
    return classify.is_device_work(category) or category == names.Category.GPU_USER_ANNOTATION


def _device_window(launches: Launches, step: Step, chosen: Flags) -> tuple[int, int]:
    starts = launches.start_ns[chosen]
    if not len(starts):
        return step.start_ns, step.end_ns
    return int(starts.min()), int((starts + launches.duration_ns[chosen]).max())


def _trace(analysis: Analysis, step: Step, chosen: Flags, events: Flags) -> Trace:
    _, end = _device_window(analysis.launches, step, chosen)
    return flow_events.cut(analysis.recording.trace, events, step.start_ns, max(end, step.end_ns))


def _launches(launches: Launches, chosen: Flags, events: Flags) -> Launches:
    new_event, new_launch = _numbers(events), _numbers(chosen)
    selected = _rows(launches, chosen)
    return dataclasses.replace(
        selected,
        event=new_event[selected.event],
        op_event=_renumbered(selected.op_event, new_event),
        forward=_renumbered(selected.forward, new_launch),
    )


def _of_launches(columns: LaunchColumns, chosen: Flags) -> LaunchColumns:
    selected = _rows(columns, chosen[columns.launch])
    return dataclasses.replace(selected, launch=_numbers(chosen)[selected.launch])


def _rows(columns: Columns, chosen: Flags) -> Columns:
    every = {field.name: getattr(columns, field.name) for field in dataclasses.fields(columns)}
    own: dict[str, Any] = {
        name: each[chosen]
        for name, each in every.items()
        if isinstance(each, np.ndarray | Interned)
    }
    return dataclasses.replace(columns, **own)


def _numbers(chosen: Flags) -> Ints:
    return np.where(chosen, np.cumsum(chosen) - 1, NO_ROW).astype(np.int64)


def _renumbered(rows: MaskedInts, numbers: Ints) -> MaskedInts:
    return masked(take(numbers, rows.filled(NO_ROW), NO_ROW))
