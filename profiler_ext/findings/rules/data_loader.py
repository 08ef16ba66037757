"""The rule for steps in which the device waits for the next batch."""

from __future__ import annotations

from collections.abc import Iterable

from profiler_ext.findings import finding, rule
from profiler_ext.findings.facts import (
    CannotJudge,
    Facts,
    idle_by_line,
    idle_pieces,
    median_per_step,
)
from profiler_ext.kineto import classify
from profiler_ext.records.vocabulary import IdleCause


def _judge(facts: Facts) -> Iterable[rule.Candidate] | CannotJudge:
    rows = idle_pieces(facts, IdleCause.DATA_LOADER)
    if not len(rows):
        return ()
    lines = idle_by_line(facts, rows, facts.analysis.idle.cause_place)
    est_saving_ns = median_per_step(facts, rows)
    return (
        rule.Candidate(
            summary="GPU idle: waiting for the data loader",
            est_saving_ns=est_saving_ns,
            confidence=finding.Confidence.UPPER_BOUND,
            remedy=_remedy(facts),
            location=max(lines, key=lambda where: median_per_step(facts, lines[where])),
            evidence=(finding.Figure("idle while it loads", est_saving_ns, finding.FigureUnit.NS),),
            idle=rows,
        ),
    )


def _remedy(facts: Facts) -> str:
    names = facts.analysis.recording.trace.events.name.strings
    if any(classify.is_data_loader(name) and "_SingleProcess" in name for name in names):
        return "DataLoader(num_workers=...) of 4 or more, with pin_memory=True and prefetch_factor"
    return (
        "more workers, a larger prefetch_factor, cheaper transforms, or data that is prepared once"
    )


RULE = rule.Rule(
    name="data_loader",
    title="The device waits for the data loader",
    means="The CPU was in a `DataLoader`'s `__next__` while the device had nothing to run.",
    because="With `num_workers=0` the training loop itself makes each batch; with workers, they "
    "make batches more slowly than the device uses them.",
    remedy="Use workers that load ahead, cheaper transforms, or data that is prepared once and "
    "stored.",
    saving="Idle time of the usual step in which the CPU waited for the next batch. An upper "
    "bound: workers need cores, and the batch still has to be copied.",
    not_on_cpu="the launches ran on the CPU, which loads data itself",
    judge=_judge,
)
