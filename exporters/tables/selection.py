"""The filters of tables: step, rank, phase, scope, kernel."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from profiler_ext.errors import UsageError
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.step_kinds import of_kind, of_usual_kind
from profiler_ext.records.vocabulary import Phase, Scope, StepKind


def kind_named(name: str) -> StepKind:
    """Return a kind of steps.

    Raises:
        UsageError: There is no such kind.
    """
    if name not in tuple(StepKind):
        listed = ", ".join(StepKind)
        raise UsageError(f"there is no kind of steps {name!r}; ask for one of {listed}")
    return StepKind(name)


ALL_KINDS = "all"
"""The filter that sums steps of several kinds, which tables of sums else keep apart."""
Rows = npt.NDArray[np.bool_]
PHASES = tuple(each.value for each in Phase)
SCOPES = (Scope.COMPILED.value, Scope.EAGER.value)


class Filters(TypedDict, total=False):
    """What a table may be filtered by."""

    step: int | None
    rank: int | None
    phase: str | None
    scope: str | None  # ``compiled`` or ``eager``
    # ``prefill`` or another ``StepKind``; ``all`` sums them, else tables of sums have one kind
    step_kind: str | None
    kernel: str | None  # a part of Inductor's or the device's name, or a pattern: ``nvjet_*``


@dataclass(frozen=True, slots=True)
class Selection:
    """Applies :class:`Filters` to launches and shares."""

    step: int | None = None
    rank: int | None = None
    phase: str | None = None
    scope: str | None = None
    kernel: str | None = None
    step_kind: str | None = None  # a table is made of an analysis of that kind

    def __post_init__(self) -> None:
        """Check the phase and the scope.

        Raises:
            UsageError: There is no such phase or scope.
        """
        if self.scope not in (None, *SCOPES):
            raise UsageError(f"there is no scope {self.scope!r}; ask for 'compiled' or 'eager'")
        if self.phase is not None and self.phase not in PHASES:
            listed = ", ".join(PHASES)
            raise UsageError(f"there is no phase {self.phase!r}; ask for one of {listed}")

    def narrowed(self, analysis: Analysis, *, is_sum: bool) -> Analysis:
        """Return the analysis of the chosen kind of steps; for sums never of several kinds."""
        if self.step is not None or not self.has_rank_of(analysis):
            return analysis
        if self.step_kind == ALL_KINDS:
            return analysis
        if self.step_kind is not None:
            return of_kind(analysis, kind_named(self.step_kind))
        return of_usual_kind(analysis) if is_sum else analysis

    def has_rank_of(self, analysis: Analysis) -> bool:
        """Return whether the analysis is of the chosen rank."""
        return self.rank in (None, analysis.recording.settings.rank)

    def launches(self, analysis: Analysis) -> Rows:
        """Return which launches match step, rank, scope and kernel."""
        chosen: Rows = np.full(len(analysis.launches), self.has_rank_of(analysis))
        if self.scope is not None:
            chosen &= analysis.launches.scope.where(self.scope)
        if self.kernel is not None:
            chosen &= self._of_kernel(analysis)
        if self.step is None or not self.has_rank_of(analysis):
            return chosen
        self.require_step(analysis)
        of_step: Rows = np.ma.filled(analysis.launches.step == self.step, False).astype(np.bool_)
        return chosen & of_step

    def _of_kernel(self, analysis: Analysis) -> Rows:
        query = self.kernel or ""
        pattern = query if "*" in query else f"*{query}*"
        # A name may hold brackets, which mean themselves: cutlass::Kernel2<...>[clone .0].
        matches = re.compile(fnmatch.translate(pattern.replace("[", "[[]"))).match
        columns = (analysis.launches.kernel, analysis.launches.name)
        matches_by_column = (column.where(*filter(matches, column.strings)) for column in columns)
        chosen: Rows = np.logical_or(*matches_by_column)
        return chosen

    def profiled(self, analysis: Analysis) -> Rows:
        """Return which of these launches are in a profiled step."""
        return self.launches(analysis) & analysis.launches.in_steps

    def shares(self, analysis: Analysis, launches: Rows) -> Rows:
        """Return which shares belong to these launches and match the phase."""
        of_launch = launches[analysis.shares.launch]
        if self.phase is None:
            return of_launch
        of_place = np.array([place.phase == self.phase for place in analysis.places], np.bool_)
        return of_launch & of_place[analysis.shares.place]

    def count_steps(self, analysis: Analysis) -> int:
        """Return the number of steps that a table sums."""
        return len(analysis.steps) if self.step is None else 1

    def require_step(self, analysis: Analysis) -> None:
        """Raise if the chosen step was not profiled."""
        numbers = [each.number for each in analysis.steps]
        if self.step is not None and self.step not in numbers:
            listed = ", ".join(map(str, numbers)) or "none"
            raise UsageError(
                f"step {self.step} was not profiled; ask for one of the steps: {listed}"
            )
