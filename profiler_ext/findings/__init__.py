"""Owns what to do first: rules that judge an analysis, and the findings that they make of it."""

from collections.abc import Sequence

from profiler_ext.findings.facts import facts_of
from profiler_ext.findings.finding import (
    NOWHERE,
    ON_RANKS,
    Figure,
    FigureUnit,
    Finding,
    Findings,
    Stake,
    Confidence,
    Unjudged,
    Location,
)
from profiler_ext.findings.ranking import MIN_FRACTION, judge, merge_ranks
from profiler_ext.findings.rule import Rule
from profiler_ext.findings.rules import RULES
from profiler_ext.records import Analysis

__all__ = [
    "MIN_FRACTION",
    "NOWHERE",
    "ON_RANKS",
    "RULES",
    "Figure",
    "FigureUnit",
    "Finding",
    "Findings",
    "Rule",
    "Stake",
    "Sureness",
    "Unjudged",
    "Where",
    "find",
    "find_on_ranks",
    "training_steps",
]


def find(analysis: Analysis) -> Findings:
    """Return what to do first, by all rules.

    Args:
        analysis: what attribution found.
    """
    return analysis.derived.once("findings", lambda: judge(analysis, RULES))


def training_steps(analysis: Analysis) -> tuple[int, ...]:
    """Return how long steps took before the recording, in ns; none where that is not known.

    Args:
        analysis: what attribution found.
    """
    return facts_of(analysis).training_steps_ns if analysis.steps else ()


def find_on_ranks(analyses: Sequence[Analysis]) -> Findings:
    """Return what to do first on any of several ranks, by all rules.

    Args:
        analyses: one for each rank.
    """
    return merge_ranks([find(analysis) for analysis in analyses])
