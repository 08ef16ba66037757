"""Owns the records of a gate: what each condition was held against, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from profiler_ext.comparison.records import Interval
from profiler_ext.comparison.words import Verdict
from profiler_ext.gate.chosen import PlacedLine
from profiler_ext.gate.conditions import Condition, Unit
from profiler_ext.gate.words import WORST_LAST, Outcome


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the recordings of each run are, in bytes; counted, so there is no noise in it."""

    base: tuple[int, ...]
    head: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One thing that a condition was held against.

    Attributes:
        name: which of those that the condition means; empty where it is their sum.
        base, head: what it takes of a mean step; of compile time and sizes, of a run.
        unit: of that, nanoseconds or bytes.
        interval: the uncertainty of the difference, in the same unit.
        verdict: what the difference came to; ``None`` of sizes, which are counted.
        outcome: what came of it.
        lines: of what failed the lines with most of the change, that of most first.
    """

    name: str
    base: float
    head: float
    unit: Unit
    interval: Interval | None
    verdict: Verdict | None
    outcome: Outcome
    lines: tuple[PlacedLine, ...] = ()

    @property
    def delta(self) -> float:
        """How much more the head takes."""
        return self.head - self.base

    @property
    def fraction(self) -> float | None:
        """The same as a part of the base; ``None`` where the base has none."""
        return self.delta / self.base if self.base else None


@dataclass(frozen=True)
class Result:
    """A condition, and all that it was held against.

    Attributes:
        condition: the condition.
        judged: one, or of ``each`` one for each name; what failed first.
    """

    condition: Condition
    judged: tuple[Evaluation, ...]

    @cached_property
    def outcome(self) -> Outcome:
        """The worst of all."""
        return max((each.outcome for each in self.judged), key=WORST_LAST.index)

    def of(self, outcome: Outcome) -> tuple[Evaluation, ...]:
        """Return those with an outcome."""
        return tuple(each for each in self.judged if each.outcome is outcome)


@dataclass(frozen=True, repr=False)
class Gate:
    """What came of all conditions.

    Attributes:
        results: one a condition, as they were given.
    """

    results: tuple[Result, ...]

    @cached_property
    def outcome(self) -> Outcome:
        """The worst of all."""
        return max((each.outcome for each in self.results), key=WORST_LAST.index)

    def __repr__(self) -> str:
        """Return what came of each condition."""
        each = ", ".join(f"{one.outcome} {one.condition.text!r}" for one in self.results)
        return f"<gate {self.outcome}: {each}>"

    @property
    def has_passed(self) -> bool:
        """Whether nothing failed, and nothing had too few steps to be told."""
        return self.outcome in (Outcome.PASSED, Outcome.UNCLEAR)
