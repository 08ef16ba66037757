"""Groups of launches that one change of the program would merge: whose launches a step waits for.

An optimizer that updates parameters one by one, a Python loop over tensors, a loop within a
forward. Each group's saving is that of a replay in which its launches are merged, on top of the
groups with a larger one, so that no time is saved twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from statistics import median_low

import numpy as np

from profiler_ext.findings.critical_path import NO_ROW, Remedied
from profiler_ext.findings.facts import CannotJudge, Facts, location_of, median_per_step
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, Location
from profiler_ext.findings.rule import Candidate
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Interned, Ints, flag_rows
from profiler_ext.records.vocabulary import Phase, Scope

_MIN_OPTIMIZER_LAUNCHES = 32
_MIN_CALLS = 8  # fewer calls of a line in one forward are no loop
_MIN_TENSORS = 16
# A loop's body has fewer lines; a model that runs several times has more
_MAX_BODY_LAUNCHES = 48
_FREQUENT = 4  # an op of each tensor is at most so much rarer than the one called most
_MERGED_OPS = ("aten::_foreach_", "aten::_fused_")


class Kind(Enum):
    """Whose launches a group has."""

    OPTIMIZER = auto()
    TENSORS = auto()
    CALLS = auto()


@dataclass(frozen=True, slots=True)
class LaunchGroup:
    """Launches that one change would merge."""

    kind: Kind
    location: Location  # the line with most of them
    launches: Ints
    count: int  # of parameters, tensors or calls a step
    cpu_kept: float
    busy_kept: float
    saving_ns: int = 0

    def idle(self, facts: Facts) -> Ints:
        """Return the pieces of idle time that its launches ended."""
        return facts.idle_before(self.launches)


def launch_groups(facts: Facts) -> tuple[LaunchGroup, ...]:
    """Return the groups of a session, the largest saving first; they are computed once."""
    return facts.analysis.derived.once("launch groups", lambda: tuple(_replayed(facts)))


def candidates_of(
    facts: Facts, kind: Kind, make: Callable[[LaunchGroup], tuple[str, str]]
) -> Iterable[Candidate] | CannotJudge:
    """Return a candidate for each group of a kind, with the summary and remedy made for it."""
    if not facts.on_device:
        return CannotJudge("the launches ran on the CPU, which waits for no launch")
    groups = [each for each in launch_groups(facts) if each.kind is kind and each.saving_ns]
    return [_candidate(facts, each, *make(each)) for each in groups]


def _candidate(facts: Facts, group: LaunchGroup, summary: str, remedy: str) -> Candidate:
    busy_ns = facts.median_per_step(group.launches, facts.launches.duration_ns[group.launches])
    idle = group.idle(facts)
    idle_ns = median_per_step(facts, idle)
    return Candidate(
        summary=summary,
        est_saving_ns=group.saving_ns,
        busy_ns=int((1 - group.busy_kept) * busy_ns),
        confidence=Confidence.ESTIMATED,
        remedy=remedy,
        location=group.location,
        evidence=(
            Figure("launches a step", facts.launches_per_step(group.launches)),
            Figure("they take", busy_ns, FigureUnit.NS),
            Figure("idle before them, as recorded", idle_ns, FigureUnit.NS),
        ),
        launches=group.launches,
        idle=idle,
    )


def _replayed(facts: Facts) -> Iterator[LaunchGroup]:
    """Yield the groups with what each saves on top of those before it, the largest first."""
    replay, slowdown = facts.replay, facts.training.slowdown
    if replay is None:
        return
    left = list(_groups(facts))
    now, now_ns = replay.unchanged, max(replay.step_ns(slowdown), facts.busy_ns)
    while left:
        after = [now.joined(remedied(facts, each)) for each in left]
        took_ns = [replay.step_ns(slowdown, each) for each in after]
        best = int(np.argmin(took_ns))
        yield replace(left.pop(best), saving_ns=max(now_ns - took_ns[best], 0))
        now, now_ns = after[best], min(now_ns, took_ns[best])


def remedied(facts: Facts, group: LaunchGroup) -> Remedied:
    """Return what is left once a group's launches are merged."""
    cpu, busy = np.ones(len(facts.launches)), np.ones(len(facts.launches))
    cpu[group.launches], busy[group.launches] = group.cpu_kept, group.busy_kept
    return Remedied(cpu, busy)


def _groups(facts: Facts) -> Iterator[LaunchGroup]:
    launches = facts.launches
    eager = facts.in_steps(launches.scope.where(Scope.EAGER))
    yield from _optimizer(facts, np.flatnonzero(eager & launches.phase.where(Phase.OPTIMIZER)))
    yield from _tensor_loops(facts, np.flatnonzero(eager & launches.phase.where(Phase.OTHER)))
    yield from _call_loops(facts, np.flatnonzero(eager))


