"""The rule for parameters that autocast casts again for each use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from profiler_ext.findings.autograd_nodes import accumulates, node_around, nodes_of
from profiler_ext.findings.facts import CannotJudge, Facts, Rows, enclosing, location_of
from profiler_ext.findings.finding import Confidence, Figure
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_CASTS = "aten::_to_copy"
_MIN_CALLS = 3  # of a module within one forward
_Line = tuple[str | None, int | None, str | None]


@dataclass(frozen=True, slots=True)
class _Casts:
    """The casts of one module's line, in all steps."""

    forward: Ints  # launches
    is_parameter: Rows  # whose gradient goes to a parameter next, of these
    backward: Ints


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    lines = [(each, _times(facts, each)) for each in _casts(facts)]
    again = [(each, times) for each, times in lines if times > 1]
    return (_candidate(facts, again),) if again else ()


def _casts(facts: Facts) -> list[_Casts]:
    """Return the casts that autograd records, of each module and line that casts a parameter."""
    events, nodes = facts.analysis.recording.trace.events, nodes_of(facts)
    if not len(nodes):
        return []
    is_cast = np.array(["ToCopyBackward" in events.name[row] for row in nodes.event.tolist()])
    is_sum = np.append(accumulates(facts, nodes), False)[1:]
    numbers, to_parameter = nodes.sequence[is_cast], nodes.sequence[is_cast & is_sum]
    eager = facts.launches.scope.where(Scope.EAGER) & (facts.main_place >= 0)
    rows = np.flatnonzero(facts.in_steps(eager))
    forward = rows[facts.launches.phase.where(Phase.FORWARD)[rows]]
    op = facts.launches.op_event[forward].filled(0).astype(np.int64)
    around = enclosing(events, op, _CASTS.__eq__)
    number = events.sequence_number[around].filled(-1)
    is_own = (around != op) & np.isin(number, numbers)
    behind = rows[facts.launches.phase.where(Phase.BACKWARD)[rows]]
    behind = behind[np.append(is_cast, False)[node_around(facts, behind)]]
    lines = _by_line(facts, forward[is_own])
    gradients = _by_line(facts, behind)
    ours = dict(zip(forward[is_own].tolist(), np.isin(number[is_own], to_parameter), strict=True))
    made = (
        _Casts(own, np.array([ours[row] for row in own.tolist()]), gradients.get(line, own[:0]))
        for line, own in lines.items()
    )
    return [each for each in made if each.is_parameter.any()]


def _by_line(facts: Facts, launches: Ints) -> dict[_Line, Ints]:
    rows: dict[_Line, list[int]] = {}
    for row in launches.tolist():
        place = facts.place(row)
        rows.setdefault((place.file, place.line, place.module), []).append(row)
    return {line: np.array(own, np.int64) for line, own in rows.items()}


def _times(facts: Facts, casts: _Casts) -> int:
    """Return how many times a step casts each of a line's parameters."""
    steps = len(facts.analysis.steps)
    behind = np.sort(facts.launches.start_ns[facts.launches.phase.where(Phase.BACKWARD)])
    forwards = len(np.unique(np.searchsorted(behind, facts.launches.start_ns[casts.forward])))
    if forwards // steps > 1:  # each with a backward of its own
        return forwards // steps
    # Within one forward the gradients of all casts of a parameter are added before they go to it
    calls = len(np.unique(facts.called_ops(casts.forward))) // steps
    every, parameters = len(casts.forward) // steps, int(casts.is_parameter.sum()) // steps
    is_each = calls >= _MIN_CALLS and every % calls == 0 and every // calls >= parameters
    return calls if is_each else 1


def _candidate(facts: Facts, lines: list[tuple[_Casts, int]]) -> Candidate:
    own = np.concatenate([np.append(each.forward, each.backward) for each, _ in lines])
    forward = np.concatenate([each.forward for each, _ in lines])
    kept = [np.full(len(each.forward) + len(each.backward), 1 / times) for each, times in lines]
    gone = 1 - np.concatenate(kept)
    saved_ns = (gone * facts.removal_saving_ns(own, of_op=_CASTS)).astype(np.int64)
    times = int(np.median([times for _, times in lines]))
    return Candidate(
        summary="parameters are cast again for each use in a step",
        est_saving_ns=facts.median_per_step(own, saved_ns),
        confidence=Confidence.ESTIMATED,
        remedy="one autocast around all uses, which keeps the casts; or bfloat16 parameters",
        location=location_of(facts.place(facts.longest(forward))),
        evidence=(*count_and_time(facts, own), Figure("times that each is cast", times)),
        launches=np.unique(own),
    )


RULE = Rule(
    name="repeated_cast",
    title="Parameters that are cast again for each use",
    means="A line of a module casts its parameters in each of several forwards of a step, or in "
    "each of three or more calls within one. That they are parameters autograd shows: the gradient "
    "of the cast goes straight to one.",
    because="Autocast keeps what it cast of a parameter until its block is left. Entered in each "
    "round of a loop, for each micro-batch or with `cache_enabled=False`, it casts all parameters "
    "again, and autograd casts the gradient of each back.",
    remedy="One `autocast` block around the loop, or around the micro-batches of a step. Or "
    "parameters in bfloat16, with an optimizer that keeps what it needs in float32.",
    saving="Time of these casts and of their backward, less one for each parameter, on the "
    "critical path, or of launching them if the CPU is behind.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
