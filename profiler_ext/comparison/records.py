"""The records of a comparison: rows, matches, changes and verdicts.

A *side* is one or more runs of a program: the *base* (before) or the *head* (after). A *run* is a
session, or the sessions of all its ranks. A side's time is a sum of whole nanoseconds over its
steps; per step, it is that sum over the number of steps of all ranks. The rows of every table add
up to the breakdown.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from profiler_ext.records.vocabulary import Term


class Account(Term, page="words.md", title="account", columns=()):
    """The part of wall time that a row is of; together they are all of it."""

    DEVICE = (
        "device",
        "device time",
        "is the device time of launches that the steps enqueued, as the tables of a session sum it",
    )
    IDLE = ("idle", "device idle", "is when the device ran nothing")
    OVERLAPPED = (
        "overlapped",
        "launches that overlap",
        "is below zero: launches that ran at the same time as others, which is not wall time",
    )
    OTHER_STEPS = (
        "other_steps",
        "work of other steps",
        "is what the device ran in the steps' spans for others, less what it ran for them outside",
    )
    STEPS_OVERLAP = (
        "steps_overlap",
        "steps that overlap",
        "is idle time of a moment that lies in two steps, of which one has it already",
    )


class Match(Term, page="words.md", title="match", columns=()):
    """By what the two sides of a row are known to be the same."""

    SAME = ("same", "the same", "has the same name on both sides, and of a line the same text")
    MOVED = ("moved", "moved", "is a line with the same text and another number, or function")
    EDITED = (
        "edited",
        "edited",
        "is a line whose text was changed: it stands between the same lines, and reads alike",
    )
    NUMBER = (
        "number",
        "the same number",
        "is a line without recorded text, in a file of which nothing says that it changed",
    )
    RENAMED = (
        "renamed",
        "renamed",
        "has another name: its content is the same, and nothing else has that",
    )
    RESPELLED = (
        "respelled",
        "spelt otherwise",
        "is an op that compiled graphs and eager work spell differently",
    )
    SAME_WORK = (
        "same_work",
        "the same work",
        "is a kernel of another name that computes the same ops of the same lines",
    )
    SIMILAR_WORK = (
        "similar_work",
        "most of the work",
        "is a kernel that computes most of the same ops of the same lines",
    )
    NEW = ("new", "new", "is on the head's side alone")
    REMOVED = ("removed", "removed", "is on the base's side alone")


class Verdict(Term, page="words.md", title="verdict", columns=()):
    """Whether a row's time changed."""

    EQUAL = ("equal", "equal", "is of the same time on both sides, to the nanosecond")
    SLOWER = ("slower", "slower", "takes significantly longer")
    FASTER = ("faster", "faster", "takes significantly less time")
    NEW = ("new", "new", "ran in every step of the head, and in none of the base")
    REMOVED = ("removed", "removed", "ran in every step of the base, and in none of the head")
    NOT_SIGNIFICANT = (
        "not_significant",
        "not significant",
        "differs by no more than steps or runs do by themselves",
    )
    TOO_FEW = (
        "too_few",
        "too few steps",
        "cannot be distinguished from noise, as there are too few steps",
        "record at least five steps of each side, or several runs",
    )
    NOT_COMPARABLE = (
        "not_comparable",
        "not comparable",
        "is of steps that were recorded, which a recording makes longer on one side than on the "
        "other, and no steps before the recording show what they take in training",
        "record with three or more steps before the recording, as `profiler-ext run` does",
    )


