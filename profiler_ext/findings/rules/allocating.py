"""The rule for steps that allocate and free device memory through the driver."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from profiler_ext.findings import finding, rule
from profiler_ext.findings.facts import (
    CannotJudge,
    Facts,
    idle_by_line,
    idle_pieces,
    idle_spans_per_step,
    median_per_step,
)
from profiler_ext.findings.groups import Kind
from profiler_ext.findings.launch_groups import groups_of
from profiler_ext.records import events, vocabulary


def _judge(facts: Facts) -> Iterable[rule.Candidate] | CannotJudge:
    rows = idle_pieces(facts, vocabulary.IdleCause.ALLOCATING)
    idle_ns = median_per_step(facts, rows)
    if not idle_ns:
        return ()
    # While the device is busy such a call uses up the CPU's lead, and it idles later
    saved_ns = [each.saving_ns for each in groups_of(facts, Kind.ALLOCATING)]
    lines = idle_by_line(facts, rows, facts.analysis.idle.cause_place)
    duration_ns = facts.analysis.idle.duration_ns
    return (
        rule.Candidate(
            summary=f"the device waits while memory is taken from the driver, {_when(facts, rows)}",
            est_saving_ns=max([idle_ns, *saved_ns]),
            confidence=finding.Confidence.ESTIMATED,
            remedy=(
                "remove torch.cuda.empty_cache(); keep sizes equal, or set "
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
            ),
            location=max(lines, key=lambda where: int(np.sum(duration_ns[lines[where]]))),
            evidence=(
                finding.Figure("idle spans a step", idle_spans_per_step(facts, rows)),
                finding.Figure("idle meanwhile", idle_ns, finding.FigureUnit.NS),
            ),
            idle=rows,
        ),
    )


def _when(facts: Facts, rows: events.Ints) -> str:
    """Say in which steps: what a program does once at its start is in no later one."""
    steps = len(facts.analysis.steps)
    having = len(np.unique(facts.analysis.idle.step[rows]))
    if steps == 1:
        return "in the one step that was recorded"
    return "in each step" if having == steps else f"in {having} of {steps} steps"


RULE = rule.Rule(
    name="allocating",
    title="Memory allocated from the driver within steps",
    means="In the usual step the CPU was in `cudaMalloc`, `cudaFree` or similar calls while the "
    "device was idle. If only one step was recorded, it may be the program's first one; the "
    "finding says so.",
    because="torch caches the memory that it allocates. It asks the driver again after "
    "`empty_cache()`, or if sizes change so that no cached block fits.",
    remedy="Do not empty the cache in the loop; pad to few sizes; "
    "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` lets blocks grow.",
    saving="Idle time of the usual step in which the CPU allocated or freed memory; or, if that is "
    "more, how much shorter the step would be in a replay without these calls: freeing waits for "
    "the device, and both use up the CPU's lead.",
    not_on_cpu="the launches ran on the CPU, whose memory torch does not keep",
    judge=_judge,
)
