"""Owns the filters of the tables: which launches and shares a step, rank and phase choose."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profiler_ext.errors import UsageError
from profiler_ext.records import Analysis, Phase

Rows = npt.NDArray[np.bool_]
PHASES = tuple(Phase)


def chosen_launches(analysis: Analysis, step: int | None, rank: int | None) -> Rows:
    """Return which launches belong to the step and rank; ``None`` chooses all.

    Raises:
        UsageError: The step was not profiled.
    """
    count = len(analysis.launches)
    if rank is not None and rank != analysis.recording.settings.rank:
        return np.zeros(count, np.bool_)
    if step is None:
        return np.ones(count, np.bool_)
    require_step(analysis, step)
    return np.ma.filled(analysis.launches.step == step, False).astype(np.bool_)


def profiled_launches(analysis: Analysis, step: int | None, rank: int | None) -> Rows:
    """Return the chosen launches that belong to a profiled step."""
    within = ~np.ma.getmaskarray(analysis.launches.step)
    return chosen_launches(analysis, step, rank) & within


def chosen_shares(analysis: Analysis, launches: Rows, phase: str | None) -> Rows:
    """Return which shares are of the chosen launches and of the phase; ``None`` chooses all.

    Raises:
        UsageError: There is no such phase.
    """
    of_launch = launches[analysis.shares.launch]
    if phase is None:
        return of_launch
    require_phase(phase)
    of_place = np.array([place.phase == phase for place in analysis.places], np.bool_)
    return of_launch & of_place[analysis.shares.place]


def count_steps(analysis: Analysis, step: int | None) -> int:
    """Return over how many steps a table sums."""
    return len(analysis.steps) if step is None else 1


def require_step(analysis: Analysis, step: int) -> None:
    """Raise unless the step was profiled.

    Raises:
        UsageError: The step was not profiled.
    """
    numbers = [each.number for each in analysis.steps]
    if step not in numbers:
        listed = ", ".join(map(str, numbers)) or "none"
        raise UsageError(f"step {step} was not profiled; ask for one of the steps: {listed}")


def require_phase(phase: str) -> None:
    """Raise unless there is such a phase.

    Raises:
        UsageError: There is no such phase.
    """
    if phase not in PHASES:
        raise UsageError(f"there is no phase {phase!r}; ask for one of {', '.join(PHASES)}")
