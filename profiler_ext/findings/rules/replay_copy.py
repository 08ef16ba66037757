"""Owns the rule of copies and seeds that torch runs before it replays a CUDA graph."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import Facts, Lacking, where_of
from profiler_ext.findings.finding import Figure, FigureUnit, Sureness
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.records import Ints, SiteEvidence

_OF_REPLAYS = (SiteEvidence.RUNNER_COPY, SiteEvidence.RUNNER_SEED)


def _judge(facts: Facts) -> Iterable[Candidate] | Lacking:
    if not facts.on_device:
        return Lacking("the launches ran on the CPU, which has no CUDA graphs")
    launches = np.flatnonzero(facts.in_steps(facts.launches.evidence.where(*_OF_REPLAYS)))
    return (_candidate(facts, launches),) if len(launches) else ()


def _candidate(facts: Facts, launches: Ints) -> Candidate:
    longest = facts.longest(launches)
    duration = facts.launches.duration_ns[launches]
    copies = launches[facts.launches.evidence.where(SiteEvidence.RUNNER_COPY)[launches]]
    seeds = launches[facts.launches.evidence.where(SiteEvidence.RUNNER_SEED)[launches]]
    return Candidate(
        what="inputs are copied to where CUDA graphs expect them",
        at_stake_ns=facts.of_usual_step(launches, facts.removed_ns(launches)),
        sureness=Sureness.UPPER_BOUND,
        remedy="write a batch into tensors that stay where they are (batch.copy_()), and mark them "
        "with mark_static_address of torch's Dynamo; hand smaller values from graph to graph",
        where=where_of(facts.place(longest), graph=facts.compile_id(longest)),
        why=(
            Figure("copies a step", facts.count_in_usual_step(copies)),
            Figure("seeds a step", facts.count_in_usual_step(seeds)),
            Figure("they take", facts.of_usual_step(launches, duration), FigureUnit.NS),
        ),
        launches=launches,
    )


RULE = Rule(
    name="replay_copy",
    title="Copies and seeds before CUDA graphs",
    means="Before it replays a CUDA graph, torch copies inputs whose address changes to the memory "
    "that the graph reads, and writes the seeds of random ops.",
    because="A CUDA graph reads and writes fixed addresses. Parameters stay where they are; "
    "batches and what eager code hands over do not.",
    remedy="Keep inputs at one address, or hand over less: indices instead of what they lead to.",
    stake="The time of these copies and seeds, where the CPU is behind what it takes to launch "
    "them. It is an upper bound, since "
    "a batch has to come from somewhere.",
    judge=_judge,
)
