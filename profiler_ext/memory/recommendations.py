"""What to do about the peak of memory: a finding, what a rule is, and how findings are ranked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from profiler_ext.findings.facts import CannotJudge
from profiler_ext.findings.finding import (
    NOWHERE,
    ON_RANKS,
    Confidence,
    Figure,
    FigureUnit,
    Location,
    SkippedRule,
)
from profiler_ext.findings.ranking import verdict_of
from profiler_ext.memory.pricing import MemoryFacts, memory_facts
from profiler_ext.records.analysis import Analysis

MIN_FRACTION = 0.01
"""What moves the peak by less is not reported."""


@dataclass(frozen=True, slots=True)
class MemoryFinding:
    """One recommendation about the peak of device memory."""

    summary: str  # the problem, in one sentence
    predicted_peak_bytes: int  # the peak with the remedy
    confidence: Confidence  # how that is known
    remedy: str  # what to try
    extra_ns: int | None = None  # time more per step, below 0 if less; ``None`` where unknown
    location: Location = NOWHERE
    evidence: tuple[Figure, ...] = ()
    is_reserved: bool = False  # the peaks are of reserved memory, not of allocated
    peak_bytes: int = 0  # the largest peak of the recorded steps
    rule: str = ""
    rank: int = 0

    @property
    def saved_bytes(self) -> int:
        """By how much the peak falls; below 0 where it rises."""
        return self.peak_bytes - self.predicted_peak_bytes


@dataclass(frozen=True, slots=True)
class MemoryRule:
    """A rule about memory."""

    name: str  # its name in findings and documentation
    title: str  # the heading of its section
    means: str  # what it says of a session
    because: str  # why that happens
    remedy: str  # what to try
    price: str  # how bytes and time are computed
    judge: Callable[[MemoryFacts], Iterable[MemoryFinding] | CannotJudge]


@dataclass(frozen=True, slots=True)
class MemoryFindings:
    """The results of all rules about memory, most bytes first."""

    ranked: tuple[MemoryFinding, ...] = ()
    rules_skipped: tuple[SkippedRule, ...] = ()  # those that could not be judged


def judge(analysis: Analysis, rules: Iterable[MemoryRule]) -> MemoryFindings:
    """Judge the memory of an analysis; nothing where it has no record."""
    facts, rank = memory_facts(analysis), analysis.recording.settings.rank
    if facts is None:
        return MemoryFindings()
    found: list[MemoryFinding] = []
    skipped: list[SkippedRule] = []
    for rule in rules:
        verdict = verdict_of(rule.judge, facts)
        if isinstance(verdict, CannotJudge):
            skipped.append(SkippedRule(rule.name, verdict.reason, rank))
        else:
            named = (replace(each, rule=rule.name, rank=rank) for each in verdict)
            found += [_with_peak(each, facts) for each in named]
    least_bytes = MIN_FRACTION * facts.peak_bytes
    large = [each for each in found if abs(each.saved_bytes) >= least_bytes]
    return MemoryFindings(tuple(sorted(large, key=_order)), tuple(skipped))


def _with_peak(finding: MemoryFinding, facts: MemoryFacts) -> MemoryFinding:
    return finding if finding.peak_bytes else replace(finding, peak_bytes=facts.peak_bytes)


def _order(finding: MemoryFinding) -> int:
    return -finding.saved_bytes


def merged(judged: Sequence[MemoryFindings]) -> MemoryFindings:
    """Merge the findings of several ranks; of equal ones the largest stays, with its ranks."""
    if len(judged) == 1:
        return judged[0]
    alike: dict[tuple[str, str, Location], list[MemoryFinding]] = {}
    for each in (finding for of_rank in judged for finding in of_rank.ranked):
        alike.setdefault((each.rule, each.summary, each.location), []).append(each)
    ranked = sorted(map(_of_ranks, alike.values()), key=_order)
    return MemoryFindings(tuple(ranked), tuple(s for each in judged for s in each.rules_skipped))


def _of_ranks(alike: list[MemoryFinding]) -> MemoryFinding:
    ranks = ", ".join(str(each.rank) for each in alike)
    first = min(alike, key=_order)
    figure = Figure(ON_RANKS, ranks, FigureUnit.TEXT)
    return replace(first, evidence=(*first.evidence, figure))
