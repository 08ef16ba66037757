"""The rule for gradients that are reduced after each micro-batch of a step."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from profiler_ext.findings import collectives, rule
from profiler_ext.findings.facts import CannotJudge, Facts, median_per_step
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, SavingPer
from profiler_ext.records.events import Ints

_MIN_FRACTION, _MIN_HIDDEN = 0.03, 0.1
_MAX_IDLE = 0.3
_NS = FigureUnit.NS
_DDP = "DDP's no_sync() around all micro-batches but the last, forward and backward"
_FSDP = (
    "FSDP's set_requires_gradient_sync(False), for all micro-batches but the last, if "
    "unsharded gradients fit in memory"
)


def _judge(facts: Facts) -> Iterable[rule.Candidate] | CannotJudge:
    communication = facts.analysis.communication
    if not len(communication):
        return CannotJudge("no rank communicates in this session")
    passes = collectives.passes_of(facts)
    kind = communication.collective
    gathers = [at for at, name in enumerate(kind.strings) if "gather" in name]
    rows = np.flatnonzero(
        collectives.is_repeated_per_pass(facts, passes) & ~np.isin(kind.codes, gathers)
    )
    last = passes.number == passes.count - 1
    avoidable = rows[~last[communication.launch[rows]]]
    transfer_ns, is_measured = collectives.exposed_transfers_ns(facts, avoidable)
    est_saving_ns = facts.median_per_step(communication.launch[avoidable], transfer_ns)
    if est_saving_ns >= _MIN_FRACTION * facts.step_ns:
        return (_candidate(facts, rows, passes, est_saving_ns if is_measured else None),)
    if _transfer_ns(facts, avoidable) >= _MIN_HIDDEN * facts.step_ns:
        return (_candidate(facts, rows, passes, None),)
    return ()


def _transfer_ns(facts: Facts, rows: Ints) -> int:
    """Return the time of collectives without waits, exposed or not."""
    communication = facts.analysis.communication
    launches, waiting = communication.launch[rows], communication.waiting_ns[rows]
    single_rank_ns = np.ma.minimum(
        facts.launches.duration_ns[launches], collectives.fastest_equal_ns(facts, launches)
    )
    merged_ns = facts.launches.duration_ns[launches] - waiting.filled(0)
    transfer_only_ns = np.where(np.ma.getmaskarray(waiting), single_rank_ns.filled(0), merged_ns)
    return facts.median_per_step(launches, transfer_only_ns)


def _candidate(
    facts: Facts, rows: Ints, passes: collectives.Passes, est_saving_ns: int | None
) -> rule.Candidate:
    communication = facts.analysis.communication
    launches, exposed_ns = communication.launch[rows], communication.exposed_ns[rows]
    idle_ns = median_per_step(facts, np.arange(len(facts.analysis.idle.duration_ns)))
    is_claimed = est_saving_ns is not None and idle_ns < _MAX_IDLE * facts.step_ns
    is_sharded = bool(collectives.is_sharding(facts, launches).any())
    took_ns = facts.median_per_step(launches, facts.launches.duration_ns[launches])
    return rule.Candidate(
        summary="gradients are reduced after every micro-batch",
        est_saving_ns=est_saving_ns if est_saving_ns is not None and is_claimed else 0,
        saving_per=SavingPer.STEP if is_claimed else SavingPer.UNKNOWN,
        confidence=Confidence.ESTIMATED,
        remedy=_FSDP if is_sharded else _DDP,
        location=collectives.dominant_location(facts, rows),
        evidence=(
            Figure("micro-batches a step", int(passes.count[launches].max())),
            Figure("collectives a step", facts.launches_per_step(launches)),
            Figure("they take", took_ns, _NS),
            Figure("exposed", facts.median_per_step(launches, exposed_ns), _NS),
            collectives.waited(facts, rows),
        ),
        launches=launches,
    )


RULE = rule.Rule(
    name="repeated_reduction",
    title="Gradients reduced after each micro-batch",
    means="A step ran forward and backward several times before its optimizer, and reduced the "
    "same gradients across ranks after each of them.",
    because="DDP reduces at the end of each backward unless `no_sync()` says that more will "
    "follow; FSDP does the same. The optimizer needs the sum once.",
    remedy="`no_sync()` of DDP around all micro-batches but the last, "
    "`set_requires_gradient_sync(False)` of FSDP2.",
    saving="Exposed time of these collectives in all micro-batches but the last, without the time "
    "in which they waited for the last rank. Reported from 3% of the usual step. For one rank "
    "alone, each collective counts as long as the fastest one that moves as much. Nothing is "
    "claimed with fewer than eight of those, if the device waits for the CPU for three tenths of "
    "a step, or if the collectives are hidden: they slow the work that they overlap, by an "
    "unknown amount. The finding says so if they take a tenth of a step.",
    not_on_cpu="the launches ran on the CPU, where nothing can be hidden",
    judge=_judge,
)
