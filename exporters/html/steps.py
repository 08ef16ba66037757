"""Owns the steps of report.html: a column for each, or, where they are many, for some together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.exporters.html.choices import rank_of, shown_ranks
from profiler_ext.records import Analysis, Ints, Phase, Scope

MOST_COLUMNS = 300


@dataclass(frozen=True, slots=True)
class StepColumn:
    """A step, or the mean of consecutive ones.

    Attributes:
        first: number of the first step.
        last: number of the last step.
        wall_ns: wall time, of all devices.
        least_ns: the least wall time.
        most_ns: the most wall time.
        busy_ns: how much of it devices were busy.
        phases_ns: device time by phase; overlapping launches count each.
    """

    first: int
    last: int
    wall_ns: int
    least_ns: int
    most_ns: int
    busy_ns: int
    phases_ns: tuple[int, ...]


def step_columns(analyses: Sequence[Analysis]) -> dict[int, list[StepColumn]]:
    """Return the columns of each rank that can be chosen.

    Args:
        analyses: one for each rank.
    """
    shown = shown_ranks(analyses)
    return {rank_of(each): columns_of(each) for each in analyses if rank_of(each) in shown}


def columns_of(analysis: Analysis) -> list[StepColumn]:
    """Return a column for each step, or of so many that each holds as many as the others.

    Args:
        analysis: an analysis.
    """
    if not analysis.steps:
        return []
    times = _times(analysis)
    together = -(-len(times) // MOST_COLUMNS)
    starts = range(0, len(times), together)
    return [_column(analysis, times, at, min(at + together, len(times))) for at in starts]


def _column(analysis: Analysis, times: Ints, start: int, end: int) -> StepColumn:
    chosen = times[start:end]
    wall, busy, *phases = np.rint(chosen.mean(axis=0)).astype(np.int64).tolist()
    least, most = int(chosen[:, 0].min()), int(chosen[:, 0].max())
    first, last = analysis.steps[start].number, analysis.steps[end - 1].number
    return StepColumn(first, last, wall, least, most, busy, tuple(phases))


def _times(analysis: Analysis) -> Ints:
    """Return for each step its wall and busy time, and its device time by phase."""
    rows = {step.number: at for at, step in enumerate(analysis.steps)}
    times = np.zeros((len(rows), 2 + len(Phase)), np.int64)
    for line in analysis.ledger:
        if line.step in rows:
            times[rows[line.step], 0] += line.duration_ns
            times[rows[line.step], 1] += line.duration_ns * (line.scope != Scope.IDLE)
    np.add.at(times, _cells(analysis, rows), _profiled_ns(analysis))
    return times


def _cells(analysis: Analysis, rows: dict[int, int]) -> tuple[Ints, Ints]:
    """Return the row and the column of each share of a profiled launch."""
    launch = analysis.shares.launch[_profiled(analysis)]
    steps = np.ma.getdata(analysis.launches.step)[launch]
    numbers, codes = np.unique(steps, return_inverse=True)
    of_number = np.array([rows[number] for number in numbers.tolist()], np.int64)
    phases = np.array([list(Phase).index(place.phase) for place in analysis.places], np.int64)
    return of_number[codes], 2 + phases[analysis.shares.place[_profiled(analysis)]]


def _profiled_ns(analysis: Analysis) -> Ints:
    return analysis.shares.duration_ns[_profiled(analysis)]


def _profiled(analysis: Analysis) -> Ints:
    within = ~np.ma.getmaskarray(analysis.launches.step)
    return np.flatnonzero(within[analysis.shares.launch])
