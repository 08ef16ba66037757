"""The rule for rows that are equal, each of which an op computes again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts
from profiler_ext.findings.finding import Confidence, Figure, FigureUnit
from profiler_ext.findings.rule import Candidate, Rule, count_and_time
from profiler_ext.findings.rules import gathered_rows, padded_batch, repeated_call
from profiler_ext.findings.values import (
    ValueGroup,
    Weighed,
    grouped,
    saved_of_rows_ns,
    unsaid,
    values_of,
    weighed_by_rows,
)

_MIN_SHARE = 0.5
_MIN_ROWS = 3  # fewer are a percentage: "1 of 2" may be 3 of 5
_BY_TEXT = (repeated_call.RULE, padded_batch.RULE, gathered_rows.RULE)


def _judge(facts: Facts) -> Iterable[Candidate] | CannotJudge:
    values = values_of(facts)
    if isinstance(values, CannotJudge):
        return values
    return unsaid(facts, _candidates(facts, weighed_by_rows(facts, values)), _BY_TEXT)


def _candidates(facts: Facts, weighed: Weighed) -> Iterator[Candidate]:
    for group in grouped(facts, weighed, _MIN_SHARE):
        duration_ns = facts.launches.duration_ns[group.launches]
        equal = float(np.average(group.part, weights=np.maximum(duration_ns, 1)))
        yield Candidate(
            summary=_summary(equal),
            est_saving_ns=saved_of_rows_ns(facts, group),
            confidence=Confidence.ESTIMATED,
            remedy="compute the rows that differ, then gather or repeat the result",
            location=group.location,
            evidence=_evidence(facts, group, equal),
            launches=group.launches,
        )


def _evidence(facts: Facts, group: ValueGroup, equal: float) -> tuple[Figure, ...]:
    return (
        *count_and_time(facts, group.launches),
        Figure("rows equal to one before", equal, FigureUnit.FRACTION),
        *group.figures(),
    )


def _summary(equal: float) -> str:
    rows = round(1 / max(1 - equal, 1e-6))
    if equal < 1 and rows >= _MIN_ROWS:
        return f"1 of {rows:,} rows is different: the others are computed again"
    return f"{equal:.0%} of the rows are equal to others, and are computed again"


RULE = Rule(
    name="equal_rows",
    title="Rows that are equal and are computed one by one",
    means="What the ops of a line return, or of all that it calls, has rows (all dimensions but "
    "the last) that are equal, bit by bit, to a row before them in the tensor: half of it or more, "
    "by time. Values of one step before the recording were compared on the device "
    "(`profile(values=True)`, `profiler-ext run --values`), so that this holds for that step. Rows "
    "of one value throughout do not count, nor do ops that only move data, such as lookups and "
    "copies, nor what a rule of the program's text reports of the same launches.",
    because="A network runs on rows that were gathered from a small table, on samples that were "
    "repeated, or on padding. It computes each row by itself, and the same for equal rows.",
    remedy="Run it on the distinct rows, then gather what it returns: on the table before the "
    "lookup, on the samples before they are repeated, on `x.unique(dim=0, return_inverse=True)` "
    "with the result indexed by the inverse. Keep what is random, such as dropout, after that.",
    saving="The part of equal rows of the time of launches of 10 us or more on the critical path, "
    "forward and backward of these lines; shorter ones take as long for fewer rows.",
    judge=_judge,
)
