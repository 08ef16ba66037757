"""The rule for a backward that runs through the same layers several times."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.autograd_nodes import accumulates, names_of, node_around, nodes_of
from profiler_ext.findings.facts import CannotJudge, Facts, Rows, location_of, shared_line
from profiler_ext.findings.finding import NOWHERE, Confidence, Figure
from profiler_ext.findings.rule import Candidate, Rule, count_and_time
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase

_OF_GRADIENTS = "BackwardBackward"
_IN_BACKWARD = (Phase.BACKWARD, Phase.RECOMPUTE, Phase.GRADIENT_ACCUMULATION)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if not facts.on_device:
        return CannotJudge("the launches ran on the CPU")
    nodes = nodes_of(facts)
    # Gradients of gradients need the first backward
    if any(_OF_GRADIENTS in name for name in names_of(facts, nodes)):
        return ()
    is_again = _runs_again(facts, nodes.number)
    launches = np.flatnonzero(facts.in_steps(facts.launches.phase.where(*_IN_BACKWARD)))
    at = node_around(facts, launches)
    launches = launches[np.append(is_again, False)[at]]
    if not len(launches):
        return ()
    runs = np.unique(nodes.number[nodes.number >= 0], return_counts=True)[1]
    return (_candidate(facts, launches, int(np.median(runs[runs > 1]))),)


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
    "trace numbers them. The line is the innermost one that all of these layers are called from.",
    because="`loss.backward(retain_graph=True)` for each of several losses computes the gradients "
    "of the layers that they share once for each. Gradients are sums: one backward of the sum of "
    "the losses computes the same.",
    remedy="Add the losses and call `backward()` once, or detach what a loss does not train "
    "(`critic(fake.detach())`). Where each loss's gradient is needed by "
    "itself, to weigh tasks for example, take it of the last shared activation, not of all layers. "
    "Gradients of gradients (`create_graph=True`) need the first backward and are not reported.",
    saving="Time of all runs after the first, with the additions to the parameters' gradients that "
    "follow them; if the CPU is behind, how much shorter the step is in a replay without them.",
    judge=_judge,
)
