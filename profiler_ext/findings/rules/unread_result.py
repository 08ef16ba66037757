"""The rule for results that nothing reads, or of which little is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import ON_CPU, Candidate, Rule, Turn, count_and_time
from profiler_ext.findings.rules import (
    autograd_in_inference,
    discarded_work,
    frozen_network,
    repeated_result,
    row_products,
)
from profiler_ext.findings.values import (
    ALL,
    grouped,
    saved_ns,
    unsaid,
    values_of,
    weighed_by_reads,
)
from profiler_ext.records.values import StepValues
from profiler_ext.records.vocabulary import Scope

_MIN_SHARE = 0.25
_BY_TEXT = (
    discarded_work.RULE,
    autograd_in_inference.RULE,
    frozen_network.RULE,
    row_products.RULE,
    repeated_result.RULE,
)
_UNSEEN = CannotJudge("kernels ran that no op of torch launched: what they read is not known")


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    values = values_of(facts)
    if isinstance(values, CannotJudge):
        return values
    is_alone = np.ma.getmaskarray(facts.launches.op_event)
    if facts.in_steps(is_alone & facts.launches.scope.where(Scope.EAGER)).any():
        return _UNSEEN
    return unsaid(facts, _candidates(facts, values), _BY_TEXT)


def _candidates(facts: Facts, values: StepValues) -> Iterator[Candidate]:
    for group in grouped(facts, weighed_by_reads(facts, values), _MIN_SHARE):
        duration_ns = np.maximum(facts.launches.duration_ns[group.launches], 1)
        unread = float(np.average(group.part, weights=duration_ns))
        is_all = group.share >= ALL and unread >= ALL
        yield Candidate(
            summary="nothing reads what this computes"
            if is_all
            else f"{1 - unread:.0%} of what this computes is read",
            est_saving_ns=saved_ns(facts, group),
            confidence=Confidence.ESTIMATED if is_all else Confidence.UPPER_BOUND,
            remedy="leave it out, or compute it only where it is read"
            if is_all
            else "compute the part that is read: select before this, not after",
            location=group.location,
            evidence=(
                *count_and_time(facts, group.launches),
                Figure("of its results nothing reads", unread, FigureUnit.FRACTION),
                *group.figures(),
            ),
            launches=group.launches,
        )


RULE = Rule(
    name="unread_result",
    title="Results that nothing reads",
    means="Ops of a line, or of all that it calls, return tensors that no op of the step reads and "
    "that are freed by its end, or that only such ops read, as a compiler finds dead code. Or "
    "only views of a part are read, rows that an index picks, or a diagonal; an op on each element "
    "needs as much of what it is given as of what it returns. A quarter or more, by time. The ops "
    "of one step before the recording were followed (`profile(values=True)`, `profiler-ext run "
    "--values`), so that this holds for that step. It is not judged where kernels run that no op "
    "of torch launched, which may read anything. What a rule of the program's text reports of the "
    "same launches is left to that, and only what runs eagerly counts.",
    because="Torch computes what it is asked for. Forces are computed with each energy, costs of "
    "all pairs of which blocks on the diagonal are read, scores that were only read for a log "
    "that is gone, logits of all positions where the last one is read.",
    remedy="Leave it out, or ask for it only where it is read. Of a part: select rows, blocks or "
    "positions before the line that computes them; a product of each row with its own column in "
    "place of the diagonal of all products.",
    saving="Where nothing is read the time on the critical path, with the CPU's time for "
    "launching. Of a part that part of the time of launches of 10 us or more, an upper bound.",
    not_on_cpu=ON_CPU,
    judge=_judge,
    turn=Turn.REMOVES,
)
