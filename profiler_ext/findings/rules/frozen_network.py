"""The rule for networks that a training step runs without training them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import numpy as np

from profiler_ext.findings.autograd_nodes import Nodes, accumulates, node_around, nodes_of
from profiler_ext.findings.facts import CannotJudge, Facts, Rows, location_of, shared_line
from profiler_ext.findings.finding import NOWHERE, Confidence, Location
from profiler_ext.findings.groups import placed
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase, Scope

_PRODUCES = re.compile(r"\b(?:add|b|badd)?b?mm\b|convolution$")
_ADDS = "aten::add_"
_MULTIPLIES = ("aten::mm", "aten::bmm")
_OF_WEIGHT = re.compile(r"wgrad")  # cuDNN's names
# Ops that move weights after others, in place, of one tensor or of a list; as text names them
_MOVES = re.compile(r"^aten::(?:_foreach_)?(?:lerp|mul|add|copy)_?$")
_AVERAGES = re.compile(r"lerp|\bema|ema\b|momentum|decay|polyak|\btau\b|\.data\b.*\*.*\.data\b")
_OF_LISTS = "aten::_foreach_"
_BACKWARD = (Phase.BACKWARD, Phase.GRADIENT_ACCUMULATION, Phase.RECOMPUTE)
_BEHIND = (Phase.BACKWARD, Phase.RECOMPUTE)
_MIN_FRACTION = 0.05
_MIN_PRODUCTS = 4  # a step; fewer are no network
_OF_NETWORK: Final = (
    "a network that is not trained runs in each step",
    "store its outputs once for each sample, if it sees the same inputs again",
)
_OF_LAYERS: Final = (
    "layers run whose results have no backward",
    "leave them out where no loss reads them; else store their outputs",
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    if not facts.launches.phase.where(*_BEHIND).any():
        return ()
    return (*_without_backward(facts), *_with_gradients(facts))


def _without_backward(facts: Facts) -> Iterable[Candidate]:
    own = _frozen(facts)
    if not len(own) or _follows_trained(facts, own):
        return ()
    trained = np.flatnonzero(facts.in_steps(facts.launches.phase.where(*_BEHIND)))
    shared = shared_line(facts, own, trained)
    is_network = facts.launches_per_step(own[facts.of_op(_is_product)[own]]) >= _MIN_PRODUCTS
    called = own if shared == NOWHERE else _called_at(facts, shared)
    if not is_network and np.isin(trained, called).any():
        shared, called = NOWHERE, own  # the line runs what is trained, too
    # A step that waits for the CPU has the launches of such a network to wait for
    saved_ns = facts.removed_per_step_ns(called)
    if not saved_ns or saved_ns < _MIN_FRACTION * facts.training.step_ns:
        return ()
    summary, remedy = _OF_NETWORK if is_network else _OF_LAYERS
    return (
        Candidate(
            summary=summary,
            est_saving_ns=saved_ns,
            confidence=Confidence.UPPER_BOUND,
            remedy=remedy,
            location=location_of(facts.place(facts.longest(own))) if shared == NOWHERE else shared,
            evidence=count_and_time(facts, called),
            launches=called,
        ),
    )


def _follows_trained(facts: Facts, own: Ints) -> bool:
    """Tell whether a step moves as many weights after trained ones as its frozen products have.

    A momentum encoder, or the teacher of itself, is another network in the next step.
    """
    is_kept = ~facts.launches.phase.where(Phase.OPTIMIZER, *_BACKWARD)
    is_moved = facts.of_op(lambda op: _MOVES.match(op) is not None)
    is_moved &= facts.mainly(lambda place: _AVERAGES.search(place.code or "") is not None)
    moved = np.flatnonzero(facts.in_steps(is_kept & is_moved))
    of_lists = moved[facts.of_op(lambda op: op.startswith(_OF_LISTS))[moved]]
    products = facts.launches_per_step(own[facts.of_op(_is_product)[own]])
    return bool(len(of_lists)) or facts.launches_per_step(moved) >= max(products, 1)


def _called_at(facts: Facts, line: Location) -> Ints:
    """Return all launches of what a line calls: what is between a network's modules goes, too."""
    is_there = [
        any((each.file, each.line) == (line.file, line.line) for each in place.stack)
        for place in facts.analysis.places
    ]
    called: Ints = np.flatnonzero(facts.in_steps(np.array([*is_there, False])[facts.main_place]))
    return called


