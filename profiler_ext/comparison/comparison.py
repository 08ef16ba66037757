"""A comparison of two sides: step time, tables and fusions, each computed on first use.

A recording slows the CPU: a CPU-bound step gets longer while it is recorded, a device-bound one
does not, so recorded steps of two such sides differ where training does not. So the steps before
the recordings, without a profiler, are compared where both sides have them; else the recorded
steps, if recording slows both sides alike; else neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from statistics import median_low

import numpy as np

from profiler_ext.comparison import tables
from profiler_ext.comparison.fusions import fusion_changes
from profiler_ext.comparison.matched import Matched
from profiler_ext.comparison.memory import ComparedMemory, compare_memory
from profiler_ext.comparison.records import (
    Account,
    Change,
    FusionChange,
    Match,
    PhaseTimes,
    Row,
    Subject,
    Table,
    Verdict,
)
from profiler_ext.comparison.sides import RunOfRanks, Side, side
from profiler_ext.comparison.significance import Sample, change_of_all, changes
from profiler_ext.errors import UsageError
from profiler_ext.findings import training_steps
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Ints
from profiler_ext.records.share_sums import sum_by
from profiler_ext.records.vocabulary import Scope

BY = tuple(kind.by for kind in tables.TABLES)
_ACCOUNTS = tuple(Account)
_NO_ROW = np.empty((0, 0), np.int64)
# If idle parts of the step differ by more, recording slows one side more than the other.
_MAX_IDLE_DIFFERENCE = 0.2


class Basis(StrEnum):
    """Which steps are compared."""

    TRAINING = "training"
    RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class StepTime:
    """The change of step time."""

    change: Change  # in training, of the median step of each side
    basis: Basis


def step_time(base: Side, head: Side, recorded: Change) -> StepTime:
    """Return the change of step time."""
    before, now = _in_training(base), _in_training(head)
    if before is not None and now is not None:
        accounts = (Account.DEVICE, Account.IDLE)
        return StepTime(change_of_all(before, now, (0, 0), accounts), Basis.TRAINING)
    # Their idle time tells whether recording slows both sides alike.
    idle_difference = abs(_idle_fraction(base) - _idle_fraction(head))
    are_comparable = (base.on_cpu and head.on_cpu) or idle_difference <= _MAX_IDLE_DIFFERENCE
    if recorded.verdict is not Verdict.EQUAL and not are_comparable:
        recorded = replace(recorded, interval=None, verdict=Verdict.NOT_COMPARABLE)
    return StepTime(recorded, Basis.RECORDED)


def _idle_fraction(side: Side) -> float:
    lines = [line for each in side.analyses for line in each.breakdown]
    idle_ns = sum(line.duration_ns for line in lines if line.scope == Scope.IDLE)
    return idle_ns / max(sum(line.duration_ns for line in lines), 1)


def _in_training(side: Side) -> Sample | None:
    """Return the unprofiled steps of each run, of its slowest rank; ``None`` if a run has none.

    A step has two columns: the device's part, and the rest.
    """
    sums: list[tuple[int, int]] = []
    run_of_step: list[int] = []
    for at, analyses in enumerate(side.analyses_of_runs):
        steps = max(map(training_steps, analyses), key=lambda each: median_low(each) if each else 0)
        if not steps:
            return None
        usual_ns = median_low(steps)
        busy_ns = min(max(map(_busy_ns, analyses)), usual_ns)
        # Shift the mean to the median: an outlier widens the interval and does not move it.
        moved = np.array(steps) - round(float(np.mean(steps))) + usual_ns
        moved[0] += usual_ns * len(steps) - int(moved.sum())  # what rounding left
        sums += [(min(busy_ns, each), each - min(busy_ns, each)) for each in moved.tolist()]
        run_of_step += [at] * len(steps)
    ones = np.ones(len(sums), np.int64)
    return Sample(np.array(sums, np.int64), ones, np.array(run_of_step, np.int64), side.on_cpu)


def _busy_ns(analysis: Analysis) -> int:
    """Return the busy time of a mean step on a mean device."""
    busy_ns = sum(line.duration_ns for line in analysis.breakdown if line.scope != Scope.IDLE)
    devices = len({line.device for line in analysis.breakdown})
    return busy_ns // max(len(analysis.steps) * devices, 1)


@dataclass(frozen=True, repr=False)
class Comparison:
    """Two sides compared."""

    matched: Matched

    @property
    def base(self) -> Side:
        """The side before."""
        return self.matched.base

    @property
    def head(self) -> Side:
        """The side after."""
        return self.matched.head

    @cached_property
    def total(self) -> Change:
        """The wall time of a recorded step, on all devices of a rank."""
        return self.table("breakdown").total

    @cached_property
    def step(self) -> StepTime:
        """Step time: in training where both sides have it, else as recorded."""
        return step_time(self.base, self.head, self.total)

    @cached_property
    def device(self) -> Change:
        """The device time of what a step enqueued, also where it ran after the step."""
        return self.where(lambda subject: subject.account == Account.DEVICE)

    @cached_property
    def samples(self) -> tuple[Sample, Sample]:
        """The wall time of each step of both sides, a column an account."""
        base, head = (_sample(side, lambda subject: True)[0] for side in self.matched.sides)
        return base, head

    @cached_property
    def fusions(self) -> tuple[FusionChange, ...]:
        """The fusions that changed, the largest difference first."""
        return fusion_changes(self.matched)

    @cached_property
    def memory(self) -> ComparedMemory | None:
        """The memory at the highest peak of each side; ``None`` where one has no record of it."""
        return compare_memory(self.matched)

    def table(self, by: str) -> Table:
        """Return a table; it adds up to the breakdown, ``compile`` to compile time."""
        if by not in BY:
            raise UsageError(f"there is no comparison by {by!r}; ask for one of {', '.join(BY)}")
        if by not in self._tables:
            self._tables[by] = _table(self.matched, tables.TABLES[BY.index(by)])
        return self._tables[by]

    @cached_property
    def _tables(self) -> dict[str, Table]:
        return {}

    def where(self, predicate: Callable[[Subject], bool]) -> Change:
        """Return the change of all parts whose subject satisfies a predicate.

        Subjects have their line, module, op, phase and kernel. The change is tested by itself: its
        ``q_value`` is its ``p_value``.
        """
        (base, before), (head, now) = (_sample(each, predicate) for each in self.matched.sides)
        return change_of_all(base, head, (before, now), _ACCOUNTS)


def compare(base: Sequence[RunOfRanks], head: Sequence[RunOfRanks]) -> Comparison:
    """Compare two sides."""
    return Comparison(Matched(side(base), side(head)))


def _table(matched: Matched, kind: tables.ComparedTable) -> Table:
    count, *row_of = tables.rows_of(matched, kind)
    base, head = (
        _summed(each, kind, rows, count) for each, rows in zip(matched.sides, row_of, strict=True)
    )
    accounts = [
        (h or b or Subject()).account for b, h in zip(base.subjects, head.subjects, strict=True)
    ]
    result = changes(base.sample, head.sample, (base.launches, head.launches), accounts)
    rows = [_row(matched, kind, base, head, row, change) for row, change in enumerate(result)]
    rows.sort(key=lambda row: (*_largest_first(row.change), str(row.subject)))
    before, now = (0 if kind.by == "compile" else _launches(s.parts.launch) for s in matched.sides)
    total = change_of_all(base.sample, head.sample, (before, now), accounts)
    return Table(kind.by, tuple(rows), total)


def _summed(of: Side, kind: tables.ComparedTable, row_of: Ints, rows: int) -> tables.Summed:
    parts, steps = kind.parts(of), of.sample(_NO_ROW)
    if parts is of.compiles:  # its steps are the runs
        ranks = np.array([len(run.ranks) for run in of.runs], np.int64)
        steps = Sample(_NO_ROW, ranks, np.arange(len(of.runs)), on_cpu=True)
    return tables.summed(parts, [kind.shown(each) for each in parts.subjects], row_of, rows, steps)


def _row(
    matched: Matched,
    kind: tables.ComparedTable,
    base: tables.Summed,
    head: tables.Summed,
    row: int,
    change: Change,
) -> Row:
    times = zip(tables.PHASES, base.phases[row].tolist(), head.phases[row].tolist(), strict=True)
    old, new = base.subjects[row], head.subjects[row]
    return Row(
        base=old,
        head=new,
        match=_match(matched, kind, old, new),
        change=change,
        phases=tuple(PhaseTimes(phase, a, b) for phase, a, b in times if a or b),
        modules=tables.main_modules(base.modules[row], head.modules[row]),
    )


def _match(
    matched: Matched, kind: tables.ComparedTable, old: Subject | None, new: Subject | None
) -> Match:
    if old is None:
        return Match.NEW
    if new is None:
        return Match.REMOVED
    name = kind.name(old)
    return Match.SAME if kind.pairs is None or name is None else kind.pairs(matched).match[name]


def _largest_first(change: Change) -> tuple[float, float]:
    return -abs(change.delta_ns), -max(change.base_per_step_ns, change.head_per_step_ns)


def _launches(launch: Ints) -> int:
    return len(np.unique(launch[launch >= 0]))


def _sample(of: Side, predicate: Callable[[Subject], bool]) -> tuple[Sample, int]:
    chosen = np.array([predicate(each) for each in of.parts.subjects], np.bool_)[of.parts.subject]
    account = np.array([_ACCOUNTS.index(Account(s.account)) for s in of.parts.subjects], np.int64)
    key = of.parts.step[chosen], account[of.parts.subject[chosen]]
    sums = sum_by(key, of.parts.duration_ns[chosen], len(of.ranks_of_step), len(_ACCOUNTS))
    return of.sample(sums), _launches(of.parts.launch[chosen])
