"""Compilations as table rows: grouping, duration, cache results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from profiler_ext.records.analysis import Analysis
from profiler_ext.records.compiles import CacheLookup, Compilation, CompileKind, CompilePhase

# These come in small pieces, merged by compile id.
NOT_OF_A_FUNCTION = (CompileKind.RUN_TIME, CompileKind.WORKER)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A row: one compilation, or small ones of one compile id."""

    first: Compilation  # the first of them, which names the row
    every: tuple[Compilation, ...]

    @property
    def duration_ns(self) -> int:
        """Total time."""
        return sum(each.duration_ns for each in self.every)

    @property
    def is_blocking(self) -> bool:
        """Whether the program waited for it."""
        return self.first.kind is not CompileKind.WORKER

    def phase_ns(self, phase: CompilePhase) -> int:
        """Return the time spent in a phase."""
        return sum(each.phase_ns(phase) for each in self.every)


def rows(analysis: Analysis) -> list[Compiled]:
    """Return the rows of the table, by start time."""
    groups: dict[object, list[Compilation]] = {}
    for each in sorted(analysis.recording.compiles, key=lambda each: each.started_ns):
        key = (each.kind, each.compile_id) if each.kind in NOT_OF_A_FUNCTION else each.index
        groups.setdefault(key, []).append(each)
    return [Compiled(every[0], tuple(every)) for every in groups.values()]


def profiled_ns(analysis: Analysis, compiled: Compiled, step: int | None = None) -> int:
    """Return how much of its time lies in profiled steps, or in one step."""
    spans = [(s.cpu_start_ns, s.cpu_end_ns) for s in analysis.steps if step in (None, s.number)]
    return sum(
        max(min(end, each.started_ns + each.duration_ns) - max(start, each.started_ns), 0)
        for each in compiled.every
        for start, end in spans
    )


def lookups_text(lookups: Sequence[CacheLookup]) -> str | None:
    """Return cache lookup results as text; equal ones once, with a count."""
    answers = Counter((each.cache, each.answer, each.reason) for each in lookups)
    groups = (
        f"{cache.label}: {answer.label}"
        + (f" ({reason})" if reason else "")
        + (f", {number} times" if number > 1 else "")
        for (cache, answer, reason), number in answers.items()
    )
    return "; ".join(groups) or None
