"""Owns which parts of a comparison a condition is of, and what they take on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiler_ext.comparison.comparison import Comparison
from profiler_ext.comparison.judging import changes
from profiler_ext.comparison.kinds import TABLES, ComparedTable
from profiler_ext.comparison.parts import NO_LAUNCH
from profiler_ext.comparison.records import Change, Subject
from profiler_ext.comparison.sides import Side
from profiler_ext.comparison.summing import rows_of
from profiler_ext.comparison.uncertainty import Sample
from profiler_ext.comparison.words import Account
from profiler_ext.gate.conditions import NAMED, Condition, Kind
from profiler_ext.gate.names import is_cause, matched_name
from profiler_ext.records import Ints

_NONE = -1
_ACCOUNTS = {
    Kind.TOTAL: None,
    Kind.DEVICE: Account.DEVICE,
    Kind.PHASE: Account.DEVICE,
    Kind.IDLE: Account.IDLE,
}


@dataclass(frozen=True, slots=True)
class Selection:
    """The parts that a condition is of, each in one of some groups.

    Attributes:
        names: what each group is called.
        base: the group of each subject of the base's parts, below zero for none.
        head: the same of the head.
        account: the account of all of them; ``None`` where they are all that there is.
    """

    names: tuple[str, ...]
    base: Ints
    head: Ints
    account: Account | None

    def only(self, group: int) -> Selection:
        """Return one group alone.

        Args:
            group: its number.
        """
        base, head = (np.where(of == group, 0, _NONE) for of in (self.base, self.head))
        return Selection((self.names[group],), base, head, self.account)


@dataclass(frozen=True, slots=True)
class PlacedLine:
    """A line with a part of a change.

    Attributes:
        subject: the line in the head; in the base where the head has it no more.
        is_in_head: whether it is the head's.
        delta_ns: how much longer the head's mean step takes there.
    """

    subject: Subject
    is_in_head: bool
    delta_ns: float


def chosen(comparison: Comparison, condition: Condition) -> Selection:
    """Return the parts of a comparison that a condition is of; no group where there are none.

    Args:
        comparison: the comparison.
        condition: of anything but compile time and the session's size.
    """
    if condition.kind in NAMED:
        return _named(comparison, condition)
    sides = (
        np.array([0 if _is_of(condition, s) else _NONE for s in side.parts.subjects], np.int64)
        for side in comparison.matched.sides
    )
    base, head = sides
    is_there = bool((base >= 0).any() or (head >= 0).any())
    return Selection(("",) if is_there else (), base, head, _ACCOUNTS[condition.kind])


def changes_of(comparison: Comparison, of: Selection) -> list[Change]:
    """Return the change of each group; of several few are called changed that are not.

    Args:
        comparison: the comparison.
        of: its parts.
    """
    if of.account is None:
        return [comparison.step.change]
    base, head = (
        _sample(side, group, len(of.names))
        for side, group in zip(comparison.matched.sides, (of.base, of.head), strict=True)
    )
    return changes(base[0], head[0], (base[1], head[1]), [of.account] * len(of.names))


def lines_of(comparison: Comparison, of: Selection) -> list[PlacedLine]:
    """Return what each line has of a change, that of most first.

    Args:
        comparison: the comparison.
        of: parts of one group.
    """
    count, *row_of = rows_of(comparison.matched, _table("line"))
    sums = np.zeros((2, count))
    result: dict[int, tuple[Subject, bool]] = {}
    sides = zip(comparison.matched.sides, row_of, (of.base, of.head), strict=True)
    for at, (side, rows, group) in enumerate(sides):
        own = group[side.parts.subject] >= 0
        np.add.at(sums[at], rows[side.parts.subject[own]], side.parts.duration_ns[own])
        sums[at] /= side.steps
        for row, subject in zip(rows.tolist(), side.parts.subjects, strict=True):
            if subject.file is not None and (row not in result or not result[row][1]):
                result[row] = subject, bool(at)
    delta = (sums[1] - sums[0]).tolist()
    lines = [PlacedLine(subject, is_head, delta[row]) for row, (subject, is_head) in result.items()]
    return sorted((line for line in lines if line.delta_ns), key=lambda line: -abs(line.delta_ns))


def _is_of(condition: Condition, subject: Subject) -> bool:
    if condition.kind is Kind.TOTAL:
        return True
    if condition.kind is Kind.IDLE:
        return subject.account == Account.IDLE and is_cause(condition, subject)
    is_match = condition.kind is Kind.DEVICE or subject.phase == condition.phase
    return subject.account == Account.DEVICE and is_match


def _named(comparison: Comparison, condition: Condition) -> Selection:
    count, *row_of = rows_of(comparison.matched, _table(condition.kind))
    group_of_row: dict[int, str] = {}
    for row, name in _matched_rows(comparison, condition, row_of):
        group_of_row.setdefault(row, name)
    names = tuple(dict.fromkeys(group_of_row.values()))
    numbers = {name: at if condition.is_each else 0 for at, name in enumerate(names)}
    group = np.full(count, _NONE, np.int64)
    for row, name in group_of_row.items():
        group[row] = numbers[name]
    base, head = (
        np.where(_is_in_phase(condition, side), group[rows], _NONE)
        for side, rows in zip(comparison.matched.sides, row_of, strict=True)
    )
    left = np.unique(np.concatenate((base[base >= 0], head[head >= 0])))
    renumbered = np.full(len(names) + 1, _NONE, np.int64)
    renumbered[left] = np.arange(len(left))
    shown = names if condition.is_each else ("",)
    return Selection(
        tuple(shown[at] for at in left.tolist()), renumbered[base], renumbered[head], Account.DEVICE
    )


def _matched_rows(
    comparison: Comparison, condition: Condition, row_of: list[Ints]
) -> Iterator[tuple[int, str]]:
    """Yield the rows that a condition names: by the head's names, then by the base's.

    The base's number of a line says nothing where the head has the line under another.
    """
    base, head = comparison.matched.sides
    in_head = set(row_of[1].tolist())
    for side, rows in ((head, row_of[1]), (base, row_of[0])):
        for row, subject in zip(rows.tolist(), side.parts.subjects, strict=True):
            is_old_number = condition.kind is Kind.LINE and side is base and row in in_head
            if subject.account == Account.DEVICE and not is_old_number:
                name = matched_name(condition, subject)
                if name is not None:
                    yield row, name


def _is_in_phase(condition: Condition, side: Side) -> npt.NDArray[np.bool_]:
    phase = condition.phase
    of = [
        s.account == Account.DEVICE and (phase is None or s.phase == phase)
        for s in side.parts.subjects
    ]
    return np.array(of, np.bool_)


def _sample(side: Side, group: Ints, groups: int) -> tuple[Sample, Ints]:
    """Return the times of each step and group, and how many launches have a part in each."""
    parts = side.parts
    of_part = group[parts.subject]
    own = of_part >= 0
    sums = np.zeros((len(side.ranks_of_step), groups), np.int64)
    np.add.at(sums, (parts.step[own], of_part[own]), parts.duration_ns[own])
    launched = own & (parts.launch != NO_LAUNCH)
    distinct = np.unique(np.column_stack((of_part[launched], parts.launch[launched])), axis=0)
    launches = np.bincount(distinct[:, 0], minlength=groups).astype(np.int64)
    return side.sample(sums), launches


def _table(by: str) -> ComparedTable:
    return next(each for each in TABLES if each.by == by)
