"""The rule for a backward that runs through the same layers several times, or through itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.autograd_nodes import (
    Nodes,
    accumulates,
    names_of,
    node_around,
    nodes_of,
)
from profiler_ext.findings.facts import CannotJudge, Facts, Rows, location_of, shared_line
from profiler_ext.findings.finding import NOWHERE, Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.records.events import Ints, flag_rows
from profiler_ext.records.vocabulary import Phase

_OF_GRADIENTS = "BackwardBackward"
# StyleGAN2 penalizes gradients in each sixteenth step, at the same quality
_INTERVAL = 16
_MIN_FRACTION = 0.05
_IN_BACKWARD = (Phase.BACKWARD, Phase.RECOMPUTE, Phase.GRADIENT_ACCUMULATION)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    nodes = nodes_of(facts)
    # Gradients of gradients need the first backward
    if any(_OF_GRADIENTS in name for name in names_of(facts, nodes)):
        return _penalized(facts, nodes)
    is_again = _runs_again(facts, nodes.number)
    launches = np.flatnonzero(facts.in_steps(facts.launches.phase.where(*_IN_BACKWARD)))
    at = node_around(facts, launches)
    launches = launches[np.append(is_again, False)[at]]
    if not len(launches):
        return ()
    runs = np.unique(nodes.number[nodes.number >= 0], return_counts=True)[1]
    return (_candidate(facts, launches, int(np.median(runs[runs > 1]))),)


def _penalized(facts: Facts, nodes: Nodes) -> Iterator[Candidate]:
    """Yield what a penalty on gradients costs, where each step computes gradients of gradients."""
    events, launches = facts.analysis.recording.trace.events, facts.launches
    is_of_gradients = flag_rows(events.name, lambda name: _OF_GRADIENTS in name)[nodes.event]
    is_again = _runs_again(facts, nodes.number)
    # Derivatives of higher order are an equation's own, not a penalty's
    if (is_again & is_of_gradients).any():
        return
    twice = np.unique(nodes.number[is_again & (nodes.number >= 0)])
    is_own = is_of_gradients | (np.isin(nodes.number, twice) & (nodes.number >= 0))
    behind = np.flatnonzero(facts.in_steps(launches.phase.where(*_IN_BACKWARD)))
    behind = behind[np.append(is_own, False)[node_around(facts, behind)]]
    forward = _forward_of(facts, np.unique(nodes.sequence[np.isin(nodes.number, twice)]))
    steps = np.unique(launches.step[behind].filled(-1))
    if len(steps) < max(len(facts.analysis.steps), 2) or not _runs_besides(facts, forward):
        return
    own = np.union1d(behind, forward)
    spent_ns = facts.removed_per_step_ns(own)
    if spent_ns < _MIN_FRACTION * facts.training.step_ns:
        return
    where = shared_line(facts, forward)
    yield Candidate(
        summary="each step penalizes gradients: a backward runs through a backward",
        est_saving_ns=int((1 - 1 / _INTERVAL) * spent_ns),
        confidence=Confidence.UPPER_BOUND,
        remedy=f"penalize in each {_INTERVAL}th step, {_INTERVAL} times as much",
        location=location_of(facts.place(facts.longest(own))) if where == NOWHERE else where,
        evidence=(
            Figure("a step without it is shorter by", spent_ns, FigureUnit.NS),
            *count_and_time(facts, own),
        ),
        launches=own,
    )


def _forward_of(facts: Facts, numbers: Ints) -> Ints:
    """Return the forward of the ops with these numbers of autograd."""
    events = facts.analysis.recording.trace.events
    rows = np.flatnonzero(facts.in_steps(facts.launches.phase.where(Phase.FORWARD)))
    ops = facts.called_ops(rows)
    numbered = np.append(events.sequence_number.filled(-1), -1)
    own: Ints = rows[np.isin(numbered[ops], numbers)]
    return own


def _runs_besides(facts: Facts, launches: Ints) -> bool:
    """Tell whether the lines of these launches run in a forward without a penalty, too."""
    # Else the gradients are what the model returns, as forces are of an energy
    rows = np.flatnonzero(facts.in_steps(facts.launches.phase.where(Phase.FORWARD)))
    others = _lines(facts, np.setdiff1d(rows, launches))
    return bool(len(launches)) and _lines(facts, launches) <= others


def _lines(facts: Facts, launches: Ints) -> set[tuple[str | None, int | None, str | None]]:
    places = (facts.analysis.places[at] for at in np.unique(facts.main_place[launches]).tolist())
    return {(each.file, each.line, each.module) for each in places}


def _runs_again(facts: Facts, number: Ints) -> Rows:
    """Flag the runs of a node after its first; a parameter's gradient goes with the node before."""
    is_again = np.ones(len(number), np.bool_)
    is_again[np.unique(number, return_index=True)[1]] = False
    is_own = number >= 0
    before = np.maximum.accumulate(np.where(is_own, np.arange(len(number)), 0))
    is_sum = accumulates(facts, nodes_of(facts))
    again: Rows = np.where(is_sum, is_again[before] & is_own[before], is_again & is_own)
    return again


def _candidate(facts: Facts, launches: Ints, runs: int) -> Candidate:
    backward = launches[facts.launches.phase.where(Phase.BACKWARD)[launches]]
    where = shared_line(facts, backward if len(backward) else launches)
    if where == NOWHERE:
        where = location_of(facts.place(facts.longest(launches)))
    return Candidate(
        summary="the backward of the same layers runs several times",
        est_saving_ns=facts.removed_per_step_ns(launches),
        confidence=Confidence.ESTIMATED,
        remedy="add the losses, then one backward(), unless each loss's gradient is needed",
        location=where,
        evidence=(Figure("times that it runs", runs), *count_and_time(facts, launches)),
        launches=launches,
    )


RULE = Rule(
    name="repeated_backward",
    title="A backward that runs through the same layers several times",
    means="In one step autograd runs the same nodes, of the same forward, more than once: the "
    "trace numbers them. The line is the innermost one that all of these layers are called from. "
    "Or each step computes gradients of gradients (nodes named `...BackwardBackward`) of layers "
    "that also run without: a penalty on gradients.",
    because="`loss.backward(retain_graph=True)` for each of several losses computes the gradients "
    "of the layers that they share once for each. Gradients are sums: one backward of the sum of "
    "the losses computes the same.",
    remedy="Add the losses and call `backward()` once, or detach what a loss does not train "
    "(`critic(fake.detach())`). Where each loss's gradient is needed by "
    "itself, to weigh tasks for example, take it of the last shared activation, not of all layers. "
    "Gradients of gradients (`create_graph=True`) need the first backward. A penalty on them need "
    "not be there in each step: R1 of StyleGAN2 is in each sixteenth, sixteen times as large. An "
    "equation of derivatives, or forces as gradients of an energy, are no penalty.",
    saving="Time of all runs after the first, with the additions to the parameters' gradients that "
    "follow them; if the CPU is behind, how much shorter the step is in a replay without them. "
    "Of a penalty, an upper bound: fifteen sixteenths of its forward, of both of its backwards, "
    "and of that through the first. Nodes that autograd names as those of a forward are not "
    "counted.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
