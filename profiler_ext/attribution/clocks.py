"""Owns how the clocks of several ranks are laid over each other.

No rank can leave an all-reduce before every rank has come, so where two traces tell the same
collective its end is one moment, whatever their hosts' clocks say. It is the same by its process
group and its number there; where its torch gave it no number, by its place among those of
the group in the step, if both ranks have as many. Where they tell none, the wall clocks stand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from profiler_ext.kineto.collectives import collective_of
from profiler_ext.records import Analysis, LaunchKind

Ends = Mapping[Hashable, int]


@dataclass(frozen=True, slots=True)
class Clock:
    """How one rank's clock was set.

    Attributes:
        rank: the rank.
        shift_ns: what is added to its wall clock.
        collectives: how many collectives told the shift; 0 where the wall clock stands.
    """

    rank: int
    shift_ns: int
    collectives: int


def set_clocks(analyses: Sequence[Analysis]) -> tuple[Clock, ...]:
    """Find what to add to the clock of each rank.

    Args:
        analyses: one for each rank; the first one's clock stands.

    Returns:
        A clock for each, in the same order.
    """
    ends = [collective_ends(analysis) for analysis in analyses]
    moments = dict(ends[0]) if ends else {}
    clocks = {0: Clock(analyses[0].recording.settings.rank, 0, 0)} if analyses else {}
    while (nearest := _most_shared(ends, moments, set(clocks))) is not None:
        shared = [moments[each] - ends[nearest][each] for each in ends[nearest] if each in moments]
        rank = analyses[nearest].recording.settings.rank
        clocks[nearest] = Clock(rank, round(median(shared)), len(shared))
        moments = {e: end + clocks[nearest].shift_ns for e, end in ends[nearest].items()} | moments
    rest = ((at, Clock(a.recording.settings.rank, 0, 0)) for at, a in enumerate(analyses))
    return tuple(clocks.get(at, clock) for at, clock in rest)


def _most_shared(ends: Sequence[Ends], moments: Ends, done: set[int]) -> int | None:
    """Return the rank that shares most collectives with those whose clocks are set."""
    counts = {at: len(own.keys() & moments.keys()) for at, own in enumerate(ends) if at not in done}
    best = max(counts, key=lambda at: counts[at], default=None)
    return best if best is not None and counts[best] else None


def collective_ends(analysis: Analysis) -> dict[Hashable, int]:
    """Return when each collective ended on this rank's wall clock, by what is the same on all."""
    launches, base_ns = analysis.launches, analysis.recording.trace.base_ns
    ends = launches.start_ns + launches.duration_ns + base_ns
    found = left_together(analysis).items()
    return {each: int(ends[shared.launches].max()) for each, shared in found}


@dataclass(frozen=True, slots=True)
class Shared:
    """A collective that no rank can leave before every rank has come, on one rank.

    Attributes:
        launches: rows of its launches.
        ranks: how many ranks its group has; ``None`` where that is not told.
    """

    launches: list[int]
    ranks: int | None


def left_together(analysis: Analysis) -> dict[Hashable, Shared]:
    """Return the collectives of a rank that are left together, by what is the same on all ranks.

    Args:
        analysis: what attribution found on that rank.
    """
    trace, launches = analysis.recording.trace, analysis.launches
    found: dict[Hashable, Shared] = {}
    unnumbered = defaultdict[tuple[str, int], list[tuple[Hashable, Shared]]](list)
    for launch in np.flatnonzero(launches.kind.where(LaunchKind.COMMUNICATION)).tolist():
        collective = collective_of(trace, launches, launch)
        if collective is None or not collective.is_left_together:
            continue
        if collective.sequence is not None:
            found.setdefault(collective, Shared([], collective.ranks)).launches.append(launch)
        elif (step := launches.step[launch]) is not np.ma.masked:
            what = (collective.name, collective.elements)
            own = Shared([launch], collective.ranks)
            unnumbered[collective.group, int(step)].append((what, own))
    return found | _by_place(unnumbered)


def _by_place(
    unnumbered: Mapping[tuple[str, int], Sequence[tuple[Hashable, Shared]]],
) -> dict[Hashable, Shared]:
    """Name collectives by their place among those of a group in a step, and by all of these."""
    return {
        (*of, tuple(what for what, _ in each), place): own
        for of, each in unnumbered.items()
        for place, (_, own) in enumerate(each)
    }
