"""Launches that compute a tensor again which does not change from call to call."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from functools import partial

import numpy as np

from profiler_ext.findings.code_of_lines import (
    assigned,
    calls_of_constants,
    constant_lines,
    lines_of_weights,
    passes_on,
)
from profiler_ext.findings.facts import Facts, location_of
from profiler_ext.findings.finding import NOWHERE, Location
from profiler_ext.findings.groups import (
    OUTSIDE_BACKWARD,
    Kind,
    LaunchGroup,
    busiest,
    placed,
    usual_count,
)
from profiler_ext.findings.lines_of_functions import Function, draws, functions_of, launches_under
from profiler_ext.records.analysis import Place
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase

_MASK = re.compile(r"\bcreate_(?:block_|nested_block_)?mask\(")
_MIN_LAYERS = 4
WEIGHTS = "weights"
_LEARNS = (Phase.BACKWARD, Phase.RECOMPUTE, Phase.GRADIENT_ACCUMULATION, Phase.OPTIMIZER)


def constants(facts: Facts, launches: Ints) -> Iterator[LaunchGroup]:
    """Yield the launches of lines that compute what does not change, by function or call."""
    lines: dict[tuple[str | None, str | None], dict[int, str]] = {}
    for place in (facts.analysis.places[at] for at in np.unique(facts.main_place[launches])):
        if place.line is not None and place.code and place.phase in OUTSIDE_BACKWARD:
            lines.setdefault((place.file, place.function), {})[place.line] = place.code
    for (file, function), codes in lines.items():
        constant = constant_lines(codes)
        if constant:
            own = launches[placed(facts, launches, partial(_is_in, file, function, constant))]
            count = usual_count(facts, own)
            if count:
                yield LaunchGroup(Kind.CONSTANTS, busiest(facts, own), own, count, 0.0, 0.0)
    if not facts.launches.phase.where(*_LEARNS).any():
        yield from _weights(facts, launches, lines)
    yield from _calls(facts, launches)
    yield from _masks(facts, launches)


def _weights(
    facts: Facts, launches: Ints, functions: Mapping[tuple[str | None, str | None], dict[int, str]]
) -> Iterator[LaunchGroup]:
    """Yield the launches of lines that compute with learned values alone, where none is learned."""
    is_other = draws(facts) | facts.named(lambda name: "Memcpy HtoD" in name)
    calling = functions_of(facts)
    for file, function in dict.fromkeys([*functions, *calling]):
        called = calling.get((file or "", function or ""), {})
        codes = functions.get((file, function), {}) | called
        of_weights = lines_of_weights(codes, function or "")
        under = [launches_under(facts, (file or "", function or ""), each) for each in of_weights]
        is_at = placed(facts, launches, partial(_is_in, file, function, of_weights))
        own = np.intersect1d(launches, np.concatenate([launches[is_at], *under]))
        count = usual_count(facts, own) if len(own) else 0
        if count and not is_other[own].any() and _are_of_modules(facts, own):
            where = location_of(facts.place(facts.longest(own)))
            yield LaunchGroup(Kind.CONSTANTS, where, own, count, 0.0, 0.0, what=WEIGHTS)


def _calls(facts: Facts, launches: Ints) -> Iterator[LaunchGroup]:
    """Yield the launches of calls whose arguments do not change from one to the next."""
    learns = facts.launches.phase.where(*_LEARNS).any()
    is_drawn, is_copy = draws(facts), facts.named(lambda name: "Memcpy HtoD" in name)
    for function, codes in functions_of(facts).items():
        for line, (is_of_sizes, names) in calls_of_constants(codes).items():
            own = launches_under(facts, function, line)
            count = usual_count(facts, own) if len(own) else 0
            # An attribute may be of the last batch, but hardly where a step computes it often
            is_known = is_of_sizes or (learns and count > 1)
            if names:
                is_known = count >= _MIN_LAYERS and _are_passed_on(
                    facts, own, (function, line), names
                )
            is_constant = is_known and not (is_drawn | is_copy)[own].any()
            if is_constant and count and _are_of_modules(facts, own):
                kept = 0.0 if is_of_sizes else 1 / count
                where = Location(function[0], line, codes[line])
                rows = np.intersect1d(own, launches)
                yield LaunchGroup(Kind.CONSTANTS, where, rows, count, kept, kept)


def _are_passed_on(
    facts: Facts, launches: Ints, where: tuple[Function, int], names: frozenset[str]
) -> bool:
    """Tell whether layers are all given these values by the line that calls them one by one."""
    function, line = where
    callers = set()
    for at in np.unique(facts.main_place[launches]).tolist():
        stack = facts.analysis.places[at].stack
        is_own = ((each.file, each.function, each.line) == (*function, line) for each in stack)
        depth = next((number for number, found in enumerate(is_own) if found), 0)
        callers.add(stack[depth - 1] if depth else None)
    codes = functions_of(facts).get(function, {})
    is_assigned = any(names & assigned(each) for each in codes.values())
    known = [each for each in callers if each is not None]
    is_one = len(callers) == len(known) == 1  # two calls may give two values
    return is_one and not is_assigned and passes_on(known[0].code, names)


def _are_of_modules(facts: Facts, launches: Ints) -> bool:
    """Tell whether launches are of a module's forward, and autograd differentiates none of them."""
    places = [facts.place(row) for row in launches.tolist()]
    return all(each.module is not None and each.phase in OUTSIDE_BACKWARD for each in places)


def _masks(facts: Facts, launches: Ints) -> Iterator[LaunchGroup]:
    """Yield the launches of lines that make a block mask, where a step comes to them often."""
    own = launches[placed(facts, launches, _makes_mask)]
    callers = [_caller_of_mask(facts.place(row)) for row in own.tolist()]
    for where in dict.fromkeys(callers):
        rows = own[np.array([each == where for each in callers], np.bool_)]
        modules = len({facts.place(row).module for row in rows.tolist()})
        if modules > 1:  # one mask serves all of them
            yield LaunchGroup(Kind.CONSTANTS, where, rows, modules, 1 / modules, 1 / modules)


def _makes_mask(place: Place) -> bool:
    return _caller_of_mask(place) != NOWHERE


def _caller_of_mask(place: Place) -> Location:
    """Return the line that calls torch's ``create_block_mask`` around a place."""
    lines = ((each.file, each.line, each.code) for each in place.stack)
    calls = (each for each in lines if _MASK.search(each[2] or ""))
    return next((Location(*each) for each in calls), NOWHERE)


def _is_in(file: str | None, function: str | None, lines: Container[int], place: Place) -> bool:
    is_own = (place.file, place.function) == (file, function) and place.line in lines
    return is_own and place.phase in OUTSIDE_BACKWARD