CHANGED = (Verdict.SLOWER, Verdict.FASTER, Verdict.NEW, Verdict.REMOVED)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a row is of, on one side; ``None`` where a table does not tell it apart."""

    account: str = Account.DEVICE
    file: str | None = None  # path without its root; whole where that would be ambiguous
    line: int | None = None
    # function and code do not tell rows apart
    function: str | None = field(default=None, compare=False)
    code: str | None = field(default=None, compare=False)
    module: str | None = None  # path from the user's model
    module_class: str | None = field(default=None, compare=False)
    aten_op: str | None = None
    phase: str | None = None
    kernel: str | None = None  # Inductor's name of the kernel, or the event's
    kind: str | None = None  # what launched, or compiled
    scope: str | None = None  # scope, level and category as in the breakdown
    level: str | None = None
    category: str | None = None
    cause: str | None = None  # why the device was idle
    gap: str | None = None  # why there is no line, module or op


@dataclass(frozen=True, slots=True)
class Interval:
    """The uncertainty of a mean step's difference."""

    low_ns: float  # 95% confidence interval of head less base, of this row alone
    high_ns: float
    p_value: float  # how often noise alone gives such a difference
    q_value: float  # false discovery rate among the table's rows (Benjamini and Hochberg, 1995)


@dataclass(frozen=True, slots=True)
class Change:
    """A row's times on both sides."""

    base_ns: int  # sums over the steps of each side
    head_ns: int
    base_steps: int
    head_steps: int
    base_launches: int = 0  # launches that have a part in it
    head_launches: int = 0
    interval: Interval | None = None  # ``None`` for too few steps, or equal sides
    verdict: Verdict = Verdict.TOO_FEW

    @property
    def base_per_step_ns(self) -> float:
        """The base's mean step."""
        return self.base_ns / self.base_steps if self.base_steps else 0.0

    @property
    def head_per_step_ns(self) -> float:
        """The head's mean step."""
        return self.head_ns / self.head_steps if self.head_steps else 0.0

    @property
    def delta_ns(self) -> float:
        """Head less base, of a mean step."""
        return self.head_per_step_ns - self.base_per_step_ns

    @property
    def fraction(self) -> float | None:
        """The difference over the base; ``None`` where the base has no time."""
        return self.delta_ns / self.base_per_step_ns if self.base_ns else None

    @property
    def is_change(self) -> bool:
        """Whether it is more than noise."""
        return self.verdict in CHANGED


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """A row's time of one phase, summed over the steps of each side."""

    phase: str
    base_ns: int
    head_ns: int


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table of a comparison."""

    base: Subject | None  # ``None`` where the base has no such thing
    head: Subject | None  # one of the two is always there
    match: Match
    change: Change
    phases: tuple[PhaseTimes, ...] = ()  # device time by phase; adds up to it
    modules: tuple[str, ...] = ()  # modules with most of its time, numbers as ``*``

    @property
    def subject(self) -> Subject:
        """The head's subject, else the base's."""
        result = self.head or self.base
        assert result is not None
        return result


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a comparison."""

    # ``breakdown``, ``phase``, ``line``, ``module``, ``layer``, ``op``, ``kernel`` or ``compile``
    by: str
    rows: tuple[Row, ...]  # the largest difference first
    total: Change  # all wall time of the steps; of ``compile`` all compile time


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """Launches of one set of ops, on one side of a changed fusion."""

    kernels: tuple[str, ...]
    ops: tuple[Subject, ...]  # the ops that each launch computes, with their lines
    duration_ns: int  # over all steps
    launches: int  # over all steps


@dataclass(frozen=True, slots=True)
class NotFused:
    """Two kernels of one side that pass a buffer on, and why they were not fused."""

    writer: str
    reader: str
    barrier: str  # a ``FusionBarrier``
    reason: str


@dataclass(frozen=True, slots=True)
class FusionChange:
    """Launches that share ops, and are cut otherwise in the head."""

    base: tuple[FusedKernel, ...]
    head: tuple[FusedKernel, ...]
    change: Change  # the time of all of them
    not_fused: tuple[NotFused, ...] = ()  # among the head's kernels, each pair once


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a side."""

    name: str  # as the user called it: a path, or a number
    command: tuple[str, ...]
    torch_version: str
    devices: tuple[str, ...]
    ranks: tuple[int, ...]
    steps: int  # recorded steps; of several ranks, steps of the same number are one
