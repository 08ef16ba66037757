"""Owns the table of idle time: where the CPU was, and what it did, while devices ran nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd

from profiler_ext.exporters.tables.arrays import WHOLE, frame, gather, ratio, repeated, whole
from profiler_ext.exporters.tables.schema import COLUMNS
from profiler_ext.exporters.tables.selection import Selection
from profiler_ext.records import Analysis, IdleTime

_PLACE = ("file", "line", "user_file", "user_line", "module", "gap")
_ORDER = (
    "device",
    "file",
    "line",
    "function",
    "code",
    "user_file",
    "user_line",
    "module",
    "module_class",
    "cpu_activity",
    "gap",
)
_Key = tuple[object, ...]


def idle_by_line(
    analysis: Analysis, *, step: int | None = None, rank: int | None = None
) -> pd.DataFrame:
    """Return the time in which devices ran nothing, by the CPU's line, largest first.

    The line is that of the thread that makes the steps. Idle time is of no phase, so there is no
    filter by phase.

    Args:
        analysis: what attribution found.
        step: only this step.
        rank: only this rank.

    Returns:
        ``device``, the line and module, ``cpu_activity`` (the innermost event of the CPU that
        covers most of an idle span's part at that line; absent for Python outside of any op),
        ``gap`` (why there is no line), ``spans`` and the time. It adds up to the idle time of
        the ledger.

    Raises:
        UsageError: There is no such step.
    """
    selection = Selection(step, rank)
    selection.require_step(analysis)
    chosen = analysis.idle_times if selection.has_rank_of(analysis) else ()
    rows: dict[_Key, list[IdleTime]] = {}
    for each in chosen:
        if step in (None, each.step):
            rows.setdefault(_key(each), []).append(each)
    return _table(analysis, selection, list(rows.values()))


def _key(time: IdleTime) -> _Key:
    place = (getattr(time.place, name) for name in _PLACE)
    return (time.device, time.cpu_activity, *place)


def _table(analysis: Analysis, selection: Selection, rows: list[list[IdleTime]]) -> pd.DataFrame:
    every = np.arange(len(rows))
    duration = np.array([sum(each.duration_ns for each in row) for row in rows], np.int64)
    steps = selection.count_steps(analysis)
    named = {
        name: gather([_value(row[0], name) for row in rows], every, COLUMNS[name].dtype)
        for name in _ORDER
    }
    spans = np.array([sum(each.spans for each in row) for row in rows], np.int64)
    sums = {
        "spans": whole(spans),
        "duration_ns": whole(duration),
        "fraction": ratio(duration, int(duration.sum())),
        "steps": repeated(steps, len(rows), WHOLE),
        "per_step_ns": ratio(duration, steps),
    }
    by = ["duration_ns", *_ORDER]
    ascending = [name != "duration_ns" for name in by]
    return frame(named | sums).sort_values(by, ascending=ascending, ignore_index=True)


def _value(time: IdleTime, name: str) -> object:
    own = time if name in ("device", "cpu_activity") else time.place
    return getattr(own, name)
