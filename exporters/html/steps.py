"""Owns the steps of report.html: a column for each, or, where they are many, for some together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profiler_ext.exporters.html.choices import rank_number, selectable_ranks
from profiler_ext.records import Analysis, Ints, Phase, Scope

MAX_COLUMNS = 300


@dataclass(frozen=True, slots=True)
class StepColumn:
    """A step, or the mean of some that follow each other.

    Attributes:
        first: number of the first step.
        last: number of the last step.
        walls_ns: wall time of each step, of all devices.
        busy_ns: how much of it devices were busy, in the mean.
        phases_ns: device time by phase, in the mean; overlapping launches count each.
    """

    first: int
    last: int
    walls_ns: tuple[int, ...]
    busy_ns: int
    phases_ns: tuple[int, ...]

    @property
    def steps(self) -> int:
        """How many steps it is; numbers may be left out between the first and the last."""
        return len(self.walls_ns)

    @property
    def wall_ns(self) -> int:
        """Wall time, in the mean."""
        return round(sum(self.walls_ns) / self.steps)


def step_columns(analyses: Sequence[Analysis]) -> dict[int, list[StepColumn]]:
    """Return the columns of each rank that can be chosen.

    Args:
        analyses: one for each rank.
    """
    shown = selectable_ranks(analyses)
    return {rank_number(each): columns_of(each) for each in analyses if rank_number(each) in shown}


def columns_of(analysis: Analysis) -> list[StepColumn]:
    """Return a column for each step, or of so many that each holds as many as the others.

    Args:
        analysis: an analysis; its steps of one number are one.
    """
    numbers = list(dict.fromkeys(step.number for step in analysis.steps))
    if not numbers:
        return []
    times = _times(analysis, {number: at for at, number in enumerate(numbers)})
    together = -(-len(numbers) // MAX_COLUMNS)
    starts = range(0, len(numbers), together)
    return [_column(numbers[at : at + together], times[at : at + together]) for at in starts]


def _column(numbers: Sequence[int], times: Ints) -> StepColumn:
    _, busy, *phases = np.rint(times.mean(axis=0)).astype(np.int64).tolist()
    return StepColumn(numbers[0], numbers[-1], tuple(times[:, 0].tolist()), busy, tuple(phases))


def _times(analysis: Analysis, rows: Mapping[int, int]) -> Ints:
    """Return for each step its wall and busy time, and its device time by phase."""
    times = np.zeros((len(rows), 2 + len(Phase)), np.int64)
    for line in analysis.ledger:
        if line.step in rows:
            times[rows[line.step], 0] += line.duration_ns
            times[rows[line.step], 1] += line.duration_ns * (line.scope != Scope.IDLE)
    np.add.at(times, _cells(analysis, rows), _profiled_ns(analysis))
    return times


def _cells(analysis: Analysis, rows: Mapping[int, int]) -> tuple[Ints, Ints]:
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
