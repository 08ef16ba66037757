"""The rule for masks, positions and tables that are computed in each call from nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.facts import (
    CannotJudge,
    Facts,
    launches_by_function,
    launches_by_line,
    location_of,
)
from profiler_ext.findings.finding import Confidence, Figure
from profiler_ext.findings.rule import Candidate, Rule, count_and_time
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

# What makes values from sizes alone
_MAKES = re.compile(r"aten::(arange|linspace|logspace|eye|tril|triu|tril_|triu_|outer|meshgrid)$")
# What a function computes from those
_COMPUTES = re.compile(
    r"aten::(arange|linspace|logspace|eye|tril_?|triu_?|outer|meshgrid|ones\w*|zeros\w*|full\w*|"
    r"fill_|mul_?|div_?|add_?|sub|rsub|pow|exp|log|reciprocal|neg|cos|sin|cat|stack|to|_to_copy|"
    r"copy_|where|masked_fill_?|lt|le|gt|ge|eq|ne|logical_\w+|bitwise_\w+|expand|repeat\w*|clone|"
    r"contiguous|float|bool|einsum|floor_divide|remainder|abs|clamp\w*)$"
)
_MIN_CALLS = 4  # a step: what is made once or twice is made where it changes


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if not facts.on_device:
        return CannotJudge("the launches ran on the CPU")
    launches = facts.launches
    learned = launches.phase.where(Phase.BACKWARD)
    used = np.flatnonzero(facts.in_steps(learned & (facts.main_place >= 0)))
    lines = {_line(facts, row) for row in used.tolist()}
    is_forward = launches.phase.where(Phase.FORWARD, Phase.RECOMPUTE, Phase.OTHER)
    eager = np.flatnonzero(facts.in_steps(launches.scope.where(Scope.EAGER) & is_forward))
    functions = launches_by_function(facts, eager)
    parts = (own for _, rows in functions for own in _constant(facts, rows, lines))
    return [_candidate(facts, own) for own in parts if _calls(facts, own) >= _MIN_CALLS]


def _line(facts: Facts, row: int) -> tuple[str | None, int | None]:
    place = facts.place(row)
    return place.file, place.line


def _constant(
    facts: Facts, of_function: Ints, learned: set[tuple[str | None, int | None]]
) -> Iterator[Ints]:
    """Yield the launches of a function that makes constants alone, or of such lines of it."""
    lines = [
        own
        for own in launches_by_line(facts, of_function)
        if _line(facts, int(own[0])) not in learned and _ops_match(facts, own)
    ]
    made = [own for own in lines if _makes(facts, own)]
    if made and sum(map(len, lines)) == len(of_function):
        yield np.sort(of_function)
    elif made:
        yield np.sort(np.concatenate(made))


def _ops_match(facts: Facts, rows: Ints) -> bool:
    ops = {facts.place(row).aten_op for row in rows.tolist()}
    return None not in ops and all(_COMPUTES.match(op or "") for op in ops)


def _makes(facts: Facts, rows: Ints) -> bool:
    return any(_MAKES.match(facts.place(row).aten_op or "") for row in rows.tolist())


def _calls(facts: Facts, launches: Ints) -> int:
    """Return how often a step computes them: as often as one op at one line runs."""
    counts = [facts.launches_per_step(own) for own in launches_by_line(facts, launches)]
    ops = len({facts.innermost_op(row) for row in launches.tolist()})
    return max(counts) // max(ops, 1) if len(counts) == 1 else min(counts)


def _candidate(facts: Facts, launches: Ints) -> Candidate:
    return Candidate(
        summary="constants are computed again in each call",
        est_saving_ns=facts.removed_per_step_ns(launches),
        confidence=Confidence.UPPER_BOUND,
        remedy=(
            "compute them once, in __init__ or for the first call of a step, and keep them in a "
            "buffer (register_buffer(..., persistent=False))"
        ),
        location=location_of(facts.place(facts.longest(launches))),
        evidence=(
            *count_and_time(facts, launches),
            Figure("calls a step", _calls(facts, launches)),
        ),
        launches=launches,
    )


RULE = Rule(
    name="rebuilt_constants",
    title="Constants that are computed again",
    means="Four times a step or more, a function or a line of the forward makes values from sizes "
    "alone (`arange`, `tril`, `triu`, `eye`, `linspace`) and computes with them; no gradient goes "
    "there.",
    because="Causal masks, positions and tables of sines are the same in each layer and each step. "
    "Computed again, they cost several launches a layer, and where they are as large as the "
    "scores, as much memory traffic.",
    remedy="Compute them once in `__init__` and keep them as a buffer that is not saved, or once a "
    "step and pass them to all layers.",
    saving="Time of these launches; if the CPU is behind, how much shorter the step is in a "
    "replay without them. An upper bound: what depends on the batch, such as a mask of its "
    "lengths, has to be computed once a step.",
    judge=_judge,
)