def _frozen(facts: Facts) -> Ints:
    """Return the forward of modules whose products have no backward at all."""
    launches, places = facts.launches, facts.analysis.places
    rows = np.flatnonzero(facts.in_steps(facts.main_place >= 0))
    rows = rows[launches.scope.where(Scope.EAGER)[rows]]
    phase = launches.phase.where(*_BEHIND)[rows]
    learning = {places[at].module for at in np.unique(facts.main_place[rows[phase]]).tolist()}
    forward = rows[~phase]
    is_product = facts.of_op(_is_product)
    at = facts.main_place[forward[is_product[forward]]]
    modules = {places[each].module for each in np.unique(at).tolist()} - learning
    is_frozen = np.array([each.module in modules and bool(each.module) for each in places])
    own: Ints = forward[is_frozen[facts.main_place[forward]]]
    return own


def _with_gradients(facts: Facts) -> Iterable[Candidate]:
    """Return the backward of a network whose gradients add up from step to step."""
    own = np.union1d(_behind_all_trained(facts), _of_weights_alone(facts))
    saved_ns = facts.removed_per_step_ns(own) if len(own) else 0
    if not saved_ns or saved_ns < _MIN_FRACTION * facts.training.step_ns:
        return ()
    return (
        Candidate(
            summary="gradients of parameters that no optimizer updates",
            est_saving_ns=saved_ns,
            confidence=Confidence.ESTIMATED,
            remedy="requires_grad_(False) of the network that is not trained",
            location=location_of(facts.place(facts.longest(own))),
            evidence=count_and_time(facts, own),
            launches=own,
        ),
    )


def _behind_all_trained(facts: Facts) -> Ints:
    """Return the backward after the last gradient of a parameter that is trained, in each step.

    ``optimizer.zero_grad()`` frees the gradients of the parameters that it has, and the next ones
    take their place. Those of others are added to what is there.
    """
    steps, nodes, rows = facts.analysis.steps, nodes_of(facts), _eager_backward(facts)
    at = node_around(facts, rows)
    is_trained = accumulates(facts, nodes)
    is_added = _is_added(facts, rows) & np.append(is_trained, False)[at]
    is_trained[at[is_added]] = False
    nodes_ns = facts.analysis.recording.trace.events.start_ns[nodes.event]
    enqueued_ns, chosen = facts.pace.enqueued_ns[rows], np.zeros(len(rows), np.bool_)
    for each in steps:
        is_in = (nodes_ns >= each.cpu_start_ns) & (nodes_ns < each.cpu_end_ns)
        if not (is_trained & is_in).any():
            return rows[:0]
        last_ns = nodes_ns[is_trained & is_in].max()
        chosen |= (enqueued_ns > last_ns) & (enqueued_ns < each.cpu_end_ns)
    adding = {facts.place(row).module for row in rows[chosen & is_added].tolist()}
    is_network = len(adding - {None}) >= _MIN_PRODUCTS and not adding & _run_often(facts)
    return rows[chosen] if is_network else rows[:0]


def _eager_backward(facts: Facts) -> Ints:
    """Return the backward, where all of it is eager and an optimizer runs in each step."""
    launches = facts.launches
    rows = np.flatnonzero(facts.in_steps(launches.phase.where(*_BACKWARD)))
    is_update = facts.in_steps(launches.phase.where(Phase.OPTIMIZER))
    updates = len(np.unique(launches.step[is_update].filled(-1)))
    is_known = launches.scope.where(Scope.EAGER)[rows].all()
    return rows if is_known and updates >= len(facts.analysis.steps) else rows[:0]


def _is_added(facts: Facts, rows: Ints) -> Rows:
    return facts.of_op(lambda op: op.startswith(_ADDS))[rows]


