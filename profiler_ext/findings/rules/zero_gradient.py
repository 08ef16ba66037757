"""The rule for work whose gradient is zero: the loss reads nothing, or only a part, of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import Candidate, Rule, Turn, count_and_time
from profiler_ext.findings.rules import (
    discarded_work,
    frozen_network,
    padded_batch,
    product_with_zeros,
)
from profiler_ext.findings.values import (
    ALL,
    ValueGroup,
    gradients_under,
    grouped,
    saved_of_rows_ns,
    unsaid,
    values_of,
    weighed_by_gradients,
)
from profiler_ext.records.values import GradientValues, StepValues

_MIN_SHARE = 0.25
_NOTHING = 0.99  # of the gradient; less has rows that the loss reads
_BY_TEXT = (discarded_work.RULE, product_with_zeros.RULE, padded_batch.RULE, frozen_network.RULE)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    values = values_of(facts)
    if isinstance(values, CannotJudge):
        return values
    return unsaid(facts, _candidates(facts, values), _BY_TEXT)


def _candidates(facts: Facts, values: StepValues) -> Iterator[Candidate]:
    for group in grouped(facts, weighed_by_gradients(facts, values), _MIN_SHARE):
        duration_ns = facts.launches.duration_ns[group.launches]
        zero = float(np.average(group.part, weights=np.maximum(duration_ns, 1)))
        is_all = group.share >= ALL and zero >= _NOTHING
        yield Candidate(
            summary=_summary(zero, is_all=is_all),
            est_saving_ns=facts.removed_per_step_ns(group.launches)
            if is_all
            else saved_of_rows_ns(facts, group),
            confidence=Confidence.ESTIMATED if is_all else Confidence.UPPER_BOUND,
            remedy="leave it out, or compute it without gradients where it is read"
            if is_all
            else "select what the loss reads before this, not after",
            location=group.location,
            evidence=_evidence(facts, group, values, zero),
            launches=group.launches,
        )


def _summary(zero: float, *, is_all: bool) -> str:
    if is_all:
        return "the loss reads nothing of this: its gradient is zero"
    return f"the loss reads {1 - zero:.0%} of what this computes"


def _evidence(
    facts: Facts, group: ValueGroup, values: StepValues, zero: float
) -> tuple[Figure, ...]:
    reader = _reader(gradients_under(facts, group, values))
    return (
        *count_and_time(facts, group.launches),
        Figure("of its gradient is zero", zero, FigureUnit.FRACTION),
        *((Figure("what reads it", reader, FigureUnit.TEXT),) if reader else ()),
        *group.figures(),
    )


def _reader(gradients: Sequence[GradientValues]) -> str:
    """Return what reads so little, with its line, if all have the same."""
    readers = {(each.reader, each.reader_at) for each in gradients}
    (reader, where), *others = readers or {("", None)}
    if others or not reader:
        return ""
    name = reader.partition("Backward")[0] or reader
    return f"{name}, {PurePath(where.file).name}:{where.line}" if where else name


RULE = Rule(
    name="zero_gradient",
    title="Work whose gradient is zero",
    means="The gradients of what the ops of a line return, or of all that it calls, are zero: as a "
    "whole, or in rows, positions or samples that are zero throughout, a quarter or more by time. "
    "The gradients of one step before the recording were read on the device "
    "(`profile(values=True)`, `profiler-ext run --values`), so that this holds for that step. "
    "Zeros count where what reads so little takes elements by their place, or by what it is "
    "given (a slice, an index, ignored labels, a mask, a weight of zero). They do not where it "
    "selects by values (a maximum, `topk`, ReLU), as the forward has to know all for that, where "
    "dropout or a saturated softmax makes them, nor in parts of what an op computes together "
    "(FFTs, recurrent networks). Where something reads the results without a gradient, too, a "
    "matcher in `torch.no_grad()`, only the backward counts. What a rule of the program's text "
    "reports of the same launches is left to that.",
    because="A loss term is multiplied by zero, labels are ignored (`ignore_index`) after the "
    "logits were computed, a crop follows a convolution, or samples are dropped after the network "
    "ran on them. Forward and backward compute all of it.",
    remedy="Select the rows, positions or samples before the line that computes them. Leave a term "
    "out whose weight is zero: `if weight: loss = loss + weight * entropy(logits)`. What only a "
    "metric reads needs no gradient: compute it under `torch.no_grad()`.",
    saving="Where all of the gradient is zero, the time of forward and backward on the critical "
    "path, with the CPU's time for launching them. Of a part that part of the time of launches of "
    "10 us or more on the critical path, an upper bound: other code may read the rest. Other rules "
    "count of these launches nothing.",
    judge=_judge,
    turn=Turn.REMOVES,
)
