"""The rule for a backward that runs through the same layers several times, or through itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.autograd_nodes import (
    Calls,
    Nodes,
    accumulates,
    begins_again,
    calls_of,
    makers_of,
    names_of,
    node_around,
    nodes_of,
    runs_in_rows,
)
from profiler_ext.findings.facts import (
    CannotJudge,
    Facts,
    Rows,
    enclosing,
    location_of,
    shared_line,
)
from profiler_ext.findings.finding import NOWHERE, Confidence, Figure, FigureUnit, Location
from profiler_ext.findings.groups import Kind, LaunchGroup
from profiler_ext.findings.launch_groups import candidates_of
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, count_and_time
from profiler_ext.records.events import Ints, flag_rows
from profiler_ext.records.vocabulary import Phase

_OF_GRADIENTS = "BackwardBackward"
_ROWS = (
    "one call for all rows: autograd.grad(..., is_grads_batched=True), jacobian(..., "
    "vectorize=True) or torch.func.jacrev"
)
# StyleGAN2 penalizes gradients in each sixteenth step, at the same quality
_INTERVAL = 16
_MIN_FRACTION = 0.05
_IN_BACKWARD = (Phase.BACKWARD, Phase.RECOMPUTE, Phase.GRADIENT_ACCUMULATION)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    nodes, calls = nodes_of(facts), calls_of(facts)
    is_from_one = begins_again(nodes, calls)
    rows = [*_in_rows(facts)]
    others = [*rows, *_from_one_value(facts, calls, is_from_one)]
    # Gradients of gradients need the first backward
    if any(_OF_GRADIENTS in name for name in names_of(facts, nodes)):
        return (*others, *_penalized(facts, nodes))
    is_again = _runs_again(facts, nodes.number) & ~is_from_one
    is_again &= ~runs_in_rows(facts).is_own | (not rows)
    launches = np.flatnonzero(facts.in_steps(facts.launches.phase.where(*_IN_BACKWARD)))
    at = node_around(facts, launches)
    launches = launches[np.append(is_again, False)[at]]
    if not len(launches):
        return others
    runs = np.unique(nodes.number[nodes.number >= 0], return_counts=True)[1]
    return (*others, _candidate(facts, launches, int(np.median(runs[runs > 1]))))


def _in_rows(facts: Facts) -> Iterable[Candidate]:
    """Return what calls of autograd cost that each run the same nodes for another row."""

    def texts(group: LaunchGroup) -> tuple[str, str]:
        calls = f"{group.count:,} calls of autograd run the same nodes, each for another row"
        return f"{calls} ({facts.launches_per_step(group.launches):,} launches)", _ROWS

    found = candidates_of(facts, Kind.ROWS, texts)
    return () if isinstance(found, CannotJudge) else found


def _from_one_value(facts: Facts, calls: Calls, is_again: Rows) -> Iterator[Candidate]:
    """Yield what it costs to differentiate one value by several others in calls of their own."""
    nodes = nodes_of(facts)
    if not is_again.any():
        return
    launches = np.flatnonzero(facts.in_steps(facts.launches.phase.where(*_IN_BACKWARD)))
    is_gone = is_again | _made_again(nodes, calls, makers_of(facts))
    launches = launches[np.append(is_gone, False)[node_around(facts, launches)]]
    if not len(launches):
        return
    again = np.unique(calls.of_node[is_again])
    yield Candidate(
        summary="one value is differentiated by each of several others in a backward of its own",
        est_saving_ns=facts.removed_per_step_ns(launches),
        confidence=Confidence.ESTIMATED,
        remedy="one call for all of them: torch.autograd.grad(y, (a, b, c))",
        location=_where(facts, launches, _made_for(facts, calls.ones[again])),
        evidence=(
            Figure("calls a step after the first", len(again) // len(facts.analysis.steps)),
            *count_and_time(facts, launches),
        ),
        launches=launches,
    )


def _made_for(facts: Facts, ones: Ints) -> Ints:
    """Return the launches of these ops that make ones."""
    events, op = facts.analysis.recording.trace.events, facts.launches.op_event
    rows = np.flatnonzero(~np.ma.getmaskarray(op))
    around = enclosing(events, op.data[rows].astype(np.int64), "aten::ones_like".__eq__)
    return rows[np.isin(around, ones)]


def _made_again(nodes: Nodes, calls: Calls, maker: Ints) -> Rows:
    """Flag the nodes that a run of a node made, where those of a run before it serve as well."""
    # With one call for both runs a later backward would go through one of the two
    is_made = np.zeros(len(nodes), np.bool_)
    rows = np.flatnonzero(maker >= 0)
    rows = rows[(calls.root[maker[rows]] >= 0) & (nodes.number[maker[rows]] >= 0)]
    made = maker[rows]
    sources = np.stack([calls.of_node[rows], calls.root[made], nodes.number[made]])
    of_source = np.unique(sources, axis=1, return_inverse=True)[1].ravel()
    first = np.full(len(rows), len(nodes))
    np.minimum.at(first, of_source, made)
    is_made[rows] = made > first[of_source]
    return is_made


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
    yield Candidate(
        summary="each step penalizes gradients: a backward runs through a backward",
        est_saving_ns=int((1 - 1 / _INTERVAL) * spent_ns),
        confidence=Confidence.UPPER_BOUND,
        remedy=f"penalize in each {_INTERVAL}th step, {_INTERVAL} times as much",
        location=_where(facts, own, forward),
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


def _where(facts: Facts, launches: Ints, sharing: Ints) -> Location:
    """Return the line that some launches share, without one that of the longest of all."""
    shared = shared_line(facts, sharing) if len(sharing) else NOWHERE
    return location_of(facts.place(facts.longest(launches))) if shared == NOWHERE else shared


def _candidate(facts: Facts, launches: Ints, runs: int) -> Candidate:
    backward = launches[facts.launches.phase.where(Phase.BACKWARD)[launches]]
    where = _where(facts, launches, backward if len(backward) else launches)
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
    "Or several calls of autograd begin at the same node, each with ones for a gradient "
    "(`autograd.grad(y, a)`, then `autograd.grad(y, b)`): their line is that of the calls. "
    "Or eight or more calls run the same nodes and keep their gradients apart, as a Jacobian row "
    "by row does: the line is where the CPU is meanwhile. "
    "Or each step computes gradients of gradients (nodes named `...BackwardBackward`) of layers "
    "that also run without: a penalty on gradients.",
    because="`loss.backward(retain_graph=True)` for each of several losses computes the gradients "
    "of the layers that they share once for each. Gradients are sums: one backward of the sum of "
    "the losses computes the same.",
    remedy="`autograd.grad(y, (a, b))` takes several derivatives of one value at once; what "
    "`create_graph=True` makes for them is less, too, and so is the backward of it. The rows of a "
    "Jacobian are one call with `is_grads_batched=True`, or `vectorize=True`. Of several "
    "losses, add them and call `backward()` once, or detach what a loss does not train "
    "(`critic(fake.detach())`). Where each loss's gradient is needed by "
    "itself, to weigh tasks for example, take it of the last shared activation, not of all layers. "
    "Gradients of gradients (`create_graph=True`) need the first backward. A penalty on them need "
    "not be there in each step: R1 of StyleGAN2 is in each sixteenth, sixteen times as large. An "
    "equation of derivatives, or forces as gradients of an energy, are no penalty.",
    saving="Time of all runs after the first, with the additions to the parameters' gradients that "
    "follow them; if the CPU is behind, how much shorter the step is in a replay without them. "
    "Of derivatives of one value, also what a later backward runs of the graph that a call after "
    "the first made, where it runs the same of a call before. Of rows, how much shorter the step "
    "is in a replay in which they, and what goes back through the graph that they made, cost the "
    "CPU what one does; half of the time of kernels below 10 us is left, and of longer ones what "
    "they have blocks for. What their line launches as often goes with them. Of a penalty, an "
    "upper bound: fifteen sixteenths of its forward, of both of its backwards, and of that through "
    "the first. "
    "Nodes that autograd names as those of a forward are not counted.",
    not_on_cpu=ON_CPU,
    judge=_judge,
)
