"""The loops of a forward: lines that it runs many times, one time soon after the other.

A loop has all that its rounds launch: the lines of the functions that it calls, and what it runs
between them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from profiler_ext.findings.facts import Facts
from profiler_ext.findings.finding import Location
from profiler_ext.findings.groups import busiest, least_frequent, ops_of
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints
from profiler_ext.records.lineage import Frame
from profiler_ext.records.vocabulary import Phase, Scope

MIN_CALLS: Final = 8  # fewer calls of a line in one forward are no loop
# A loop's body has fewer lines; a model that runs several times has more
MAX_BODY_LAUNCHES: Final = 48

_PRODUCT = re.compile(r"@|\b(?:matmul|einsum|linear|(?:add|b|badd)?b?mm)\(")
_RETURNS = re.compile(r"\s*return\b")
_COMPREHENDS = re.compile(r"\bfor\b|\bmap\(")

Line = tuple[str | None, int | None, str | None]
Function = tuple[str | None, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Run:
    """A place that one forward runs so many times."""

    place: Place
    count: int
    first: int  # its first launch, by the number of launches of forwards before it
    last: int

    @property
    def is_dense(self) -> bool:
        """Whether little else is launched from one time to the next."""
        return self.last - self.first <= MAX_BODY_LAUNCHES * self.count


def line_of(place: Place) -> Line:
    """Return the line of a place, and the module that runs it."""
    return place.file, place.line, place.module


def function_of(place: Place) -> Function:
    """Return the function of a place."""
    return place.file, place.function, place.module_class


def loops_of(runs: Iterable[Run]) -> Iterator[list[Run]]:
    """Yield the runs of each loop, those of the function with most calls in it first."""
    functions: dict[Function, list[Run]] = {}
    others: list[Run] = []
    for each in runs:
        if each.is_dense:
            functions.setdefault(function_of(each.place), []).append(each)
        else:
            others.append(each)
    loops: list[list[Run]] = []
    for own in sorted(functions.values(), key=lambda some: -max(each.count for each in some)):
        joined = [loop for loop in loops if _overlap(loop, own)]
        loops = [loop for loop in loops if not any(loop is each for each in joined)]
        loops.append([each for loop in joined for each in loop] + own)
    # With many launches from one time to the next a line alone is no loop in a model, but one
    # around it: it may be of the rounds of another one
    for each in others:
        around = next((loop for loop in loops if _overlap(loop, [each])), None)
        if around is not None:
            around.append(each)
    yield from loops


def _overlap(some: list[Run], others: list[Run]) -> bool:
    """Tell whether most of a run, of the shorter one, is within another."""
    first, last = np.array([(each.first, each.last) for each in some]).T[:, :, None]
    begin, end = np.array([(each.first, each.last) for each in others]).T
    both = np.minimum(last, end) - np.maximum(first, begin)
    return bool((2 * both > np.minimum(last - first, end - begin)).any())


def repeated(facts: Facts, launches: Ints) -> list[Run]:
    """Return the places that one forward runs often."""
    # What needs no gradient, a mask say, is of no phase, and may be between a loop's others
    phase = facts.launches.phase
    is_forward = phase.where(Phase.FORWARD)[launches]
    is_other = ~is_forward & ~phase.where(Phase.OTHER)[launches]
    is_other |= np.diff(facts.launches.step.filled(-1)[launches], prepend=-1) != 0
    forward, run = launches[is_forward], np.cumsum(is_other)[is_forward]
    place, ops = facts.main_place[forward], ops_of(facts, forward).codes
    is_compiled = facts.launches.scope.where(Scope.COMPILED)[forward]
    # In a graph each op of each round has a place of its own; called again it is no other round
    event = np.where(is_compiled, place, facts.called_ops(forward))
    place = np.where(is_compiled, _of_lines(facts, place), place)
    places = facts.analysis.places
    calls: dict[tuple[int, int], dict[int, set[int]]] = {}
    spans: dict[tuple[int, int], tuple[int, int]] = {}
    # With four products in it a line is no loop: its rounds are those of all its ops
    of_lines: dict[tuple[Line, int], dict[int, set[int]]] = {}
    rows = zip(*(column.tolist() for column in (place, run, ops, event)), strict=True)
    for position, (at, of_run, op, of) in enumerate(rows):
        calls.setdefault((at, of_run), {}).setdefault(op, set()).add(of)
        of_lines.setdefault((line_of(places[at]), of_run), {}).setdefault(op, set()).add(of)
        spans[at, of_run] = spans.get((at, of_run), (position, 0))[0], position
    runs: list[Run] = []
    for (at, of_run), by_op in calls.items():
        where, of_line = places[at], of_lines[line_of(places[at]), of_run]
        count = min(least_frequent(_lengths(by_op)), least_frequent(_lengths(of_line)))
        if products := _products_in(where):
            count = int(_lengths(by_op).sum()) // products
        if count >= MIN_CALLS and where.line is not None:
            runs.append(Run(where, count, *spans[at, of_run]))
    return runs


def _of_lines(facts: Facts, places: Ints) -> Ints:
    """Return one place for each line, for those of launches."""
    first: dict[Line, int] = {}
    used, of_launch = np.unique(places, return_inverse=True)
    known = ((at, facts.analysis.places[at]) for at in used.tolist())
    one = [at if at < 0 else first.setdefault(line_of(place), at) for at, place in known]
    result: Ints = np.array(one, np.int64)[of_launch]
    return result


def _products_in(place: Place) -> int:
    """Return how many products a round of a line of a compiled graph has, by its text; else 0."""
    is_of_graph = (place.aten_op or "").endswith(".default")
    return max(len(_PRODUCT.findall(place.code or "")), 1) if is_of_graph else 0


def _lengths(by_op: dict[int, set[int]]) -> Ints:
    return np.array([len(each) for each in by_op.values()], np.int64)


def lines_of_views(facts: Facts, launches: Ints) -> dict[Function, dict[Line, int]]:
    """Return lines that launch in the backward alone, with how often each step does.

    Views launch nothing, and their gradients are kernels: sums for ``expand``.
    """
    is_behind = facts.launches.phase.where(Phase.BACKWARD)[launches]
    places, of_launch = facts.analysis.places, facts.main_place[launches]
    ahead = {line_of(places[at]) for at in np.unique(of_launch[~is_behind]).tolist() if at >= 0}
    at, counts = np.unique(of_launch[is_behind & (of_launch >= 0)], return_counts=True)
    lines: dict[Function, dict[Line, int]] = {}
    for place, count in zip((places[each] for each in at.tolist()), counts.tolist(), strict=True):
        if place.line is not None and line_of(place) not in ahead:
            of_function = lines.setdefault(function_of(place), {})
            known = of_function.get(line_of(place), 0)
            of_function[line_of(place)] = max(known, count // len(facts.analysis.steps))
    return lines


def functions_in(facts: Facts, launches: Ints) -> set[tuple[str | None, str | None]]:
    """Return the functions that launch these."""
    places = (facts.analysis.places[at] for at in np.unique(facts.main_place[launches]).tolist())
    return {(each.file, each.function) for each in places}


def line_of_loop(facts: Facts, launches: Ints) -> Location:
    """Return the line that most launches come from, in the innermost function around them all.

    A line that returns ends a round: what calls its function runs the loop.
    """
    places = facts.analysis.places
    at, counts = np.unique(facts.main_place[launches], return_counts=True)
    stacks = [places[each].stack for each in at.tolist()]
    depth = 0
    for frames in zip(*stacks, strict=False):
        if len({(each.file, each.function) for each in frames}) > 1:
            break
        depth += 1
        if len({each.line for each in frames}) > 1:
            break
    lines: Counter[Frame] = Counter()
    for stack, count in zip(stacks, counts.tolist(), strict=True):
        if depth:
            lines[stack[depth - 1]] += count
    if not lines:
        return busiest(facts, launches)
    frame = lines.most_common(1)[0][0]
    while depth > 1 and _returns(frame.code or ""):
        depth -= 1
        frame = stacks[0][depth - 1]
    return Location(frame.file, frame.line, frame.code)


def _returns(code: str) -> bool:
    """Tell whether a line returns what it computes once: no comprehension, which is a loop."""
    return _RETURNS.match(code) is not None and _COMPREHENDS.search(code) is None
