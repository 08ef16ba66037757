"""The rule for collectives that overlap no computation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

import numpy as np

from profiler_ext.findings import collectives, rule
from profiler_ext.findings.facts import CannotJudge, Facts, Rows
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit, SavingPer
from profiler_ext.records.events import Ints
from profiler_ext.records.vocabulary import Phase

# Something of each collective is exposed; less than this was hardly won by hiding it
_MIN_FRACTION = 0.08
_MIN_UNITS = 4
# The fraction of hideable time that is saved, and the slowdown of what overlaps it.
# Fitted to all-reduces on two H200s (torch 2.11) that had 2, 4, 8 and 24 blocks: hidden, they take
# 1.2 to 1.6 times as long, and overlapping bf16 products 1.2 to 1.4 times; the last one stays.
_SAVED_PART, _SLOWDOWN_PART = 0.6, 0.1
_UNITS = (
    "fully_shard each block, so that it is gathered while the one before computes "
    "(each costs the CPU 1 to 2 ms per step)"
)
_SINGLE_RANK = (
    "profiler-ext merge all ranks, which separates waiting from transfer; for the transfer: "
)


class _Part(Enum):
    """What a collective serves, which decides what could overlap it."""

    GRADIENTS = "gradients"
    GATHERS = "gathers"
    SHARDS = "shards"
    AWAITED = "awaited"


_WHAT = {
    _Part.GRADIENTS: "{} of gradients runs while the device computes nothing",
    _Part.GATHERS: "FSDP gathers parameters ({}) while the device computes nothing",
    _Part.SHARDS: "{} of FSDP runs in the backward while the device computes nothing",
    _Part.AWAITED: "the next layer waits for {} while the device computes nothing",
}
_REMEDY = {
    _Part.GRADIENTS: (
        "overlap it with the backward: DDP with bucket_cap_mb=25 and "
        "static_graph=True; or communicate less often (a larger batch), "
        "or in bfloat16"
    ),
    _Part.GATHERS: "let FSDP gather the next unit while one computes: "
    "set_modules_to_forward_prefetch, no wait for the device between units; keep what was "
    "gathered (reshard_after_forward=False)",
    _Part.SHARDS: "let FSDP communicate while the backward computes: no wait for the device "
    "between units, set_modules_to_backward_prefetch; a larger batch",
    _Part.AWAITED: "overlap two halves of the batch, or use async tensor parallelism, as only "
    "other work hides it; or move less: bfloat16, fewer ranks in that group",
}
_PHASES = {_Part.GATHERS: (Phase.FORWARD,), _Part.AWAITED: (Phase.FORWARD, Phase.BACKWARD)}


def _judge(facts: Facts) -> Iterable[rule.Candidate] | CannotJudge:
    if not len(facts.analysis.communication):
        return CannotJudge("no rank communicates in this session")
    return tuple(_by_collective(facts))


def _by_collective(facts: Facts) -> Iterator[rule.Candidate]:
    kind, passes = facts.analysis.communication.collective, collectives.passes_of(facts)
    for part, of_part in _parts(facts, passes).items():
        for code, name in enumerate(kind.strings):
            rows = np.flatnonzero((kind.codes == code) & of_part)
            if len(rows) and (candidate := _candidate(facts, name, rows, part, passes)):
                yield candidate


def _parts(facts: Facts, passes: collectives.Passes) -> dict[_Part, Rows]:
    """Classify the collectives of the steps; those of micro-batches are another rule's."""
    launches = facts.analysis.communication.launch
    in_steps = facts.in_steps(np.ones(len(facts.launches), np.bool_))[launches]
    in_forward, sharding = passes.in_forward[launches], collectives.is_sharding(facts, launches)
    size = collectives.equal_size_ids(facts, launches)
    awaited = np.isin(size, size[in_forward & ~sharding]) & ~sharding
    gradients = ~sharding & ~awaited & ~collectives.is_repeated_per_pass(facts, passes)
    return {
        _Part.GRADIENTS: gradients & in_steps,
        _Part.GATHERS: sharding & in_forward & in_steps,
        _Part.SHARDS: sharding & ~in_forward & in_steps,
        _Part.AWAITED: awaited & in_steps,
    }


