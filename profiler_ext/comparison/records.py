"""The records of a comparison: rows, their matches, changes and verdicts.

A *side* is one or more runs of a program: the *base*, which came before, and the *head*. A *run*
is a session, or the sessions of all its ranks. Times of a side are sums of whole nanoseconds over
its steps; per step is that sum over the number of its steps (of several ranks: of all their
steps), the mean of a recorded step. For every table the rows' sums are the ledger's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from profiler_ext.records.vocabulary import Term


class Account(Term, page="words.md", title="account", columns=()):
    """Which part of the steps' wall time a row of a comparison is of; together they are all."""

    DEVICE = (
        "device",
        "device time",
        "is the device time of launches that the steps enqueued, as the tables of a session sum it",
    )
    IDLE = ("idle", "device idle", "is when the device ran nothing")
    OVERLAPPED = (
        "overlapped",
        "launches that overlap",
        "is below zero: what launches ran at the same time as others, which is no wall time",
    )
    DISPLACED = (
        "displaced",
        "work of other steps",
        "is what the device ran in the steps' spans for others, less what it ran for them outside",
    )
    STEPS_OVERLAP = (
        "steps_overlap",
        "steps that overlap",
        "is idle time of a moment that lies in two steps, of which one has it already",
    )


class Match(Term, page="words.md", title="match", columns=()):
    """By what the two sides of a row of a comparison are known to be the same."""

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
    RESPELT = (
        "respelt",
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
    GONE = ("gone", "gone", "is on the base's side alone")


class Verdict(Term, page="words.md", title="verdict", columns=()):
    """What the difference of a row came to."""

    EQUAL = ("equal", "equal", "is of the same time on both sides, to the nanosecond")
    SLOWER = ("slower", "slower", "takes longer, by more than the noise")
    FASTER = ("faster", "faster", "takes less time, by more than the noise")
    NEW = ("new", "new", "ran in every step of the head, and in none of the base")
    GONE = ("gone", "gone", "ran in every step of the base, and in none of the head")
    NOISE = ("noise", "inside the noise", "differs by no more than steps or runs do by themselves")
    TOO_FEW = (
        "too_few",
        "too few steps",
        "cannot be told from noise, as there are too few steps",
        "record at least five steps of each side, or several runs",
    )
    NOT_COMPARABLE = (
        "not_comparable",
        "not comparable",
        "is of steps that were recorded, which a recording makes longer on one side than on the "
        "other, and no steps before the recording tell what they take in training",
        "record with three or more steps before the recording, as `profiler-ext run` does",
    )


CHANGED = (Verdict.SLOWER, Verdict.FASTER, Verdict.NEW, Verdict.GONE)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a row is of, on one side; what a table does not tell apart is ``None``.

    Attributes:
        account: the part of wall time.
        file: path without the root that it lies under; whole where that would be ambiguous.
        line: the line's number.
        function, code: of the line; they do not tell rows apart.
        module: path from the user's model.
        module_class: its class; it does not tell rows apart.
        aten_op: the op.
        phase: the phase.
        kernel: Inductor's name of the kernel, or the event's.
        kind: what launched, or compiled.
        scope, level, category: those of the ledger.
        cause: why the device was idle.
        gap: why there is no line, module or op.
    """

    account: str = Account.DEVICE
    file: str | None = None
    line: int | None = None
    function: str | None = field(default=None, compare=False)
    code: str | None = field(default=None, compare=False)
    module: str | None = None
    module_class: str | None = field(default=None, compare=False)
    aten_op: str | None = None
    phase: str | None = None
    kernel: str | None = None
    kind: str | None = None
    scope: str | None = None
    level: str | None = None
    category: str | None = None
    cause: str | None = None
    gap: str | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    """What the difference of a mean step could be, and how well noise alone explains it.

    Attributes:
        low_ns, high_ns: the 95% confidence interval of head less base, of this row alone.
        p_value: how often noise alone gives such a difference.
        q_value: the same among all rows of the table: the part of the rows called changed at this
            value that are not (Benjamini and Hochberg, 1995).
    """

    low_ns: float
    high_ns: float
    p_value: float
    q_value: float


@dataclass(frozen=True, slots=True)
class Change:
    """What a row takes on both sides.

    Attributes:
        base_ns, head_ns: the sums over the steps of each side.
        base_steps, head_steps: over how many steps.
        base_launches, head_launches: how many launches have a part in it.
        interval: the uncertainty of the difference; ``None`` where there are too few steps, or
            both sides are equal.
        verdict: what it came to.
    """

    base_ns: int
    head_ns: int
    base_steps: int
    head_steps: int
    base_launches: int = 0
    head_launches: int = 0
    interval: Interval | None = None
    verdict: Verdict = Verdict.TOO_FEW

    @property
    def base_per_step_ns(self) -> float:
        """Time of the base's mean step."""
        return self.base_ns / self.base_steps if self.base_steps else 0.0

    @property
    def head_per_step_ns(self) -> float:
        """Time of the head's mean step."""
        return self.head_ns / self.head_steps if self.head_steps else 0.0

    @property
    def delta_ns(self) -> float:
        """How much longer the head's mean step takes; below zero where it is shorter."""
        return self.head_per_step_ns - self.base_per_step_ns

    @property
    def fraction(self) -> float | None:
        """The difference as a part of the base; ``None`` where the base has none."""
        return self.delta_ns / self.base_per_step_ns if self.base_ns else None

    @property
    def is_change(self) -> bool:
        """Whether it is more than noise."""
        return self.verdict in CHANGED


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """The part of a row that is of one phase: sums over the steps of each side."""

    phase: str
    base_ns: int
    head_ns: int


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table of a comparison.

    Attributes:
        base: what it is of in the base; ``None`` where the base has no such thing.
        head: the same in the head; one of the two is always there.
        match: by what the two are known to be the same.
        change: its times.
        phases: its device time by phase; they add up to it.
        modules: paths of the modules that have most of its time, numbers as ``*``.
    """

    base: Subject | None
    head: Subject | None
    match: Match
    change: Change
    phases: tuple[PhaseTimes, ...] = ()
    modules: tuple[str, ...] = ()

    @property
    def subject(self) -> Subject:
        """What it is of: in the head where it is there, else in the base."""
        result = self.head or self.base
        assert result is not None
        return result


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a comparison.

    Attributes:
        by: what its rows are: ``ledger``, ``phase``, ``line``, ``module``, ``layer`` (modules with
            numbers as ``*``), ``op``, ``kernel`` or ``compile``.
        rows: the rows, the largest difference first.
        total: their sum: the whole of the steps' wall time; of ``compile`` what compiling took.
    """

    by: str
    rows: tuple[Row, ...]
    total: Change


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """What launches of one set of ops have in common, on one side of a fusion that changed.

    Attributes:
        kernels: names of the kernels that are launched for it.
        ops: the ops that each launch computes, with the line of each: ``aten.mul`` at ``m.py:3``.
        duration_ns: time over all steps.
        launches: how many launches, over all steps.
    """

    kernels: tuple[str, ...]
    ops: tuple[Subject, ...]
    duration_ns: int
    launches: int


@dataclass(frozen=True, slots=True)
class FusionChange:
    """Launches that share ops with each other, and are cut otherwise in the head.

    Attributes:
        base: what was launched before.
        head: what is launched now.
        change: the time of all of them.
    """

    base: tuple[FusedKernel, ...]
    head: tuple[FusedKernel, ...]
    change: Change


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a side.

    Attributes:
        name: how the user called it: a path, or a number.
        command: the command line.
        torch_version: torch that ran.
        devices: names of the devices.
        ranks: the ranks that were recorded.
        steps: how many steps each run recorded; of several ranks those of the first.
    """

    name: str
    command: tuple[str, ...]
    torch_version: str
    devices: tuple[str, ...]
    ranks: tuple[int, ...]
    steps: int
