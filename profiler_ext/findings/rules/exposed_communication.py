"""Owns the rule of collectives beside which the device computes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.facts import Facts, Lacking, where_of
from profiler_ext.findings.finding import Figure, FigureUnit, Sureness
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.records import Ints

_LEAST = 0.05
"""Something of each collective is exposed; on two devices less than this changed no step."""
_REMEDY = (
    "let it run beside the backward: smaller buckets (bucket_cap_mb) and static_graph of DDP, "
    "prefetching of FSDP; communicate less often (no_sync, larger batch), or in bfloat16"
)
_ALONE = (
    "merge the sessions of all ranks (profiler-ext merge), which tells a wait for a late rank from "
    "the transfer; of the transfer, hide more: smaller buckets, prefetching, no_sync"
)


def _judge(facts: Facts) -> Iterable[Candidate] | Lacking:
    if not facts.on_device:
        return Lacking("the launches ran on the CPU, where nothing can be hidden")
    if not len(facts.analysis.communication):
        return Lacking("no rank communicates in this session")
    return tuple(_of_collectives(facts))


def _of_collectives(facts: Facts) -> Iterator[Candidate]:
    communication = facts.analysis.communication
    in_steps = facts.in_steps(np.ones(len(facts.launches), np.bool_))[communication.launch]
    kind = communication.collective
    for code, name in enumerate(kind.strings):
        rows = np.flatnonzero((kind.codes == code) & in_steps)
        if len(rows):
            found = _candidate(facts, name or "a collective", rows)
            if found.at_stake_ns >= _LEAST * facts.step_ns:
                yield found


def _candidate(facts: Facts, name: str, rows: Ints) -> Candidate:
    """Return what one kind of collective costs; the wait for another rank is that rank's."""
    communication = facts.analysis.communication
    launches = communication.launch[rows]
    exposed_ns = _within_steps(facts, launches, communication.exposed_ns[rows])
    waiting = communication.waiting_ns[rows]
    alone_ns = np.maximum(exposed_ns - waiting.filled(0), 0)
    alone_ns[~facts.pace.sets[launches]] = 0
    duration_ns = facts.launches.duration_ns[launches]
    longest = int(launches[int(exposed_ns.argmax())])
    is_known = not np.ma.getmaskarray(waiting).all()
    return Candidate(
        what=f"{name} runs while the device computes nothing",
        at_stake_ns=facts.of_usual_step(launches, alone_ns),
        sureness=Sureness.UPPER_BOUND,
        remedy="let it run beside the backward: smaller buckets (bucket_cap_mb) and static_graph "
        "of DDP, prefetching of FSDP; communicate less often (no_sync, larger batch), or in "
        "bfloat16",
        where=where_of(facts.place(longest), facts.launches.name[longest]),
        why=(
            Figure("collectives a step", facts.count_in_usual_step(launches)),
            Figure("they take", facts.of_usual_step(launches, duration_ns), FigureUnit.NS),
            Figure("exposed", facts.of_usual_step(launches, exposed_ns), FigureUnit.NS),
            _waited(facts.of_usual_step(launches, waiting.filled(0)), is_known),
        ),
        launches=launches,
    )


def _waited(waiting_ns: int, is_known: bool) -> Figure:
    name = "of it waiting for the last rank"
    if is_known:
        return Figure(name, waiting_ns, FigureUnit.NS)
    return Figure(name, "one rank alone does not tell", FigureUnit.TEXT)


def _within_steps(facts: Facts, launches: Ints, exposed_ns: Ints) -> Ints:
    """Return the part that lies within the step that enqueued each launch."""
    begins = facts.launches.start_ns[launches]
    ends = begins + facts.launches.duration_ns[launches]
    steps = {step.number: step for step in facts.analysis.steps}
    own = [steps[number] for number in facts.launches.step[launches].tolist()]
    inside = np.minimum(ends, [step.end_ns for step in own])
    inside = np.maximum(inside - np.maximum(begins, [step.start_ns for step in own]), 0)
    part: Ints = np.minimum(exposed_ns, inside)
    return part


RULE = Rule(
    name="exposed_communication",
    title="Communication beside which nothing is computed",
    means="Collectives ran on the device while it ran nothing else.",
    because="A collective at the end of the backward has nothing beside it: one large bucket, "
    "gradients that are ready last, an all-gather that the next layer waits for. Between few "
    "devices with a fast link little is exposed, between nodes much.",
    remedy="Smaller buckets begin earlier; FSDP prefetches the next layer; gradient accumulation "
    "under `no_sync()` and a larger batch communicate less often.",
    stake="The exposed time of the collectives in the usual step, without the time in which they "
    "waited for the last rank, which is known where the ranks are merged, as far as they set the "
    "pace. It is said from 5% on, and is an upper bound: "
    "kernels beside a collective get slower.",
    judge=_judge,
)
