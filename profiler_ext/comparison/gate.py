"""The gate: a comparison evaluated against conditions, so that CI can fail on a regression.

A limit is compared with the estimate and not with the lower end of its interval: that would pass
what is most likely beyond the limit, the more so the fewer runs there are. The test against noise
keeps equal programs from failing. Where the interval's far end is beyond the limit, the outcome is
``inconclusive``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from profiler_ext.comparison import significance, tables
from profiler_ext.comparison.comparison import Comparison
from profiler_ext.comparison.conditions import (
    NAMED,
    Condition,
    Kind,
    Limit,
    Unit,
    is_cause,
    matched_name,
    name_of,
    parse,
)
from profiler_ext.comparison.parts import NO_LAUNCH
from profiler_ext.comparison.records import CHANGED, Account, Change, Interval, Subject, Verdict
from profiler_ext.comparison.sides import Side
from profiler_ext.errors import UsageError
from profiler_ext.records import events, share_sums, vocabulary


class Outcome(vocabulary.Term, page="words.md", title="outcome", columns=()):
    """The outcome of a condition, or of one evaluation."""

    PASSED = ("passed", "passed", "did not change beyond the limit")
    INCONCLUSIVE = (
        "inconclusive",
        "inconclusive",
        "is not significant, but a change beyond the limit would not be either",
        "record more steps, or more runs of each side, on a machine that does nothing else",
    )
    TOO_FEW = (
        "too_few",
        "too few",
        "cannot be distinguished from noise, as there are too few steps or runs",
        "record at least five steps of each side, or several runs of each; compile time needs runs",
    )
    NOT_COMPARABLE = (
        "not_comparable",
        "not comparable",
        "is of steps that only the recording knows, which slows those of one side more than those "
        "of the other",
        "record with three or more steps before the recording, as `profiler-ext run` does",
    )
    FAILED = (
        "failed",
        "failed",
        "is a significant change whose best estimate is beyond the limit",
    )


WORST_LAST = tuple(Outcome)
_SHOWN_LINES = 3
_MAX_SUGGESTIONS = 3
_NONE = -1
_ACCOUNTS = {
    Kind.TOTAL: None,
    Kind.DEVICE: Account.DEVICE,
    Kind.PHASE: Account.DEVICE,
    Kind.IDLE: Account.IDLE,
}


@dataclass(frozen=True, slots=True)
class Selection:
    """The parts that a condition selects, in groups."""

    names: tuple[str, ...]  # of the groups
    base: events.Ints  # group of each subject of the base's parts, below zero for none
    head: events.Ints  # the same of the head
    account: Account | None  # of all of them; ``None`` for all accounts

    def only(self, group: int) -> Selection:
        """Return one group alone."""
        base, head = (np.where(of == group, 0, _NONE) for of in (self.base, self.head))
        return Selection((self.names[group],), base, head, self.account)


@dataclass(frozen=True, slots=True)
class PlacedLine:
    """A line's part of a change."""

    subject: Subject  # the head's line; the base's where the head has it no more
    is_in_head: bool
    delta_ns: float  # head less base, of a mean step; 0 of memory
    delta_bytes: int | None = None  # head less base at the peak, of memory


def chosen(comparison: Comparison, condition: Condition) -> Selection:
    """Return the parts that a condition selects; no group where there are none."""
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
    """Return the change of each group, false discoveries controlled."""
    if of.account is None:
        return [comparison.step.change]
    base, head = (
        _sample(side, group, len(of.names))
        for side, group in zip(comparison.matched.sides, (of.base, of.head), strict=True)
    )
    return significance.changes(base[0], head[0], (base[1], head[1]), [of.account] * len(of.names))


def lines_of(comparison: Comparison, of: Selection) -> list[PlacedLine]:
    """Return each line's part of a change, the largest first."""
    count, *row_of = tables.rows_of(comparison.matched, _table("line"))
    per_step: list[npt.NDArray[np.float64]] = []
    result: dict[int, tuple[Subject, bool]] = {}
    sides = zip(comparison.matched.sides, row_of, (of.base, of.head), strict=True)
    for at, (side, rows, group) in enumerate(sides):
        own = group[side.parts.subject] >= 0
        sums = share_sums.sum_by(rows[side.parts.subject[own]], side.parts.duration_ns[own], count)
        per_step.append(sums / side.steps)
        for row, subject in zip(rows.tolist(), side.parts.subjects, strict=True):
            if subject.file is not None and (row not in result or not result[row][1]):
                result[row] = subject, bool(at)
    delta = (per_step[1] - per_step[0]).tolist()
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
    count, *row_of = tables.rows_of(comparison.matched, _table(condition.kind))
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
    comparison: Comparison, condition: Condition, row_of: list[events.Ints]
) -> Iterator[tuple[int, str]]:
    """Yield the rows that a condition names: by the head's names, then by the base's."""
    base, head = comparison.matched.sides
    in_head = set(row_of[1].tolist())
    for side, rows in ((head, row_of[1]), (base, row_of[0])):
        for row, subject in zip(rows.tolist(), side.parts.subjects, strict=True):
            # The base's number of a line means nothing where the head has the line at another.
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


