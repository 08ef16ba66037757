"""The rule for activation-checkpoint recomputation."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, location_of
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import Candidate, Rule, launching
from profiler_ext.records.analysis import Place
from profiler_ext.records.vocabulary import LaunchKind, Phase

# What a checkpoint runs again; what the compiler itself recomputes is fused into its kernels
_HEAVY = (LaunchKind.EXTERN, LaunchKind.TRITON_TEMPLATE, LaunchKind.EAGER)
_MIN_HEAVY = 0.3


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    recomputed = np.flatnonzero(facts.in_steps(facts.all_places(_is_recomputed)))
    heavy = recomputed[facts.launches.kind.where(*_HEAVY)[recomputed]]
    spent_ns = facts.median_per_step(recomputed, facts.launches.duration_ns[recomputed])
    heavy_ns = facts.median_per_step(heavy, facts.launches.duration_ns[heavy])
    if not spent_ns or heavy_ns < _MIN_HEAVY * spent_ns:
        return ()
    forward = np.flatnonzero(facts.in_steps(facts.launches.phase.where(Phase.FORWARD)))
    forward_ns = facts.median_per_step(forward, facts.launches.duration_ns[forward])
    removal_saving_ns = facts.removed_per_step_ns(recomputed, leaving=True)
    return (
        Candidate(
            summary="activation-checkpoint recomputation",
            est_saving_ns=removal_saving_ns,
            confidence=Confidence.ESTIMATED,
            remedy=(
                "checkpoint fewer layers if memory allows "
                "(torch.cuda.max_memory_allocated()), or keep the matmuls with "
                "create_selective_checkpoint_contexts"
            ),
            location=location_of(facts.place(facts.longest(heavy))),
            evidence=(
                Figure("recomputed a step", spent_ns, FigureUnit.NS),
                Figure("the forward takes", forward_ns, FigureUnit.NS),
                Figure("of it in products and library calls", heavy_ns, FigureUnit.NS),
                *launching(facts, recomputed, removal_saving_ns),
            ),
            launches=recomputed,
        ),
    )


def _is_recomputed(place: Place) -> bool:
    return place.phase is Phase.RECOMPUTE


RULE = Rule(
    name="recompute",
    title="Activation-checkpoint recomputation",
    means="Launches of the backward recompute values of the forward, including matrix products "
    "and other library calls.",
    because="Activation checkpointing (`torch.utils.checkpoint`) trades time for memory. "
    "Recomputation that the compiler chooses itself is cheap, fused into its kernels, and not "
    "reported.",
    remedy="If memory is left, checkpoint fewer layers. A selective policy keeps the results of "
    "matrix products and recomputes the rest: most of the memory for little of the time.",
    saving="Time of the recomputed launches; if the CPU is behind, how much shorter the step is in "
    "a replay without them, and without the Python that leaves each checkpoint: what no checkpoint "
    "at all would save. The trace does not show how much "
    "memory it would need, so check whether it fits.",
    not_on_cpu="the launches ran on the CPU, which checkpoints for no device",
    judge=_judge,
)
