"""The verdict: the line that the shapes tell against the line that the session gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.evidence import EagerEvidence, ForwardEvidence
from profiler_ext.records.vocabulary import Phase
from verification.eager_oracle.draft import TWICE, Program
from verification.eager_oracle.numbers import NumberedLines, Ops
from verification.eager_oracle.running import Run

_SUMS = ("aten::add", "aten::add_")


@dataclass(frozen=True, slots=True)
class Wrong:
    """A launch whose line is not the one that its shapes tell.

    Attributes:
        seed: the program's.
        op: the op that it is of.
        phase: its phase.
        expected: the lines that the shapes allow.
        given: the line that the session gives, or the gap.
        text: what stands on the expected line.
        evidence: what the session says of its line.
    """

    seed: int
    op: str
    phase: str
    expected: tuple[int, ...]
    given: str
    text: str
    evidence: str


@dataclass(slots=True)
class Score:
    """The sums over many programs.

    Attributes:
        programs: how many ran.
        launches: how many launches their shapes tell a line of.
        attributed: those that the session gives a line.
        right: those that it gives the right line.
        unnumbered: launches by op whose shapes have no number.
        modules: launches whose shapes tell a module, and those that have the right one.
        by_kind: launches by phase and evidence.
        gaps: launches without a line, by gap.
        wrong: what is not right.
        failed: programs that could not be judged.
    """

    programs: int = 0
    launches: int = 0
    attributed: int = 0
    right: int = 0
    unnumbered: Counter[str] = field(default_factory=Counter)
    modules: Counter[str] = field(default_factory=Counter)
    by_kind: Counter[str] = field(default_factory=Counter)
    gaps: Counter[str] = field(default_factory=Counter)
    wrong: list[Wrong] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)

    @property
    def precision(self) -> float:
        """The part of the lines given that are right."""
        return self.right / self.attributed if self.attributed else 0.0

    @property
    def recall(self) -> float:
        """The part of the lines known by shapes that are given, and right."""
        return self.right / self.launches if self.launches else 0.0

    @property
    def is_perfect(self) -> bool:
        """Every line is right, and nothing failed; nearly all launches have a line."""
        is_complete = self.launches > 9 * self.unnumbered.total()
        return is_complete and not self.wrong and not self.failed

    def as_json(self) -> dict[str, Any]:
        """Return the figures and every exception."""
        counters = ("unnumbered", "modules", "by_kind", "gaps")
        figures = {
            name: getattr(self, name) for name in ("programs", "launches", "attributed", "right")
        }
        figures |= {name: dict(getattr(self, name)) for name in counters}
        figures |= {"wrong": [asdict(each) for each in self.wrong], "failed": self.failed}
        return figures | {"precision": self.precision, "recall": self.recall}


def judge(score: Score, program: Program, run: Run) -> None:
    """Score each launch of a program.

    Args:
        score: what it is added to.
        program: the program.
        run: what came of it.
    """
    score.programs += 1
    judged = _Judge(program, run)
    for row, place, gap in _launches(run.session.analysis):
        judged.add(score, row, place, gap)


def _launches(analysis: Analysis) -> Iterator[tuple[int, Place, str]]:
    """Yield of each launch the CPU event that launched it, its one place, and its gap."""
    rows = zip(analysis.shares.launch.tolist(), analysis.shares.place.tolist(), strict=True)
    launches = analysis.launches
    for launch, place in rows:
        op = launches.op_event[launch]
        row = int(launches.event[launch] if op is np.ma.masked else op)
        yield row, analysis.places[place], launches.gap[launch]


class _Judge:
    def __init__(self, program: Program, run: Run) -> None:
        self._program, self._file = program, str(run.file)
        self._texts = program.text.splitlines()
        self._differentiates_twice = bool(TWICE & set(program.blocks))
        self._lines = NumberedLines.of(program.text)
        numbers = frozenset({*self._lines.made, *self._lines.meanwhile, *program.modules})
        self._ops = Ops(run.session.recording.trace, numbers)
        self._users = self._users_of_values(run.session.recording.trace.events)

    def _users_of_values(self, events: Any) -> dict[int, set[int]]:
        """Return the lines that have each number beside their own: they use that value."""
        users: dict[int, set[int]] = {}
        for row in range(len(events.name)):
            if events.category[row] == "cpu_op":
                _, numbers = self._ops.telling(row)
                own = numbers & self._lines.meanwhile.keys()
                for made in numbers & self._lines.made.keys():
                    users.setdefault(made, set()).update(self._lines.meanwhile[n] for n in own)
        return users

    def add(self, score: Score, row: int, place: Place, gap: str) -> None:
        """Score one launch."""
        op, numbers = self._ops.telling(row)
        expected = self._reported(op, row, numbers, place)
        if not expected:
            score.unnumbered[self._ops.name(op)] += 1
            return
        score.launches += 1
        is_right = place.file == self._file and place.line in expected and _is_phase_right(place)
        score.attributed += place.line is not None
        score.right += is_right
        score.by_kind[f"{place.phase} {place.evidence or place.gap or gap}"] += 1
        if place.line is None:
            score.gaps[place.gap or gap] += 1
        is_module_right = self._is_module_right(score, numbers, place)
        if not is_right or not is_module_right:
            score.wrong.append(self._wrong(op, expected, place, gap))

    def _reported(self, op: int, row: int, numbers: frozenset[int], place: Place) -> set[int]:
        lines = self._lines
        own = {lines.meanwhile[number] for number in numbers & lines.meanwhile.keys()}
        if own:
            return own if len(own) == 1 else set()
        made = numbers & lines.made.keys()
        if len(made) != 1:
            return set()
        (number,) = made
        if self._is_sum(op):
            return self._users.get(number, set()) if _says_sum(place) else {-1}
        expected = {lines.made[number]}.union(*self._passing(op))
        of_use = self._differentiates_twice or self._accumulates(op)
        return expected | self._users.get(number, set()) if of_use else expected

    def _passing(self, op: int) -> Iterator[set[int]]:
        """Yield the lines that pass a value on by an op: on a GPU another op of it launches."""
        for row in (op, *self._ops.around(op)):
            yield self._lines.passing.get(self._ops.name(row), set())

    def _accumulates(self, op: int) -> bool:
        """Tell whether a value gets its gradient: as a leaf, as within a reentrant checkpoint."""
        engine = self._ops.engine(op)
        return engine is not None and "AccumulateGrad" in self._ops.name(engine)

    def _is_sum(self, op: int) -> bool:
        """Tell whether the engine adds up gradients: within no node, but where it evaluates one."""
        around = next(iter(self._ops.around(op)), None)
        is_engine = around is not None and around == self._ops.engine(op)
        return is_engine and self._ops.name(op) in _SUMS

    def _is_module_right(self, score: Score, numbers: frozenset[int], place: Place) -> bool:
        paths = {self._program.modules[number] for number in numbers & self._program.modules.keys()}
        if not paths:
            return True
        score.modules["known"] += 1
        score.modules["right"] += (is_right := {place.module} == paths)
        return is_right

    def _wrong(self, op: int, expected: set[int], place: Place, gap: str) -> Wrong:
        given = f"{place.line}" if place.line is not None else f"gap {place.gap or gap}"
        given += f" of {place.module}" if place.module else ""
        text = self._texts[min(expected) - 1].strip() if expected else ""
        return Wrong(
            self._program.seed,
            self._ops.name(op),
            str(place.phase),
            tuple(sorted(expected)),
            given,
            text,
            str(place.evidence),
        )


def _says_sum(place: Place) -> bool:
    is_sum = place.forward_evidence == ForwardEvidence.GRADIENT_SUM
    return is_sum and place.evidence == EagerEvidence.RAN_LAST_USE


def _is_phase_right(place: Place) -> bool:
    """Tell whether the phase is one that the evidence of the line allows."""
    if place.forward_evidence == ForwardEvidence.RECOMPUTED:
        return place.phase == Phase.RECOMPUTE
    return place.evidence != EagerEvidence.RAN_FORWARD or place.phase == Phase.BACKWARD
