"""Owns the rule of collectives beside which the device computes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.collectives import beside_collectives, quickest_ns
from profiler_ext.findings.facts import Facts, Lacking, where_of
from profiler_ext.findings.finding import Figure, FigureUnit, Stake, Sureness
from profiler_ext.findings.rule import Candidate, Rule
from profiler_ext.records import Ints, MaskedInts, Phase

_NS = FigureUnit.NS
_HALF = 0.5
_GATHER = "gather"
_LEAST = 0.1
"""Something of each collective is exposed; less than this was hardly won by hiding it."""
_WON, _LOST = 0.6, 0.1
"""So much of what could be hidden is won, and so much of what it would run beside is lost to it.

Fitted to all-reduces on two H200s (torch 2.11) that had 2, 4, 8 and 24 blocks: hidden, they take
1.2 to 1.6 times as long, and products in bf16 beside them 1.2 to 1.4 times; the last one stays.
"""
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
        if len(rows) and (found := _candidate(facts, name or "a collective", rows)):
            yield found


def _candidate(facts: Facts, name: str, rows: Ints) -> Candidate | None:
    """Return what one kind of collective costs, where that is much of a step."""
    communication = facts.analysis.communication
    launches, exposed_ns = communication.launch[rows], communication.exposed_ns[rows]
    waiting = communication.waiting_ns[rows]
    transfer_ns, is_told = _transfers(facts, launches, exposed_ns, waiting)
    transfer_ns = np.where(facts.pace.sets[launches], transfer_ns, 0)
    beside_ns = _computed_ns(facts, name, launches)
    could_hide_ns = min(facts.of_usual_step(launches, transfer_ns), beside_ns)
    at_stake_ns = int(_WON * could_hide_ns - _LOST * beside_ns)
    if at_stake_ns < _LEAST * facts.step_ns:
        return None
    is_merged = not np.ma.getmaskarray(waiting).all()
    longest = int(launches[int(exposed_ns.argmax())])
    return Candidate(
        what=f"{name} runs while the device computes nothing",
        at_stake_ns=at_stake_ns if is_told else 0,
        stake=Stake.STEP if is_told else Stake.UNKNOWN,
        sureness=Sureness.ESTIMATED if is_merged else Sureness.UPPER_BOUND,
        remedy=_REMEDY if is_merged else _ALONE,
        where=where_of(facts.place(longest), facts.launches.name[longest]),
        why=(
            Figure("collectives a step", facts.count_in_usual_step(launches)),
            Figure("they take", facts.of_usual_step(launches, _took(facts, launches)), _NS),
            Figure("exposed", facts.of_usual_step(launches, exposed_ns), _NS),
            _waited(facts.of_usual_step(launches, waiting.filled(0)), is_merged),
            Figure("computed meanwhile, at best", beside_ns, _NS),
        ),
        launches=launches,
    )


def _computed_ns(facts: Facts, name: str, launches: Ints) -> int:
    """Return how long the device computes by itself in the phase that they could be hidden in.

    That is the backward, wherever they are called, but for what the forward gathers.
    """
    phase = facts.launches.phase
    gathers = _GATHER in name and phase.where(Phase.FORWARD)[launches].mean() > _HALF
    own = phase.where(Phase.FORWARD if gathers else Phase.BACKWARD)
    own = facts.in_steps(own & ~beside_collectives(facts))
    own[facts.analysis.communication.launch] = False
    rows = np.flatnonzero(own)
    return facts.of_usual_step(rows, facts.pace.busy_ns[rows])


def _transfers(
    facts: Facts, launches: Ints, exposed_ns: Ints, waiting: MaskedInts
) -> tuple[Ints, bool]:
    """Return what is exposed of each without the wait for another rank, and whether that is told.

    Where the ranks are not merged, the quickest of those alike bounds it, if there are enough.
    """
    is_alone = np.ma.getmaskarray(waiting)
    quickest = quickest_ns(facts, launches)
    bounded_ns = np.minimum(exposed_ns, quickest.filled(np.iinfo(np.int64).max))
    is_told = not bool((is_alone & np.ma.getmaskarray(quickest)).any())
    merged_ns = np.maximum(exposed_ns - waiting.filled(0), 0)
    return np.where(is_alone, bounded_ns, merged_ns), is_told


def _took(facts: Facts, launches: Ints) -> Ints:
    return facts.launches.duration_ns[launches]


def _waited(waiting_ns: int, is_known: bool) -> Figure:
    name = "of it waiting for the last rank"
    if is_known:
        return Figure(name, waiting_ns, FigureUnit.NS)
    return Figure(name, "one rank alone does not tell", FigureUnit.TEXT)


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
    "waited for the last rank, as far as they set the pace. How long they waited is known where "
    "the ranks are merged; of one rank alone each counts as long as the quickest that moves as "
    "much, and nothing is claimed where fewer than eight do. No more can be hidden than the device "
    "computes by itself in that phase; six tenths of that are won, less a tenth of what it would "
    "run beside, as was fitted to trials between two H200s. It is said from a tenth of a step on.",
    judge=_judge,
)
