"""The rule for a straggler: a rank that the others wait for."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from profiler_ext.findings import collectives, rule
from profiler_ext.findings.facts import CannotJudge, Facts, location_of
from profiler_ext.findings.finding import (
    NOWHERE,
    Confidence,
    Figure,
    FigureUnit,
    Location,
    SavingPer,
)
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import IdleCause

_MIN_FRACTION = 0.03
_MIN_ALONE = 0.1
# What one rank does and another does not; that one launches more slowly is often the recording
_RANK_CAUSES = (
    IdleCause.PYTHON,
    IdleCause.DATA_LOADER,
    IdleCause.SYNCHRONISATION,
    IdleCause.AFTER_SYNCHRONISATION,
    IdleCause.ALLOCATING,
    IdleCause.COMPILING,
)
_RANKS = (
    "this rank waits for others in its collectives",
    ("profiler-ext merge the sessions of all ranks, which shows the last rank and what delayed it"),
)
_STAGES = (
    "this rank waits for messages of other pipeline stages",
    ("more micro-batches, a schedule with several stages per rank, or stages of equal cost"),
)
# A CPU that is slower, or more in demand, is so in these and in Python alike
_SLOWER = (IdleCause.LAUNCHING, IdleCause.AUTOGRAD)


def _judge(facts: Facts) -> Iterable[rule.Candidate] | CannotJudge:
    communication = facts.analysis.communication
    if not len(communication):
        return CannotJudge("no rank communicates in this session")
    if np.ma.getmaskarray(communication.late_ns).all():
        return _judge_single_rank(facts)
    late = facts.analysis.rank_delay
    rows = np.flatnonzero(late.cause.where(*_RANK_CAUSES))
    launches = late.launch[rows]
    waited_ns = _waited_ns(facts, _RANK_CAUSES)
    if waited_ns - _waited_ns(facts, _SLOWER) < _MIN_FRACTION * facts.step_ns:
        return ()
    where, cause_name = _dominant_cause(facts, rows)
    return (
        rule.Candidate(
            summary=f"the other ranks wait for rank {facts.analysis.recording.settings.rank}",
            est_saving_ns=0,
            saving_per=SavingPer.UNKNOWN,
            confidence=Confidence.ESTIMATED,
            remedy=(
                "find what only this rank does (more work, a slower loader, "
                "logging, checks), and share it or do it on all ranks"
            ),
            location=where,
            evidence=(
                Figure("they wait for that a step", waited_ns, FigureUnit.NS),
                Figure("collectives that it was the last in", len(np.unique(launches))),
                Figure("it spent more time in", cause_name, FigureUnit.TEXT),
            ),
        ),
    )


def _judge_single_rank(facts: Facts) -> Iterable[rule.Candidate] | CannotJudge:
    """Judge one rank alone: it waits, where equal collectives differ much."""
    communication = facts.analysis.communication
    rows = np.flatnonzero(facts.in_steps(facts.launches.start_ns >= 0)[communication.launch])
    launches, exposed_ns = communication.launch[rows], communication.exposed_ns[rows]
    transfer_ns, _ = collectives.exposed_transfers_ns(facts, rows)
    beyond_ns = exposed_ns - transfer_ns
    lost_ns = facts.median_per_step(launches, beyond_ns)
    if not len(rows) or lost_ns < _MIN_ALONE * facts.step_ns:
        return CannotJudge("the sessions of all ranks together tell it: merge them")
    is_message = collectives.are_point_to_point(facts, rows)
    of_messages_ns = facts.median_per_step(launches[is_message], beyond_ns[is_message])
    of_stages = of_messages_ns > lost_ns / 2
    what, remedy = _STAGES if of_stages else _RANKS
    equal_call_ids = "the quickest message" if of_stages else "the quickest that move as much"
    return (
        rule.Candidate(
            summary=what,
            est_saving_ns=0,
            saving_per=SavingPer.UNKNOWN,
            confidence=Confidence.ESTIMATED,
            remedy=remedy,
            location=collectives.dominant_location(facts, rows),
            evidence=(
                Figure("collectives a step", facts.launches_per_step(launches)),
                Figure("exposed", facts.median_per_step(launches, exposed_ns), FigureUnit.NS),
                Figure(f"beyond {equal_call_ids}", lost_ns, FigureUnit.NS),
            ),
            launches=launches,
        ),
    )


def _waited_ns(facts: Facts, causes: tuple[IdleCause, ...]) -> int:
    """Return how long others waited for this rank in the usual step, for some causes."""
    late = facts.analysis.rank_delay
    rows = np.flatnonzero(late.cause.where(*causes))
    return facts.median_per_step(late.launch[rows], late.duration_ns[rows])


def _dominant_cause(facts: Facts, rows: Ints) -> tuple[Location, str]:
    """Return the cause of most of this rank's delay, and its place."""
    late = facts.analysis.rank_delay
    sums: dict[tuple[Location, str], int] = {}
    for row in rows.tolist():
        place = late.places[int(late.place[row])]
        cause = late.cause[row]
        where = NOWHERE if place.line is None else location_of(place)
        key = where, IdleCause(cause).label
        sums[key] = sums.get(key, 0) + int(late.duration_ns[row])
    return max(sums, key=lambda each: sums[each])


RULE = rule.Rule(
    name="late_rank",
    title="A rank that the others wait for",
    means="In collectives that no rank can leave before all have arrived, this rank arrived last "
    "and the others waited, because it spent more time in Python, the data loader, waiting for "
    "its device, allocating or compiling than the waiting rank. For one rank alone: in a tenth of "
    "a step its collectives are exposed for longer than the fastest ones that move as much. If "
    "most of these are messages between the stages of a pipeline, the finding says so.",
    because="Ranks with different work (longer sequences, more experts, logging on rank 0, a "
    "slower loader or device) arrive at a collective at different times.",
    remedy="Balance the work: batches by length, experts by load; avoid work that one rank alone "
    "does in each step. A pipeline waits less with more micro-batches, or with several stages on "
    "a rank.",
    saving="Unknown. The time in which another rank only waited is given as a figure, from 3% of "
    "the usual step and only what exceeds the effect of slower launching: ranks differ in that "
    "while they are profiled, and in the work that they wait with, without a problem. `skew()` "
    "has all of it.",
    judge=_judge,
)
