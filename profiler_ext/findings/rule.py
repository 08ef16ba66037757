"""What a rule is and what it returns: candidates, with figures shared by several rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import numpy as np

from profiler_ext.findings.facts import CannotJudge, Facts, location_of
from profiler_ext.findings.finding import (
    NOWHERE,
    Confidence,
    Figure,
    FigureUnit,
    Location,
    SavingPer,
)
from profiler_ext.records.events import Ints

NO_ROWS: Ints = np.empty(0, np.int64)
ON_CPU: Final = "the launches ran on the CPU"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible finding; it is reported where enough is at stake."""

    # As in ``Finding``
    summary: str
    est_saving_ns: int  # time at stake
    confidence: Confidence
    remedy: str
    location: Location = NOWHERE
    evidence: tuple[Figure, ...] = ()
    saving_per: SavingPer = SavingPer.STEP
    total_ns: int | None = None  # the whole; ``None`` for the wall time of the usual step
    busy_ns: int = 0  # its part that launches run, where the rest is idle time
    # Rows of the launches whose time it counts
    launches: Ints = field(default_factory=lambda: NO_ROWS)
    idle: Ints = field(default_factory=lambda: NO_ROWS)  # rows of ``Analysis.idle`` that it counts


class Turn(IntEnum):
    """When a rule counts launches, which count for one finding: the least first."""

    REMOVES = 0  # whole calls would go, so that no other remedy can make their launches faster
    SPECIAL = 1
    BROAD = 2  # it is silent where rules before it count most of what it would
    REST = 3  # its stake is what others leave


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule."""

    name: str  # its name in findings and documentation
    title: str  # the heading of its section
    means: str  # what it says of a session
    because: str  # why that happens
    remedy: str  # what to try
    saving: str  # how the time at stake is computed
    # The function that judges a session
    judge: Callable[[Facts], Iterable[Candidate] | CannotJudge]
    turn: Turn = Turn.SPECIAL
    not_on_cpu: str = ""  # why it judges no session whose launches ran on the CPU; "" if it does

    def verdict(self, facts: Facts) -> Iterable[Candidate] | CannotJudge:
        """Judge a session."""
        if self.not_on_cpu and not facts.on_device:
            return CannotJudge(self.not_on_cpu)
        return self.judge(facts)


def count_and_time(facts: Facts, launches: Ints) -> tuple[Figure, Figure]:
    """Return the number of some launches in the usual step, and their time."""
    spent_ns = facts.median_per_step(launches, facts.launches.duration_ns[launches])
    return (
        Figure("launches a step", facts.launches_per_step(launches)),
        Figure("they take", spent_ns, FigureUnit.NS),
    )


def launching(facts: Facts, launches: Ints, removal_saving_ns: int) -> tuple[Figure, ...]:
    """Return what launches cost the CPU, where that counts: none of them sets the pace."""
    cost_ns = facts.median_per_step(launches, facts.pace.cost_ns[launches])
    own_ns = min(removal_saving_ns, int(cost_ns / facts.training.slowdown))
    own = Figure("CPU launch overhead", own_ns, FigureUnit.NS)
    return () if facts.pace.is_critical[launches].any() else (own,)


def removal(
    facts: Facts,
    launches: Ints,
    summary: str,
    remedy: str,
    *evidence: Figure,
    confidence: Confidence = Confidence.MEASURED,
    with_python: bool = False,
) -> Candidate:
    """Return the finding that launches can go, at the line where they take longest."""
    # with_python: the Python code and the views before them go, too
    removal_saving_ns = (
        facts.removed_per_step_ns(launches)
        if with_python
        else facts.median_per_step(launches, facts.removal_saving_ns(launches))
    )
    return Candidate(
        summary=summary,
        est_saving_ns=removal_saving_ns,
        confidence=confidence,
        remedy=remedy,
        location=location_of(facts.place(facts.longest(launches))),
        evidence=(
            *count_and_time(facts, launches),
            *evidence,
            *launching(facts, launches, removal_saving_ns),
        ),
        launches=launches,
    )
