"""The rule for gradients that are zeroed, so that the backward adds to zeros."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.autograd_nodes import accumulates, node_around, nodes_of
from profiler_ext.findings.facts import CannotJudge, Facts, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, launching
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase

_ZEROES = frozenset({"aten::zero_", "aten::_foreach_zero_"})
_ADDS = "aten::add_"


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    zeroes, adds = zeroes_and_adds(facts)
    if not len(zeroes) or not len(adds):
        return ()
    return (_candidate(facts, zeroes, adds),)


def zeroes_and_adds(facts: Facts) -> tuple[Ints, Ints]:
    """Return the launches of steps that zero gradients, and those that add to them.

    Where a value is used several times its gradients are added, too, but by the node behind it.
    """
    phase = facts.launches.phase
    zeroes = facts.in_steps(phase.where(Phase.OPTIMIZER) & facts.of_op(_ZEROES.__contains__))
    adds = phase.where(Phase.GRADIENT_ACCUMULATION) & facts.of_op(_ADDS.__eq__)
    rows = np.flatnonzero(facts.in_steps(adds))
    is_of_parameter = np.append(accumulates(facts, nodes_of(facts)), False)
    return np.flatnonzero(zeroes), rows[is_of_parameter[node_around(facts, rows)]]


def _candidate(facts: Facts, zeroes: Ints, adds: Ints) -> Candidate:
    launches = np.sort(np.concatenate([zeroes, adds]))
    passes = backward_passes(facts)
    # Of several backward passes only the first adds to zeros
    removal_saving_ns = facts.median_per_step(
        zeroes, facts.removal_saving_ns(zeroes)
    ) + facts.median_per_step(adds, facts.removal_saving_ns(adds) // passes)
    return Candidate(
        summary="gradients are set to zero, and the backward adds to the zeros",
        est_saving_ns=removal_saving_ns,
        confidence=Confidence.ESTIMATED,
        remedy="optimizer.zero_grad(set_to_none=True), which is the default",
        location=location_of(facts.place(facts.longest(zeroes))),
        evidence=(
            Figure("additions a step", facts.launches_per_step(adds)),
            Figure(
                "zeroing takes",
                facts.median_per_step(zeroes, facts.launches.duration_ns[zeroes]),
                FigureUnit.NS,
            ),
            Figure(
                "adding takes",
                facts.median_per_step(adds, facts.launches.duration_ns[adds]),
                FigureUnit.NS,
            ),
            Figure("backward passes a step", passes),
            *launching(facts, launches, removal_saving_ns),
        ),
        launches=launches,
    )


def backward_passes(facts: Facts) -> int:
    """Return how many backward passes a step has: how often the backward follows the forward."""
    phase = facts.launches.phase
    is_backward = phase.where(Phase.BACKWARD, Phase.GRADIENT_ACCUMULATION)
    chosen = np.flatnonzero(facts.in_steps(is_backward | phase.where(Phase.FORWARD)))
    ordered = chosen[np.argsort(facts.launches.start_ns[chosen], kind="stable")]
    begins = ordered[1:][is_backward[ordered[1:]] & ~is_backward[ordered[:-1]]]
    return max(facts.launches_per_step(begins), 1)


RULE = Rule(
    name="zeroed_gradients",
    title="Gradients that are zeroed",
    means="An optimizer's gradients are filled with zeros in the step, and the backward adds to "
    "them.",
    because="`zero_grad(set_to_none=False)` writes zeros into each gradient. The first backward "
    "after it reads them and adds its own, with a launch for each parameter; without gradients it "
    "would keep what it has computed.",
    remedy="`optimizer.zero_grad()`, whose default is `set_to_none=True`.",
    saving="What zeroing takes, and the additions of the first backward pass: time of these "
    "launches, or of launching them if the CPU is behind.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