def _candidate(
    facts: Facts, name: str, rows: Ints, part: _Part, passes: collectives.Passes
) -> rule.Candidate | None:
    """Return the candidate of one kind of collective, where it is much of a step."""
    communication = facts.analysis.communication
    launches = communication.launch[rows]
    transfer_ns, is_measured = collectives.exposed_transfers_ns(facts, rows)
    transfer_ns = np.where(facts.pace.is_critical[launches], transfer_ns, 0)
    spent_ns = facts.median_per_step(launches, transfer_ns)
    overlappable_ns = _overlappable_ns(facts, launches, part, passes)
    # What hiding such transfers wins; no step gets shorter than what the CPU needs.
    won_ns = int(_SAVED_PART * min(spent_ns, overlappable_ns) - _SLOWDOWN_PART * overlappable_ns)
    est_saving_ns = min(won_ns, facts.training.step_ns - facts.training.cpu_ns)
    is_unsure = part is _Part.AWAITED and not is_measured
    if is_unsure or est_saving_ns < _MIN_FRACTION * facts.step_ns:
        return None
    # Tell whether FSDP has so few units that a remedy makes more of them, which the CPU pays.
    count = facts.launches_per_step(launches) // int(passes.count[launches].max())
    is_one_unit = part in (_Part.GATHERS, _Part.SHARDS) and count < _MIN_UNITS
    is_measured &= not is_one_unit
    is_merged = not np.ma.getmaskarray(communication.waiting_ns[rows]).all()
    remedy = _UNITS if is_one_unit else _REMEDY[part]
    return rule.Candidate(
        summary=_WHAT[part].format(name or "a collective"),
        est_saving_ns=est_saving_ns if is_measured else 0,
        saving_per=SavingPer.STEP if is_measured else SavingPer.UNKNOWN,
        confidence=Confidence.ESTIMATED if is_merged else Confidence.UPPER_BOUND,
        remedy=remedy if is_merged else f"{_SINGLE_RANK}{remedy}",
        location=collectives.dominant_location(facts, rows),
        evidence=(
            *_figures(facts, rows),
            collectives.waited(facts, rows),
            Figure("computed meanwhile, at best", overlappable_ns, FigureUnit.NS),
        ),
        launches=launches,
    )


def _overlappable_ns(facts: Facts, launches: Ints, part: _Part, passes: collectives.Passes) -> int:
    """Return the computing time of the phase that could hide them."""
    # That is the backward of their pass, wherever they are called, but for what the forward
    # gathers; what the next layer waits for can be overlapped with the other half of the batch.
    phases = _PHASES.get(part, (Phase.BACKWARD,))
    own = facts.in_steps(
        facts.launches.phase.where(*phases) & ~collectives.overlaps_collective(facts)
    )
    own &= np.isin(passes.number, passes.number[launches])
    own[facts.analysis.communication.launch] = False
    rows = np.flatnonzero(own)
    return facts.median_per_step(rows, facts.pace.busy_ns[rows])


def _figures(facts: Facts, rows: Ints) -> tuple[Figure, ...]:
    communication = facts.analysis.communication
    launches, exposed_ns = communication.launch[rows], communication.exposed_ns[rows]
    took_ns = facts.median_per_step(launches, facts.launches.duration_ns[launches])
    return (
        Figure("collectives a step", facts.launches_per_step(launches)),
        Figure("they take", took_ns, FigureUnit.NS),
        Figure("exposed", facts.median_per_step(launches, exposed_ns), FigureUnit.NS),
    )


RULE = rule.Rule(
    name="exposed_communication",
    title="Communication that no computation overlaps",
    means="Collectives ran on the device while it ran nothing else.",
    because="A collective at the end of the backward has nothing to overlap with: one large "
    "bucket, gradients that are ready last. FSDP gathers a unit when it is needed if nothing "
    "prefetched it. The next layer waits for what tensor, sequence and expert parallelism send "
    "between layers. Between few devices with a fast link little is exposed, between nodes much.",
    remedy="Use smaller buckets, which start earlier; let FSDP prefetch the next unit; compute "
    "half a batch while the other half communicates; use a larger batch, which communicates less "
    "often.",
    saving="Exposed time of the collectives in the usual step, without the time in which they "
    "waited for the last rank, as far as they are on the critical path. Merged ranks show how "
    "long they waited. For one rank alone, each collective counts as long as the fastest one that "
    "moves as much, and nothing is claimed with fewer than eight of those. At most the device's "
    "own computation in the same phase can hide communication; six tenths of that are claimed, "
    "minus a tenth of the overlapped work. These figures were fitted to trials between two H200s "
    "and confirmed in others. No step is predicted to be shorter than its CPU time. Reported from "
    "8% of a step. Nothing is claimed for FSDP with fewer than four units: with more units the "
    "CPU works more, by an amount that the recording cannot show.",
    not_on_cpu="the launches ran on the CPU, where nothing can be hidden",
    judge=_judge,
)
