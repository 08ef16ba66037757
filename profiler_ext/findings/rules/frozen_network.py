"""The rule for networks that a training step runs without training them."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, location_of, shared_line
from profiler_ext.findings.finding import NOWHERE, Confidence, Figure, FigureUnit, SavingPer
from profiler_ext.findings.rule import Candidate, Rule, count_and_time
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_PRODUCES = re.compile(r"\b(?:add|b|badd)?b?mm\b|convolution$")
_BEHIND = (Phase.BACKWARD, Phase.RECOMPUTE)
_MIN_FRACTION = 0.05
_MIN_PRODUCTS = 4  # a step; fewer are no network


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if not facts.on_device:
        return CannotJudge("the launches ran on the CPU")
    if not facts.launches.phase.where(*_BEHIND).any():
        return ()
    own = _frozen(facts)
    spent_ns = facts.median_per_step(own, facts.paced_ns(own))
    if not spent_ns or spent_ns < _MIN_FRACTION * facts.training.step_ns:
        return ()
    shared = shared_line(facts, own)
    return (
        Candidate(
            summary="a network that is not trained runs in each step",
            est_saving_ns=0,
            saving_per=SavingPer.UNKNOWN,
            confidence=Confidence.ESTIMATED,
            remedy="store its outputs once for each sample, if it sees the same inputs again",
            location=location_of(facts.place(facts.longest(own))) if shared == NOWHERE else shared,
            evidence=(
                *count_and_time(facts, own),
                Figure("that sets the pace", spent_ns, FigureUnit.NS),
            ),
        ),
    )


def _frozen(facts: Facts) -> Ints:
    """Return the forward of modules whose products have no backward at all."""
    launches, places = facts.launches, facts.analysis.places
    rows = np.flatnonzero(facts.in_steps(facts.main_place >= 0))
    rows = rows[launches.scope.where(Scope.EAGER)[rows]]
    phase = launches.phase.where(*_BEHIND)[rows]
    learning = {places[at].module for at in np.unique(facts.main_place[rows[phase]]).tolist()}
    forward = rows[~phase]
    is_product = facts.of_op(lambda op: _PRODUCES.search(op) is not None)
    at = facts.main_place[forward[is_product[forward]]]
    modules = {places[each].module for each in np.unique(at).tolist()} - learning
    is_frozen = np.array([each.module in modules and bool(each.module) for each in places])
    own: Ints = forward[is_frozen[facts.main_place[forward]]]
    is_network = facts.launches_per_step(own[is_product[own]]) >= _MIN_PRODUCTS
    return own if is_network else own[:0]


RULE = Rule(
    name="frozen_network",
    title="A network that each step runs and none trains",
    means="In a training step modules with four or more products or convolutions run forward and "
    "have no backward at all, for 5% of the step or more: a teacher, a text encoder, the encoder "
    "of a latent diffusion model.",
    because="Of the same input such a network returns the same in each epoch.",
    remedy="Compute its outputs once for each sample and store them, if inputs repeat without "
    "random augmentation. Else run it in a compiled graph, in bfloat16 and `torch.inference_mode`, "
    "or for a larger batch at once. Networks that follow the trained one (target networks) have "
    "to run.",
    saving="Unknown: a recording does not tell whether inputs repeat. Its time is in the evidence.",
    judge=_judge,
)
