"""A finding: what to do, where, how much of a step is at stake, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

ON_RANKS = "on ranks"  # name of the figure with the ranks that have a finding


class FigureUnit(StrEnum):
    """What a figure is counted in."""

    NS = "ns"
    COUNT = "count"
    BYTES = "bytes"
    FRACTION = "fraction"
    TIMES = "times"
    TEXT = "text"


class Confidence(StrEnum):
    """How the time at stake is known."""

    MEASURED = "measured"  # time of the trace that the remedy removes
    ESTIMATED = "estimated"  # it rests on a model of what the remedied step would take
    # No more than this can go; what remains after the remedy is not known
    UPPER_BOUND = "upper_bound"


class SavingPer(StrEnum):
    """What the time at stake is counted for."""

    STEP = "step"
    # Time that only the recorded window has: it distorts its figures, training has it not
    WINDOW = "window"
    PROCESS = "process"  # time that each process spends once
    UNKNOWN = "unknown"  # unknown; reported, and counted as nothing


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, or a text, that supports the finding."""

    name: str  # its label
    value: float | str  # in its unit; a text where the unit is ``text``
    unit: FigureUnit = FigureUnit.COUNT  # a ``FigureUnit``


@dataclass(frozen=True, slots=True)
class Location:
    """The place that a finding is about; what is not known, or is not of one place, is ``None``.

    Attributes:
        file, line, code: line of the model, and its text.
        module: path from the user's model.
        kernel: name of the kernel.
        graph: torch's number of the compile, such as 0/0.
    """

    file: str | None = None
    line: int | None = None
    code: str | None = None
    module: str | None = None
    kernel: str | None = None
    graph: str | None = None


NOWHERE = Location()


@dataclass(frozen=True, slots=True)
class Finding:
    """One recommendation."""

    rule: str  # name of the rule, and of its section in the documentation
    summary: str  # the problem, in one sentence
    location: Location  # the place
    est_saving_ns: int  # time that the remedy can save, per ``saving_per``
    total_ns: int  # the whole of that: the wall time of a step, say
    saving_per: SavingPer  # the unit of that time: per step, say
    confidence: Confidence  # how the time is known
    evidence: tuple[Figure, ...]  # the figures behind it
    remedy: str  # what to try
    overlaps_with: tuple[str, ...] = ()  # rules of larger findings that count most of the same time
    rank: int = 0  # the rank where it was found

    @property
    def fraction(self) -> float:
        """Which part of the whole is at stake."""
        return self.est_saving_ns / self.total_ns if self.total_ns else 0.0


@dataclass(frozen=True, slots=True)
class SkippedRule:
    """A rule that could not be judged.

    Attributes:
        rule: its name.
        reason: what it lacks, in one sentence.
        rank: the rank that lacks it.
    """

    rule: str
    reason: str
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of all rules of a session."""

    # The findings, most time at stake first; further ones of general rules last
    ranked: tuple[Finding, ...] = ()
    rules_skipped: tuple[
        SkippedRule, ...
    ] = ()  # the rules that could not be judged, in their order
    rules_evaluated: int = 0  # number of rules that could
    step_ns: int = 0  # wall time of the usual step
    unprofiled_step_ns: int | None = None  # the same without recording, where measured
