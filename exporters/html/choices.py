"""Owns which ranks and steps report.html lets one choose: all of few, of many the telling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from profiler_ext.records import Analysis

MAX_RANKS = 8
MAX_STEPS = 32
_MIN_STEPS = 4
_MAX_NUMBERS = 200_000


def rank_number(analysis: Analysis) -> int:
    """Return the rank of an analysis."""
    return analysis.recording.settings.rank


def step_without_communication_ns(analysis: Analysis) -> float:
    """Return a step's mean wall time without exposed communication: what the rank itself takes.

    Ranks that communicate take as long as the slowest, so wall time does not tell them apart.
    """
    wall = sum(step.wall_ns for step in analysis.steps)
    in_steps = ~np.ma.getmaskarray(analysis.launches.step)[analysis.communication.launch]
    exposed = int(analysis.communication.exposed_ns[in_steps].sum())
    return (wall - exposed) / max(len(analysis.steps), 1)


def selectable_ranks(analyses: Sequence[Analysis]) -> dict[int, str]:
    """Return the ranks that can be chosen, each with what tells it apart.

    Args:
        analyses: one for each rank.

    Returns:
        Rank to ``slowest``, ``median``, ``fastest`` or nothing, by the time that it takes itself.
    """
    times = {rank_number(analysis): step_without_communication_ns(analysis) for analysis in analyses}
    return _select_notable(times, MAX_RANKS)


def selectable_steps(analyses: Sequence[Analysis], numbers: int) -> dict[int, str]:
    """Return the steps that can be chosen, each with what tells it apart.

    Args:
        analyses: one for each rank.
        numbers: how many numbers the page carries for one step of all ranks; it bounds the steps.

    Returns:
        Step to ``slowest``, ``median``, ``fastest`` or nothing, by wall time.
    """
    walls: dict[int, int] = {}
    for step in (step for analysis in analyses for step in analysis.steps):
        walls[step.number] = max(walls.get(step.number, 0), step.wall_ns)
    room = _MAX_NUMBERS // max(numbers, 1)
    return _select_notable(walls, min(MAX_STEPS, max(room, _MIN_STEPS)))


def _select_notable(times: Mapping[int, float], most: int) -> dict[int, str]:
    """Choose of too many the slowest half, and the median and the fastest."""
    ordered = sorted(times, key=lambda key: (-times[key], key))
    names = _extremes(ordered)
    chosen = ordered if len(ordered) <= most else [*ordered[: most - 2], *names]
    return {key: names.get(key, "") for key in sorted(set(chosen))}


def _extremes(ordered: Sequence[int]) -> dict[int, str]:
    """Name the first, the middle and the last; of one or two nothing is said of the middle."""
    if len(ordered) < 2:
        return {}
    middle = {ordered[len(ordered) // 2]: "median"} if len(ordered) > 2 else {}
    return {**middle, ordered[0]: "slowest", ordered[-1]: "fastest"}