def _of_weights_alone(facts: Facts) -> Ints:
    """Return what computes gradients that are added to those of an earlier update.

    The first backward after an update adds to none that an optimizer is to read: it has freed its
    own. Such are the gradients of a fixed network of a loss, or of a discriminator in the step of
    its generator. What is trained needs those of their inputs, and comes later.
    """
    nodes, rows = nodes_of(facts), _eager_backward(facts)
    at, is_leaf = node_around(facts, rows), accumulates(facts, nodes)
    is_added = _is_added(facts, rows) & np.append(is_leaf, False)[at]
    is_new = is_leaf.copy()
    is_new[at[is_added]] = False
    is_early = np.append(_before_trained(facts, nodes, is_new), False)[at]
    adding = {facts.place(row).module for row in rows[is_added & is_early].tolist()} - {None}
    if len(adding) < _MIN_PRODUCTS:
        return rows[:0]
    is_own = is_early & placed(facts, rows, lambda place: place.module in adding)
    chosen: Ints = rows[is_own & (is_added | _is_of_weight(facts, rows, at))]
    return chosen


def _before_trained(facts: Facts, nodes: Nodes, is_new: Rows) -> Rows:
    """Flag nodes of the first backward after each update, up to its last gradient that is new."""
    phase, enqueued_ns = facts.launches.phase, facts.pace.enqueued_ns
    nodes_ns = facts.analysis.recording.trace.events.start_ns[nodes.event]
    updates, forwards = (
        np.searchsorted(np.sort(enqueued_ns[phase.where(each)]), nodes_ns)
        for each in (Phase.OPTIMIZER, Phase.FORWARD)
    )
    is_before = np.zeros(len(nodes), np.bool_)
    for update in np.unique(updates[is_new]).tolist():
        is_first = updates == update
        is_first &= forwards == forwards[is_first & is_new].min()
        is_before |= is_first & (nodes_ns < nodes_ns[is_first & is_new].max())
    return is_before


def _is_of_weight(facts: Facts, rows: Ints, at: Ints) -> Rows:
    """Flag what computes the gradient of a weight or of a bias, in the nodes of products.

    Of two matrix products in a node the last is that of the weight.
    """
    is_sum = facts.of_op("aten::sum".__eq__)[rows]
    is_weight = facts.named(lambda name: _OF_WEIGHT.search(name) is not None)[rows]
    is_product = facts.of_op(lambda op: op in _MULTIPLIES)[rows] & (at >= 0)
    is_node = np.isin(at, at[is_weight | is_product])
    last = {int(node): index for index, node in enumerate(at.tolist()) if is_product[index]}
    is_weight[[*last.values()]] = True
    flags: Rows = is_weight | is_sum & is_node
    return flags


def _run_often(facts: Facts) -> set[str | None]:
    """Return the modules with products that run more than once a step: gradients of one add up."""
    is_forward = facts.launches.phase.where(Phase.FORWARD) & facts.of_op(_is_product)
    rows = np.flatnonzero(facts.in_steps(is_forward & (facts.main_place >= 0)))
    calls = np.unique(np.stack([facts.main_place[rows], facts.called_ops(rows)]), axis=1)
    places, counts = np.unique(calls[0], return_counts=True)
    often = places[counts > len(facts.analysis.steps)].tolist()
    return {facts.analysis.places[each].module for each in often}


def _is_product(op: str) -> bool:
    return _PRODUCES.search(op) is not None


RULE = Rule(
    name="frozen_network",
    title="A network that each step runs and none trains",
    means="In a training step modules with products or convolutions run forward and have no "
    "backward at all, for 5% of the step or more: a teacher, a text encoder, the encoder of a "
    "latent diffusion model; where they are fewer than four, a head that no loss reads. Or they "
    "have a backward, last of all, that adds to gradients which nothing frees, as no optimizer has "
    "the parameters. Or the first backward after an update adds to gradients of four or more "
    "modules, and to those of others not: of a fixed network of a loss, or of a discriminator in "
    "the step of its generator.",
    because="Of the same input such a network returns the same in each epoch. "
    "Autograd computes gradients for all parameters that require them, also for those of a "
    "backbone that the optimizer was not given.",
    remedy="Compute its outputs once for each sample and store them, if inputs repeat without "
    "random augmentation. Else run it in a compiled graph, in bfloat16 and `torch.inference_mode`, "
    "or for a larger batch at once. Networks that follow the trained one (target networks) have "
    "to run; where the step averages weights they are not reported. `requires_grad_(False)` of a "
    "network without an optimizer leaves out its backward, or the gradients of its weights where "
    "what is trained comes before it.",
    saving="How much shorter the step would be in a replay without the backward of a network that "
    "has one, or without the gradients of its weights. Else without all that the line launches "
    "which calls the network and nothing that is trained: an upper bound, because a recording does "
    "not tell whether inputs repeat.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