def _sample(side: Side, group: events.Ints, groups: int) -> tuple[significance.Sample, events.Ints]:
    """Return the times of each step and group, and the launches of each group."""
    parts = side.parts
    of_part = group[parts.subject]
    own = of_part >= 0
    key = parts.step[own], of_part[own]
    sums = share_sums.sum_by(key, parts.duration_ns[own], len(side.ranks_of_step), groups)
    launched = own & (parts.launch != NO_LAUNCH)
    return side.sample(sums), share_sums.count_distinct(
        of_part[launched], parts.launch[launched], groups
    )


def _table(by: str) -> tables.ComparedTable:
    return next(each for each in tables.TABLES if each.by == by)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of the recordings of each run; counted, so without noise."""

    base: tuple[int, ...]
    head: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One thing that a condition was evaluated on."""

    name: str  # which of the matches; empty for their sum
    base: float  # of a mean step; compile time and sizes, of a run
    head: float
    unit: Unit  # nanoseconds or bytes
    interval: Interval | None  # of the difference, in the same unit
    verdict: Verdict | None  # ``None`` of sizes, which are counted
    outcome: Outcome
    # of a failure, the lines with most of the change, largest first
    lines: tuple[PlacedLine, ...] = ()

    @property
    def delta(self) -> float:
        """Head less base."""
        return self.head - self.base

    @property
    def fraction(self) -> float | None:
        """The difference over the base; ``None`` where the base has none."""
        return self.delta / self.base if self.base else None


@dataclass(frozen=True)
class Result:
    """A condition and its evaluations."""

    condition: Condition
    judged: tuple[Evaluation, ...]  # one; of ``each``, one for each name, failures first

    @cached_property
    def outcome(self) -> Outcome:
        """The worst outcome."""
        return max((each.outcome for each in self.judged), key=WORST_LAST.index)

    def of(self, outcome: Outcome) -> tuple[Evaluation, ...]:
        """Return those with an outcome."""
        return tuple(each for each in self.judged if each.outcome is outcome)


@dataclass(frozen=True, repr=False)
class Gate:
    """The outcomes of all conditions."""

    results: tuple[Result, ...]  # in the order of the conditions

    @cached_property
    def outcome(self) -> Outcome:
        """The worst outcome."""
        return max((each.outcome for each in self.results), key=WORST_LAST.index)

    def __repr__(self) -> str:
        each = ", ".join(f"{one.outcome} {one.condition.text!r}" for one in self.results)
        return f"<gate {self.outcome}: {each}>"

    @property
    def has_passed(self) -> bool:
        """Whether no condition failed, or had too few steps."""
        return self.outcome in (Outcome.PASSED, Outcome.INCONCLUSIVE)


def judge(comparison: Comparison, conditions: Sequence[str], sizes: Sizes | None = None) -> Gate:
    """Evaluate conditions on a comparison; each must match something of either side."""
    if not conditions:
        raise UsageError("a gate needs at least one condition, such as 'total > +5%'")
    parsed = [parse(text) for text in conditions]
    return Gate(tuple(_result(comparison, each, sizes) for each in parsed))


def _result(comparison: Comparison, condition: Condition, sizes: Sizes | None) -> Result:
    if condition.kind is Kind.SESSION_SIZE:
        return Result(condition, (_size_evaluation(condition, sizes),))
    if condition.kind is Kind.MEMORY:
        return Result(condition, (_memory_evaluation(comparison, condition),))
    if condition.kind is Kind.COMPILE:
        return Result(condition, (_compile_evaluation(comparison, condition),))
    of = chosen(comparison, condition)
    if not of.names:
        raise _matches_nothing_error(comparison, condition)
    every = [
        _with_lines(comparison, condition, of, group, _evaluation(condition, name, change))
        for group, (name, change) in enumerate(
            zip(of.names, changes_of(comparison, of), strict=True)
        )
    ]
    every.sort(key=lambda each: (-WORST_LAST.index(each.outcome), -abs(each.delta), each.name))
    return Result(condition, tuple(every))


