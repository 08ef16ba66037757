"""Owns the rule of a rank that the others wait for."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.collectives import transfers_ns, where_most
from profiler_ext.findings.enclosing import enclosing
from profiler_ext.findings.facts import Facts, Lacking, Rows, where_of
from profiler_ext.findings.finding import NOWHERE, Figure, FigureUnit, Stake, Sureness, Where
from profiler_ext.findings.pace import NO_ROW
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.kineto.classify import is_all_to_all
from profiler_ext.records import IdleCause, Ints

_LEAST = 0.03
_LEAST_ALONE = 0.1
_OWN = (
    IdleCause.PYTHON,
    IdleCause.DATA_LOADER,
    IdleCause.SYNCHRONISATION,
    IdleCause.AFTER_SYNCHRONISATION,
    IdleCause.ALLOCATING,
    IdleCause.COMPILING,
)
"""What one rank does and another does not; that one launches more slowly is often the recording."""
_MESSAGES = ("send", "recv")
_RANKS = (
    "this rank waits for others: its collectives take longer than equal ones",
    "merge the sessions of all ranks (profiler-ext merge), which tells who came last, and what "
    "kept it",
)
_STAGES = (
    "this rank waits for messages of others, as stages of a pipeline do",
    "more micro-batches, a schedule with several stages on a rank, or stages that take equally "
    "long; merged sessions do not tell who came last, as messages have no number",
)
_SLOWER = (IdleCause.LAUNCHING, IdleCause.AUTOGRAD)
"""A CPU that is slower, or more in demand, is so in these and in Python alike."""


def _judge(facts: Facts) -> Iterable[Candidate] | Lacking:
    communication = facts.analysis.communication
    if not len(communication):
        return Lacking("no rank communicates in this session")
    if np.ma.getmaskarray(communication.late_ns).all():
        return _alone(facts)
    late = facts.analysis.lateness
    rows = np.flatnonzero(late.cause.where(*_OWN))
    launches = late.launch[rows]
    waited_ns = _waited_ns(facts, _OWN)
    if waited_ns - _waited_ns(facts, _SLOWER) < _LEAST * facts.step_ns:
        return ()
    where, doing = _most(facts, rows)
    return (
        Candidate(
            what=f"the other ranks wait for rank {facts.analysis.recording.settings.rank}",
            at_stake_ns=0,
            stake=Stake.UNKNOWN,
            sureness=Sureness.ESTIMATED,
            remedy="look at what this rank does and the others do not: more work, a slower "
            "loader, logging or checks on one rank alone; share it, or do it on all",
            where=where,
            why=(
                Figure("they wait for that a step", waited_ns, FigureUnit.NS),
                Figure("collectives that it was the last in", len(np.unique(launches))),
                Figure("it spent more time in", doing, FigureUnit.TEXT),
            ),
        ),
    )


def _alone(facts: Facts) -> Iterable[Candidate] | Lacking:
    """Say of one rank alone that it waits, where collectives differ much that move as much."""
    communication = facts.analysis.communication
    rows = np.flatnonzero(facts.in_steps(facts.launches.start_ns >= 0)[communication.launch])
    launches, exposed_ns = communication.launch[rows], communication.exposed_ns[rows]
    transfer_ns, _ = transfers_ns(facts, rows)
    beyond_ns = exposed_ns - transfer_ns
    lost_ns = facts.of_usual_step(launches, beyond_ns)
    if not len(rows) or lost_ns < _LEAST_ALONE * facts.step_ns:
        return Lacking("the sessions of all ranks together tell it: merge them")
    is_message = _are_messages(facts, rows)
    of_messages_ns = facts.of_usual_step(launches[is_message], beyond_ns[is_message])
    what, remedy = _STAGES if of_messages_ns > lost_ns / 2 else _RANKS
    return (
        Candidate(
            what=what,
            at_stake_ns=0,
            stake=Stake.UNKNOWN,
            sureness=Sureness.ESTIMATED,
            remedy=remedy,
            where=where_most(facts, rows),
            why=(
                Figure("collectives a step", facts.count_in_usual_step(launches)),
                Figure("exposed", facts.of_usual_step(launches, exposed_ns), FigureUnit.NS),
                Figure("beyond the quickest that move as much", lost_ns, FigureUnit.NS),
            ),
            launches=launches,
        ),
    )


def _are_messages(facts: Facts, rows: Ints) -> Rows:
    """Tell which collectives go from one rank to another; they have no number that ranks share.

    NCCL sends all-to-alls with the kernel of messages: the range around the call tells them apart.
    """
    communication, events = facts.analysis.communication, facts.analysis.recording.trace.events
    names = communication.collective
    messages = (name for name in names.strings if name.lower().startswith(_MESSAGES))
    calls = facts.pace.call[communication.launch[rows]]
    known = np.flatnonzero(calls != NO_ROW)
    of_all = np.zeros(len(rows), np.bool_)
    for name in filter(is_all_to_all, events.name.strings):
        of_all[known] |= enclosing(events, calls[known], name) != calls[known]
    return names.where(*messages)[rows] & ~of_all


def _waited_ns(facts: Facts, causes: tuple[IdleCause, ...]) -> int:
    """Return how long others waited for this rank in the usual step because of some causes."""
    late = facts.analysis.lateness
    rows = np.flatnonzero(late.cause.where(*causes))
    return facts.of_usual_step(late.launch[rows], late.duration_ns[rows])


def _most(facts: Facts, rows: Ints) -> tuple[Where, str]:
    """Return what made this rank late for most of the time, and where."""
    late = facts.analysis.lateness
    sums: dict[tuple[Where, str], int] = {}
    for row in rows.tolist():
        place = late.places[int(late.place[row])]
        cause = late.cause[row]
        where = NOWHERE if place.line is None else where_of(place)
        key = where, IdleCause(cause).words
        sums[key] = sums.get(key, 0) + int(late.duration_ns[row])
    return max(sums, key=lambda each: sums[each])


RULE = Rule(
    name="late_rank",
    title="A rank that the others wait for",
    means="In collectives that no rank can leave before all have come, this rank came last, and "
    "the others waited for it, because it spent more time in Python, the data loader, waiting "
    "for its device, allocating or compiling than the rank that waited. Of one rank alone: in a "
    "tenth of a step its collectives are exposed beyond what the quickest take that move as much. "
    "Where most of these are messages from stage to stage of a pipeline, it says so.",
    because="Ranks that have different work (longer sequences, more experts, logging on rank 0, a "
    "slower loader or a slower device) come to a collective at different times.",
    remedy="Share the work evenly: batches by length, experts by load; leave out what one rank "
    "alone does in each step. A pipeline waits less with more micro-batches, or with several "
    "stages on a rank.",
    stake="Not known. How long another rank had nothing to run but to wait for that is a figure, "
    "from 3% of the usual step on, and so much more than what slower launching makes them wait: "
    "recorded ranks differ in that, and in what they compute for, without a flaw. `skew()` has "
    "all of it.",
    judge=_judge,
)
