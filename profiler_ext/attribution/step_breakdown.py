"""Step time breakdown: the wall time of each step on each device, by the device's activity.

A step is bounded on the device (``trace/steps.py``), and what counts is what the device did in that
time, whichever step enqueued it. Overlapped time counts once: for computation or copies rather than
for a collective, so that what is left of collectives is exposed communication; else for the launch
that started first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.attribution.trace import intervals, lookups
from profiler_ext.records.analysis import BreakdownRow, Launches, Step
from profiler_ext.records.events import Ints, first_rows, numbered
from profiler_ext.records.vocabulary import BreakdownCategory, LaunchKind, Level, Scope

_Category = tuple[str, str, str | None]  # scope, category and level of busy or idle time


@dataclass(frozen=True, slots=True)
class BusySpans:
    """When one device was busy: spans without overlaps, in order.

    A launch has one; a collective one for each part in which nothing else ran.
    """

    device: int
    launch: Ints  # row of the launch
    # The part that counts
    start_ns: Ints
    end_ns: Ints


def busy_spans(launches: Launches) -> tuple[BusySpans, ...]:
    """Return when each device was busy; a trace without launches has one idle device."""
    devices = np.unique(launches.device).tolist() or [0]
    return tuple(_busy(launches, device) for device in devices)


def break_down_steps(
    launches: Launches, corrected: lookups.Flags, busy: Sequence[BusySpans], steps: Sequence[Step]
) -> tuple[BreakdownRow, ...]:
    """Return the breakdown of each step's wall time on each device; its rows add up exactly."""
    codes, category_codes = _categories(launches, corrected)
    accounts = [_accounts(device, codes, category_codes, steps) for device in busy]
    return tuple(
        BreakdownRow(step.number, device.device, scope, level, category, duration_ns)
        for at, step in enumerate(steps)
        for device, of_steps in zip(busy, accounts, strict=True)
        for (scope, category, level), duration_ns in sorted(of_steps[at].items(), key=_in_order)
    )


def _busy(launches: Launches, device: int) -> BusySpans:
    own = launches.device == device
    collective = launches.kind.where(LaunchKind.COMMUNICATION)
    work, start, end = _without_overlaps(launches, np.flatnonzero(own & ~collective))
    rows, begins, ends = _without_overlaps(launches, np.flatnonzero(own & collective))
    exposed = intervals.gaps_between(start, end, begins, ends)
    rows = np.append(work, rows[exposed.window])
    start, end = np.append(start, exposed.start_ns), np.append(end, exposed.end_ns)
    order = np.lexsort((end, start))
    return BusySpans(device, rows[order], start[order], end[order])


def _without_overlaps(launches: Launches, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Return launches with the part of each that no earlier one covers."""
    start, end = launches.start_ns[rows], launches.start_ns[rows] + launches.duration_ns[rows]
    covered = np.maximum.accumulate(np.concatenate([start[:1], end]))[:-1]
    start = np.maximum(start, covered)
    return rows, start, np.maximum(start, end)


def _accounts(
    device: BusySpans, codes: Ints, categories: Sequence[_Category], steps: Sequence[Step]
) -> list[dict[_Category, int]]:
    """Return for each step its time by category; the rest of its wall time is idle."""
    begins, ends = np.array([(s.start_ns, s.end_ns) for s in steps]).reshape(-1, 2).T
    accounts: list[dict[_Category, int]] = [{} for _ in steps]
    idle = ends - begins
    own = codes[device.launch]
    for code in np.unique(own).tolist():
        start, end = device.start_ns[own == code], device.end_ns[own == code]
        busy_ns = time_before(start, end, ends) - time_before(start, end, begins)
        idle = idle - busy_ns
        for at in np.flatnonzero(busy_ns).tolist():
            accounts[at][categories[code]] = int(busy_ns[at])
    for account, idle_ns in zip(accounts, idle.tolist(), strict=True):
        account[Scope.IDLE, BreakdownCategory.IDLE, None] = idle_ns
    return accounts


def time_before(start: Ints, end: Ints, times: Ints) -> Ints:
    """Return the total time of spans before each time."""
    # start: begins of the spans, in order, without overlaps
    if not len(start):
        return np.zeros(len(times), dtype=np.int64)
    begun = np.searchsorted(start, times)
    lengths = np.concatenate([[0], np.cumsum(end - start)])
    last = np.maximum(begun - 1, 0)
    still_open = np.where(begun > 0, np.maximum(end[last] - times, 0), 0)
    return lengths[begun] - still_open


def _in_order(entry: tuple[_Category, int]) -> tuple[str, str, str]:
    scope, category, level = entry[0]
    return scope, category, level or ""


def _categories(launches: Launches, corrected: lookups.Flags) -> tuple[Ints, tuple[_Category, ...]]:
    columns = (launches.level, launches.gap, launches.kind, launches.scope)
    launch_category = numbered([*(column.codes for column in columns), corrected])
    category_codes: dict[_Category, int] = {}
    every = (_category(launches, corrected, row) for row in first_rows(launch_category).tolist())
    numbers = [category_codes.setdefault(each, len(category_codes)) for each in every]
    return np.array(numbers, dtype=np.int64)[launch_category], tuple(category_codes)


def _category(launches: Launches, corrected: lookups.Flags, launch: int) -> _Category:
    level, gap = launches.level[launch], launches.gap[launch]
    is_collective = launches.kind[launch] == LaunchKind.COMMUNICATION
    scope = Scope.COMMUNICATION if is_collective else launches.scope[launch]
    if level == Level.NONE:
        return scope, gap, level
    if level == Level.OP:
        return scope, gap or BreakdownCategory.OP, level
    category = BreakdownCategory.PHASE_CORRECTED if corrected[launch] else BreakdownCategory.LINE
    return scope, category, level
