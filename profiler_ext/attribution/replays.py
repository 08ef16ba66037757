"""Owns the second rule for replays: what a CUDA graph runs, it runs again, in the same order.

In a replay a library's kernels have no operator, and counts alone place them. Where one replay
of a graph ran the kernels of another in another order, or lacks some, events were lost or
changed places, and which of the two is whole nobody can tell.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from profiler_ext.attribution.calls import GraphCall
from profiler_ext.attribution.invocations import Invocation
from profiler_ext.attribution.matching import Match
from profiler_ext.kineto import classify
from profiler_ext.records import GapReason

_Names = tuple[str, ...]


def without_disputes(found: Sequence[Invocation]) -> tuple[Invocation, ...]:
    """Make gaps of the library launches of replays that another replay contradicts.

    Args:
        found: the calls of compiled graphs and their matches.
    """
    ran: dict[int | None, set[_Names]] = defaultdict(set)
    for each in found:
        ran[each.graph].add(_replayed(each.call))
    disputed = {graph: _disputed(names) for graph, names in ran.items() if len(names) > 1}
    return tuple(
        _undecided(each) if _replayed(each.call) in disputed.get(each.graph, ()) else each
        for each in found
    )


def _replayed(call: GraphCall) -> _Names:
    return tuple(unit.name for unit in call.units if unit.replayed)


def _disputed(every: Iterable[_Names]) -> set[_Names]:
    known = [names for names in every if names]
    return {one for one in known if any(_contradict(one, other) for other in known)}


def _contradict(one: _Names, other: _Names) -> bool:
    """Tell whether one has just what the other has, less some, or in another order.

    A graph that was recorded for another size runs other kernels.
    """
    short, long = sorted((one, other), key=len)
    return one != other and not Counter(short) - Counter(long)


def _undecided(found: Invocation) -> Invocation:
    gap = Match(gap=GapReason.ALIGNMENT_MISMATCH)
    pairs = zip(found.call.units, found.matches, strict=True)
    matches = (
        gap if unit.replayed and not classify.is_generated_kernel(unit.name) else match
        for unit, match in pairs
    )
    return replace(found, matches=tuple(matches))