def _optimizer(facts: Facts, launches: Ints) -> Iterator[LaunchGroup]:
    """Yield the launches of an optimizer's ops of one parameter each, and all beside them."""
    ops = _ops(facts, launches)
    single = launches[~flag_rows(ops, lambda name: name.startswith(_MERGED_OPS))]
    if facts.launches_per_step(single) >= _MIN_OPTIMIZER_LAUNCHES:
        count = _usual_count(facts, single)
        yield LaunchGroup(Kind.OPTIMIZER, _busiest(facts, single), single, count, 0.1, 0.35)


def _tensor_loops(facts: Facts, launches: Ints) -> Iterator[LaunchGroup]:
    """Yield the launches of each function whose lines launch the same for many tensors."""
    for own in _by_function(facts, launches):
        if facts.launches_per_step(own) >= _MIN_TENSORS:
            count = _usual_count(facts, own)
            if count >= _MIN_TENSORS:
                yield LaunchGroup(Kind.TENSORS, _busiest(facts, own), own, count, 0.1, 0.5)


def _call_loops(facts: Facts, launches: Ints) -> Iterator[LaunchGroup]:
    """Yield the launches of lines that one forward calls many times, and those of their backward.

    In a loop a line is called again and no backward, nor many other lines, lie in between.
    """
    place, ops = facts.main_place[launches], facts.launches.op_event[launches].filled(NO_ROW)
    is_forward = facts.launches.phase.where(Phase.FORWARD)[launches]
    run = np.cumsum(~is_forward)  # of launches of one forward it is the same
    by_line: dict[tuple[int, int], set[int]] = {}
    rows = zip(place[is_forward], run[is_forward], ops[is_forward], strict=True)
    for at, of_run, op in rows:
        by_line.setdefault((int(at), int(of_run)), set()).add(int(op))
    often: dict[int, list[int]] = {}
    for (at, _), calls in by_line.items():
        if len(calls) >= _MIN_CALLS:
            often.setdefault(at, []).append(len(calls))
    loops: dict[tuple[str | None, str | None, str | None], list[int]] = {}
    for at in often:
        where = facts.analysis.places[at]
        if where.line is not None:
            loops.setdefault((where.file, where.function, where.module_class), []).append(at)
    for own in loops.values():
        yield from _call_loop(facts, launches, own, [max(often[at]) for at in own])


def _call_loop(
    facts: Facts, launches: Ints, places: list[int], counts: list[int]
) -> Iterator[LaunchGroup]:
    lines = {_line(facts.analysis.places[at]) for at in places}
    chosen = [_line(facts.place(each)) in lines for each in launches.tolist()]
    own = launches[np.array(chosen, np.bool_)]
    count = median_low(counts)
    if facts.launches_per_step(own) <= _MAX_BODY_LAUNCHES * count:
        yield LaunchGroup(Kind.CALLS, _busiest(facts, own), own, count, 1 / count, 0.5)


def _line(place: Place) -> tuple[str | None, int | None, str | None]:
    return place.file, place.line, place.module


def _by_function(facts: Facts, launches: Ints) -> Iterator[Ints]:
    """Yield the launches of each function, of those with a line."""
    functions: dict[tuple[str | None, str | None], list[int]] = {}
    for launch in launches.tolist():
        place = facts.place(launch)
        if place.line is not None:
            functions.setdefault((place.file, place.function), []).append(launch)
    return (np.array(own, np.int64) for own in functions.values())


def _busiest(facts: Facts, launches: Ints) -> Location:
    """Return the line with most of the launches."""
    places, counts = np.unique(facts.main_place[launches], return_counts=True)
    return location_of(facts.analysis.places[int(places[counts.argmax()])])


def _ops(facts: Facts, launches: Ints) -> Interned:
    """Return the name of the op that launched each; ``""`` where it is unknown."""
    name, rows = facts.analysis.recording.trace.events.name, facts.launches.op_event[launches]
    strings = (*name.strings, "")
    codes = np.where(np.ma.getmaskarray(rows), len(name.strings), name.codes[rows.filled(0)])
    return Interned(codes.astype(np.int32), strings)


def _usual_count(facts: Facts, launches: Ints) -> int:
    """Return for how many tensors a step runs these: its least frequent op, of frequent ones."""
    counts = np.bincount(_ops(facts, launches).codes)
    often = counts[counts * _FREQUENT >= counts.max(initial=0)]
    return int(often[often > 0].min(initial=0)) // len(facts.analysis.steps)
