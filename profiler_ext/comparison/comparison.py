"""Owns a comparison: two sides, and the tables and fusions that are made of them when asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiler_ext.comparison.fusions import fusion_changes
from profiler_ext.comparison.judging import change_of_all, changes
from profiler_ext.comparison.kinds import TABLES, ComparedTable
from profiler_ext.comparison.matched import Matched
from profiler_ext.comparison.records import Change, FusionChange, PhaseTimes, Row, Subject, Table
from profiler_ext.comparison.sides import RunOfRanks, Side, side
from profiler_ext.comparison.step_time import StepTime, step_time
from profiler_ext.comparison.summing import PHASES, Summed, main_modules, rows_of, summed
from profiler_ext.comparison.uncertainty import Sample
from profiler_ext.comparison.words import Account, Match
from profiler_ext.errors import UsageError
from profiler_ext.records import Ints

BY = tuple(kind.by for kind in TABLES)
_ACCOUNTS = tuple(Account)
_NO_ROW = np.empty((0, 0), np.int64)


@dataclass(frozen=True, repr=False)
class Comparison:
    """Two sides compared.

    Attributes:
        matched: the sides, and what of theirs is the same.
    """

    matched: Matched

    @property
    def base(self) -> Side:
        """The side that came before."""
        return self.matched.base

    @property
    def head(self) -> Side:
        """The other side."""
        return self.matched.head

    @cached_property
    def total(self) -> Change:
        """The whole wall time of a recorded step, on all devices of a rank."""
        return self.table("ledger").total

    @cached_property
    def step(self) -> StepTime:
        """The time of a step: in training where both sides know it, else as recorded."""
        return step_time(self.base, self.head, self.total)

    @cached_property
    def device(self) -> Change:
        """The device time of what a step enqueued, however far the device is behind the CPU."""
        return self.where(lambda subject: subject.account == Account.DEVICE)

    @cached_property
    def samples(self) -> tuple[Sample, Sample]:
        """The wall time of each step of both sides, a column an account."""
        base, head = (_sample(side, lambda subject: True)[0] for side in self.matched.sides)
        return base, head

    @cached_property
    def fusions(self) -> tuple[FusionChange, ...]:
        """What is cut into launches otherwise, what takes most first."""
        return fusion_changes(self.matched)

    def table(self, by: str) -> Table:
        """Return a table; its rows add up to the ledger, those of ``compile`` to compile time.

        Args:
            by: one of ``BY``.

        Raises:
            UsageError: There is no such table.
        """
        kind = _kind(by)
        if kind.by not in self._tables:
            self._tables[kind.by] = _table(self.matched, kind)
        return self._tables[kind.by]

    @cached_property
    def _tables(self) -> dict[str, Table]:
        return {}

    def where(self, predicate: Callable[[Subject], bool]) -> Change:
        """Return the change of all parts that are of one kind, such as one module's backward.

        A part is of the finest subject there is: its line, module, op, phase and kernel are all
        told. It is judged by itself: its ``q_value`` is its ``p_value``.

        Args:
            predicate: tells of a part's subject whether it is of that kind, on either side.
        """
        (base, before), (head, now) = (_sample(each, predicate) for each in self.matched.sides)
        return change_of_all(base, head, (before, now), _ACCOUNTS)


def compare(base: Sequence[RunOfRanks], head: Sequence[RunOfRanks]) -> Comparison:
    """Return two sides compared.

    Args:
        base: the runs that came before.
        head: the others.

    Returns:
        The comparison.

    Raises:
        UsageError: A side has no run, or a run has no step.
    """
    return Comparison(Matched(side(base), side(head)))


def _kind(by: str) -> ComparedTable:
    for kind in TABLES:
        if kind.by == by:
            return kind
    raise UsageError(f"there is no comparison by {by!r}; ask for one of {', '.join(BY)}")


def _table(matched: Matched, kind: ComparedTable) -> Table:
    count, *row_of = rows_of(matched, kind)
    base, head = (
        _summed(each, kind, rows, count) for each, rows in zip(matched.sides, row_of, strict=True)
    )
    accounts = [
        (h or b or Subject()).account for b, h in zip(base.subjects, head.subjects, strict=True)
    ]
    result = changes(base.sample, head.sample, (base.launches, head.launches), accounts)
    rows = [_row(matched, kind, base, head, row, change) for row, change in enumerate(result)]
    rows.sort(key=_largest_first)
    launched = (0, 0) if kind.by == "compile" else _launched(matched)
    total = change_of_all(base.sample, head.sample, launched, accounts)
    return Table(kind.by, tuple(rows), total)


def _summed(of: Side, kind: ComparedTable, row_of: Ints, rows: int) -> Summed:
    parts = kind.parts(of)
    shown = [kind.shown(each) for each in parts.subjects]
    if parts is of.compiles:  # its steps are the runs
        ranks = np.array([len(run.ranks) for run in of.runs], np.int64)
        steps = Sample(_NO_ROW, ranks, np.arange(len(of.runs)), on_cpu=True)
        return summed(parts, shown, row_of, rows, steps)
    return summed(parts, shown, row_of, rows, of.sample(_NO_ROW))


def _row(
    matched: Matched, kind: ComparedTable, base: Summed, head: Summed, row: int, change: Change
) -> Row:
    times = zip(PHASES, base.phases[row].tolist(), head.phases[row].tolist(), strict=True)
    old, new = base.subjects[row], head.subjects[row]
    return Row(
        base=old,
        head=new,
        match=_match(matched, kind, old, new),
        change=change,
        phases=tuple(PhaseTimes(phase, a, b) for phase, a, b in times if a or b),
        modules=main_modules(base.modules[row], head.modules[row]),
    )


def _match(
    matched: Matched, kind: ComparedTable, old: Subject | None, new: Subject | None
) -> Match:
    if old is None:
        return Match.NEW
    if new is None:
        return Match.GONE
    name = kind.name(old)
    return Match.SAME if kind.pairs is None or name is None else kind.pairs(matched).match[name]


def _largest_first(row: Row) -> tuple[float, float, str]:
    change = row.change
    return (
        -abs(change.delta_ns),
        -max(change.base_per_step_ns, change.head_per_step_ns),
        str(row.subject),
    )


def _launched(matched: Matched) -> tuple[int, int]:
    base, head = (_all_launches(side.parts.launch) for side in matched.sides)
    return base, head


def _all_launches(launch: Ints) -> int:
    return len(np.unique(launch[launch >= 0]))


def _sample(of: Side, predicate: Callable[[Subject], bool]) -> tuple[Sample, int]:
    chosen = np.array([predicate(each) for each in of.parts.subjects], np.bool_)[of.parts.subject]
    account = np.array([_ACCOUNTS.index(Account(s.account)) for s in of.parts.subjects], np.int64)
    sums = np.zeros((len(of.ranks_of_step), len(_ACCOUNTS)), np.int64)
    own = account[of.parts.subject[chosen]]
    np.add.at(sums, (of.parts.step[chosen], own), of.parts.duration_ns[chosen])
    return of.sample(sums), _all_launches(of.parts.launch[chosen])
