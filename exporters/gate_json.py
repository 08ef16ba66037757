"""Owns the outcome of a gate as a part of the answer that a comparison is for programs."""

from __future__ import annotations

from typing import Annotated

from profiler_ext.exporters.answers.parts import Part, about
from profiler_ext.gate.chosen import PlacedLine
from profiler_ext.gate.records import Gate, Evaluation, Result


class PlacedFacts(Part, frozen=True, kw_only=True):
    """A line with a part of a change."""

    file: str
    line: int | None
    code: str | None
    is_in_head: Annotated[bool, about("false: the head has the line no more")]
    delta_ns: Annotated[float, about("of a mean step")]


class JudgedFacts(Part, frozen=True, kw_only=True):
    """One thing that a condition was held against."""

    name: Annotated[str | None, about("null where it is the sum of all that is meant")]
    unit: Annotated[str, about("of the numbers: ns, of a mean step or a run's compiles; or bytes")]
    base: float
    head: float
    delta: float
    fraction: Annotated[float | None, about("the difference as a part of the base")]
    low: Annotated[float | None, about("lower end of the difference's 95% interval")]
    high: Annotated[float | None, about("upper end of it")]
    q_value: float | None
    verdict: Annotated[str | None, about("words.md; null of bytes, which are counted")]
    outcome: Annotated[str, about("passed, unclear, too_few or failed: words.md")]
    lines: Annotated[list[PlacedFacts], about("of what failed, where most of it is")]


class ConditionFacts(Part, frozen=True, kw_only=True):
    """A condition, and what came of it."""

    condition: Annotated[str, about("as it was written")]
    outcome: Annotated[str, about("the worst of all that it was held against")]
    judged: list[JudgedFacts]


class GateFacts(Part, frozen=True, kw_only=True):
    """What came of the conditions of --fail-if."""

    outcome: Annotated[str, about("the worst of all: passed, unclear, too_few or failed")]
    conditions: list[ConditionFacts]


def gate_facts(gate: Gate) -> GateFacts:
    """Return what came of all conditions for a program.

    Args:
        gate: what came of them.
    """
    return GateFacts(outcome=gate.outcome, conditions=[_condition(each) for each in gate.results])


def _condition(result: Result) -> ConditionFacts:
    return ConditionFacts(
        condition=result.condition.text,
        outcome=result.outcome,
        judged=[_judged(each) for each in result.judged],
    )


def _judged(judged: Evaluation) -> JudgedFacts:
    interval = judged.interval
    return JudgedFacts(
        name=judged.name or None,
        unit=judged.unit,
        base=judged.base,
        head=judged.head,
        delta=judged.delta,
        fraction=judged.fraction,
        low=None if interval is None else interval.low_ns,
        high=None if interval is None else interval.high_ns,
        q_value=None if interval is None else interval.q_value,
        verdict=judged.verdict,
        outcome=judged.outcome,
        lines=[_placed(line) for line in judged.lines],
    )


def _placed(line: PlacedLine) -> PlacedFacts:
    return PlacedFacts(
        file=line.subject.file or "",
        line=line.subject.line,
        code=line.subject.code,
        is_in_head=line.is_in_head,
        delta_ns=line.delta_ns,
    )