def _evaluation(condition: Condition, name: str, change: Change) -> Evaluation:
    base = change.base_per_step_ns
    return Evaluation(
        name=name,
        base=base,
        head=change.head_per_step_ns,
        unit=Unit.NS,
        interval=change.interval,
        verdict=change.verdict,
        outcome=_outcome(condition.limits, base, change),
    )


def _outcome(limits: Sequence[Limit], base: float, change: Change) -> Outcome:
    if change.verdict is Verdict.TOO_FEW:
        return Outcome.TOO_FEW
    if change.verdict is Verdict.NOT_COMPARABLE:
        return Outcome.NOT_COMPARABLE
    if change.verdict in CHANGED:
        is_beyond = _is_beyond(limits, base, change.delta_ns)
        return Outcome.FAILED if is_beyond else Outcome.PASSED
    if change.interval is None:
        return Outcome.PASSED
    far = change.interval.high_ns if limits[0].sign > 0 else change.interval.low_ns
    return Outcome.INCONCLUSIVE if _is_beyond(limits, base, far) else Outcome.PASSED


def _is_beyond(limits: Sequence[Limit], base: float, delta: float) -> bool:
    """Return whether a difference exceeds all limits; from zero, any growth exceeds any part."""
    return all(
        limit.sign * delta > limit.amount * (abs(base) if limit.unit is Unit.PART else 1.0)
        for limit in limits
    )


def _with_lines(
    comparison: Comparison, condition: Condition, of: Selection, group: int, judged: Evaluation
) -> Evaluation:
    """Add to a failure the lines with most of it."""
    if judged.outcome is not Outcome.FAILED:
        return judged
    sign = condition.limits[0].sign
    lines = [line for line in lines_of(comparison, of.only(group)) if sign * line.delta_ns > 0]
    return replace(judged, lines=tuple(lines[:_SHOWN_LINES]))


def _compile_evaluation(comparison: Comparison, condition: Condition) -> Evaluation:
    change = comparison.table("compile").total
    if not change.base_ns and not change.head_ns:
        raise UsageError(
            f"the condition {condition.text!r} is of nothing: neither side compiled anything while "
            "it was watched"
        )
    return _evaluation(condition, "", change)


def _memory_evaluation(comparison: Comparison, condition: Condition) -> Evaluation:
    memory = comparison.memory
    if memory is None:
        raise UsageError(
            f"the condition {condition.text!r} is of nothing: a side has no memory record; record "
            "both with `profiler-ext run --memory`"
        )
    judged = _counted(condition, memory.base_bytes, memory.head_bytes)
    if judged.outcome is not Outcome.FAILED:
        return judged
    sign = condition.limits[0].sign
    lines = [
        PlacedLine(row.subject, row.head is not None, 0.0, row.delta_bytes)
        for row in memory.rows
        if row.subject.file is not None and sign * row.delta_bytes > 0
    ]
    return replace(judged, lines=tuple(lines[:_SHOWN_LINES]))


def _size_evaluation(condition: Condition, sizes: Sizes | None) -> Evaluation:
    if sizes is None:
        raise UsageError(
            f"the condition {condition.text!r} is of files, and a side was given as a session: "
            "give the paths"
        )
    base, head = (sum(each) / len(each) for each in (sizes.base, sizes.head))
    return _counted(condition, base, head)


def _counted(condition: Condition, base: float, head: float) -> Evaluation:
    """Evaluate bytes, which are counted and have no noise."""
    is_beyond = _is_beyond(condition.limits, base, head - base)
    outcome = Outcome.FAILED if is_beyond else Outcome.PASSED
    return Evaluation("", base, head, Unit.BYTES, None, None, outcome)


def _matches_nothing_error(comparison: Comparison, condition: Condition) -> UsageError:
    names = dict.fromkeys(
        name
        for side in comparison.matched.sides
        for subject in side.parts.subjects
        if (name := name_of(condition.kind, subject)) is not None
    )
    suggestions = difflib.get_close_matches(
        condition.name or "", list(names), _MAX_SUGGESTIONS, cutoff=0.5
    )
    offered = f"; like it are {', '.join(map(repr, suggestions))}" if suggestions else ""
    what = "idle" if condition.kind is Kind.IDLE else "device"
    return UsageError(
        f"the condition {condition.text!r} is of nothing: no {what} time of either side is of it"
        f"{offered}"
    )
