"""Recommendations: rules that judge an analysis, and their findings."""

from collections.abc import Sequence

from profiler_ext.findings.facts import facts_of
from profiler_ext.findings.finding import (
    NOWHERE,
    ON_RANKS,
    Confidence,
    Figure,
    FigureUnit,
    Finding,
    Findings,
    Location,
    SavingPer,
    SkippedRule,
)
from profiler_ext.findings.ranking import MIN_FRACTION, judge, merge_ranks
from profiler_ext.findings.rule import Rule
from profiler_ext.findings.rules import RULES
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.step_kinds import of_usual_kind

__all__ = [
    "MIN_FRACTION",
    "NOWHERE",
    "ON_RANKS",
    "RULES",
    "Confidence",
    "Figure",
    "FigureUnit",
    "Finding",
    "Findings",
    "Location",
    "Rule",
    "SavingPer",
    "SkippedRule",
    "find",
    "find_on_ranks",
    "training_steps",
    "usual_step_ns",
]


def find(analysis: Analysis) -> Findings:
    """Return what to do first, by all rules: in steps of the kind that most are of."""
    return analysis.derived.once("findings", lambda: judge(of_usual_kind(analysis), RULES))


def training_steps(analysis: Analysis) -> tuple[int, ...]:
    """Return how long steps took before the recording, in ns; none where that is not known."""
    usual = of_usual_kind(analysis)
    return facts_of(usual).training_steps_ns if usual.steps else ()


def usual_step_ns(analysis: Analysis) -> tuple[int, bool]:
    """Return the time of the usual step, and whether it is known without profiling."""
    facts = facts_of(analysis)
    is_known = facts.training.is_known
    return (facts.training.step_ns if is_known else facts.step_ns), is_known


def find_on_ranks(analyses: Sequence[Analysis]) -> Findings:
    """Return what to do first on any of several ranks, by all rules."""
    return merge_ranks([find(analysis) for analysis in analyses])
