"""The rule for copies and seeds before the replay of a CUDA graph."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, SavingPer
from profiler_ext.findings.rule import Candidate, Rule, launching
from profiler_ext.records import events, evidence, provenance, vocabulary

_OF_REPLAYS = (evidence.SiteEvidence.RUNNER_COPY, evidence.SiteEvidence.RUNNER_SEED)
_MIN_FRACTION, _MIN_NS = 0.01, 20_000
_FORWARD = (
    "copy each batch into one tensor marked as static (static.copy_(batch)), with torch's "
    "mark_static_address before the first call"
)
_BACKWARD = (
    "compile the loss with the model: what eager code passes to a compiled backward "
    "is copied for its CUDA graph"
)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    launches = np.flatnonzero(facts.in_steps(facts.launches.evidence.where(*_OF_REPLAYS)))
    launches = launches[[not _is_one_number(facts, launch) for launch in launches.tolist()]]
    is_backward = facts.launches.phase.where(vocabulary.Phase.BACKWARD)[launches]
    forward, backward = launches[~is_backward], launches[is_backward]
    copies = _copies(facts, forward)
    critical_ns, removal_saving_ns = (
        facts.median_per_step(copies, facts.critical_ns(copies)),
        _removed_ns(facts, backward),
    )
    result = (
        (forward, critical_ns, SavingPer.STEP),
        (backward, removal_saving_ns, SavingPer.UNKNOWN),
    )
    least_ns = max(_MIN_FRACTION * facts.step_ns, _MIN_NS)
    return tuple(_candidate(facts, *each) for each in result if each[1] >= least_ns)


def _copies(facts: Facts, launches: events.Ints) -> events.Ints:
    return launches[~facts.launches.evidence.where(evidence.SiteEvidence.RUNNER_SEED)[launches]]


def _removed_ns(facts: Facts, launches: events.Ints) -> int:
    copies = _copies(facts, launches)
    return facts.median_per_step(copies, facts.removal_saving_ns(copies))


def _candidate(
    facts: Facts, launches: events.Ints, spent_ns: int, saving_per: SavingPer
) -> Candidate:
    longest, copies = facts.longest(launches), _copies(facts, launches)
    duration = facts.launches.duration_ns[launches]
    is_claimed = saving_per is SavingPer.STEP
    return Candidate(
        summary="inputs are copied into CUDA graphs' static buffers",
        est_saving_ns=spent_ns if is_claimed else 0,
        saving_per=saving_per,
        confidence=Confidence.UPPER_BOUND,
        remedy=_FORWARD if is_claimed else _BACKWARD,
        location=location_of(facts.place(longest), graph=facts.compile_id(longest)),
        evidence=(
            Figure("launches that copy a step", facts.launches_per_step(copies)),
            Figure(
                "launches that set seeds", facts.launches_per_step(np.setdiff1d(launches, copies))
            ),
            Figure("they take", facts.median_per_step(launches, duration), FigureUnit.NS),
            *launching(facts, copies, spent_ns),
            Figure("the longest one copies", _input_of(facts, longest), FigureUnit.TEXT),
        ),
        launches=launches,
    )


def _is_one_number(facts: Facts, launch: int) -> bool:
    """Tell whether it copies one number, a loss's gradient or a seed, which no remedy avoids."""
    result = _input(facts, launch)
    return result is not None and not result.size


def _input_of(facts: Facts, launch: int) -> str:
    """Return the type and the sizes of the input that a launch mostly copies."""
    result = _input(facts, launch)
    if result is None:
        return "an input of unknown size"
    return f"{result.dtype} of {' by '.join(map(str, result.size))}"


def _input(facts: Facts, launch: int) -> provenance.TensorSpec | None:
    graph, name = facts.launches.graph[launch], facts.place(launch).node
    nodes = () if graph is np.ma.masked else facts.analysis.recording.graphs[int(graph)].nodes
    return next((spec for node in nodes if node.name == name for spec in node.outputs), None)


RULE = Rule(
    name="replay_copy",
    title="Copies and seeds before CUDA graphs",
    means="Before it replays a CUDA graph, torch copies inputs whose address changes to the "
    "memory that the graph reads, and sets the seed of its random numbers. Capture noted which "
    "inputs those are when the graph was recorded.",
    because="A CUDA graph reads and writes fixed addresses. Parameters keep their address, and so "
    "does what one graph passes to the next; batches and results of eager code do not.",
    remedy="Keep a large input at one address: mark the tensor with `mark_static_address` of "
    "torch's Dynamo before the first call, and copy or compute each batch into it. Code compiled "
    "before such a mark keeps copying, and on torch 2.11 AOTAutograd's cache returns it again: "
    "compile once with `TORCHINDUCTOR_AUTOGRAD_CACHE=0`. Results of eager code between two "
    "graphs, or the gradient of a loss, are not copied if that code is compiled too.",
    saving="For inputs of a forward, the time of their copies on the critical path. An upper "
    "bound, because a batch that is not made in place has to be copied anyway. If the CPU is "
    "behind, nothing is claimed: a batch that is copied in place is launched too. For inputs of a "
    "backward nothing is claimed, because no trial has confirmed it; the time, or the launch "
    "overhead, is given as a figure from 1% of the usual step. Copies of one number, a seed or "
    "the gradient that `backward()` makes for a loss are not reported: there is no remedy.",
    not_on_cpu="the launches ran on the CPU, which has no CUDA graphs",
    judge=_judge,
)
