"""The order of ``profiler-ext try``: each remedy alone, in turn, then those that win added up."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from profiler_ext.errors import UsageError
from profiler_ext.exporters.diff.texts import names_text
from profiler_ext.exporters.json_output.documents import (
    BreakdownChange,
    HandEdit,
    TrialRow,
    TryAnswer,
)
from profiler_ext.exporters.views.trials import FILE_NAME
from profiler_ext.file_io import replacing
from profiler_ext.findings import Finding, SavingPer
from profiler_ext.memory.recommendations import MemoryFinding
from profiler_ext.sessions.comparing import diff
from profiler_ext.sessions.merging import load
from profiler_ext.trials import BY_NAME, REMEDIES
from profiler_ext.trials.child import Measured, Patched
from profiler_ext.trials.edits import edits_of
from profiler_ext.trials.measuring import (
    Children,
    Gain,
    Side,
    StoppedError,
    gain,
    loss_difference,
)
from profiler_ext.trials.remedy import Remedy, Site

WINS, SLOWER = "wins", "slower"
SAVES_MEMORY = "saves memory"
NO_GAIN = "gains less than 1%"
LEAST_GAIN = 0.01
UNDECIDED = "undecided"
CHANGES_LOSSES = "changes the losses"
BREAKS = "breaks the script"
NOT_APPLICABLE = "not applicable"
_LEAST_CHANGE, _MAX_CHANGES = 0.01, 5
_WORDS = re.compile(r"\w+")
_TOGETHER = 3
"""So many remedies take turns with the script as it is: their children lie close in time."""
_COUNTED_FROM = 3
"""With so many remedies or more a child counts first what they would patch."""


def proposed(session_folder: Path) -> tuple[Remedy, ...]:
    """Return the remedies that the findings of a session propose, the largest saving first."""
    of_steps: list[Finding | MemoryFinding] = [
        each
        for each in load(session_folder).recommendations.ranked
        if each.saving_per in (SavingPer.STEP, SavingPer.UNKNOWN)
    ]
    of_steps += load(session_folder).memory_recommendations.ranked
    pairs = ((finding, each) for finding in of_steps for each in REMEDIES)
    return tuple(dict.fromkeys(each for finding, each in pairs if _proposes(finding, each)))


def claims(session_folder: Path) -> dict[str, int]:
    """Return by how much the peak of memory falls with each remedy, as recommendations say."""
    found = load(session_folder).memory_recommendations.ranked
    pairs = ((finding, each) for finding in reversed(found) for each in REMEDIES)
    return {each.name: finding.saved_bytes for finding, each in pairs if finding.rule in each.rules}


def _proposes(finding: Finding | MemoryFinding, remedy: Remedy) -> bool:
    is_named = finding.rule in remedy.named_by and remedy.name in _WORDS.findall(finding.remedy)
    return finding.rule in remedy.rules or is_named


def named(names: Sequence[str]) -> tuple[Remedy, ...]:
    """Return remedies by their names."""
    from difflib import get_close_matches

    for name in names:
        if name not in BY_NAME:
            close = get_close_matches(name, BY_NAME, n=1)
            meant = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(f"there is no remedy {name}{meant} --list has all")
        if BY_NAME[name].apply is None:
            raise UsageError(f"{name} cannot be patched in; edit it: {BY_NAME[name].edit}")
    return tuple(BY_NAME[name] for name in dict.fromkeys(names))


@dataclass(slots=True)
class _Trial:
    """Remedies that are compared with what they are tried on top of."""

    remedies: tuple[Remedy, ...]
    kept: tuple[str, ...]  # on both sides
    base: Side
    rows: list[TrialRow]  # where the verdict goes
    head: Side = field(init=False)

    def __post_init__(self) -> None:
        self.head = Side((*self.kept, *(each.name for each in self.remedies)))


@dataclass(slots=True)
class Trials:
    """Measures remedies, and keeps what was measured.

    Args:
        children: runs the script.
        pairs: how many children a side has at most.
    """

    children: Children
    pairs: int
    rows: list[TrialRow] = field(default_factory=list)
    best: list[Remedy] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    stopped_by: str | None = None
    claims: Mapping[str, int] = field(default_factory=dict)  # bytes that remedies save
    began_ns: int = field(default_factory=time.monotonic_ns)
    _totals: list[TrialRow] = field(default_factory=list)
    _sites: dict[str, list[Site]] = field(default_factory=dict)
    _waiting: list[Remedy] = field(default_factory=list)
    _under_way: list[_Trial] = field(default_factory=list)
    _first: Measured | None = None

    def run(self, remedies: Sequence[Remedy]) -> None:
        """Measure each remedy alone, add up those that win, and measure these together."""
        self._waiting = self._with_something_to_patch(remedies)
        while self._waiting:
            group, self._waiting = self._waiting[:_TOGETHER], self._waiting[_TOGETHER:]
            base = Side(())
            self._take_turns(base, [_Trial((each,), (), base, self.rows) for each in group])
        names = [each.name for each in remedies]
        self.rows.sort(key=lambda row: names.index(row.remedies[0]))
        self._add_up()

    def most_children(self, remedies: int) -> int:
        """Return how many children so many remedies take at most, if none is decided early."""
        counting = 1 if remedies >= _COUNTED_FROM else 0
        groups = math.ceil(remedies / _TOGETHER)
        alone = self.pairs * (remedies + groups)
        added_up = 2 * self.pairs * remedies if remedies > 1 else 0
        return counting + alone + added_up + remedies + 1  # those that are recorded

    def stop(self, reason: str) -> None:
        """End the trials early: what has no verdict is undecided, with what was measured of it."""
        self.stopped_by = reason
        for each in self._under_way:
            each.rows.append(self._row(each, reason))
        waiting = [_Trial((each,), (), Side(()), self.rows) for each in self._waiting]
        self.rows += [self._row(each, f"not run: {reason}") for each in waiting]
        self._under_way, self._waiting = [], []
        if not self.best:
            self.best = self._winners[:1]

    @property
    def total(self) -> TrialRow | None:
        """The best set against the script as it is."""
        return self._totals[0] if self._totals else None

    @property
    def _winners(self) -> list[Remedy]:
        """The remedies that win alone, the largest gain first."""
        alone = [row for row in self.rows if row.verdict == WINS and not row.on_top_of]
        return [BY_NAME[row.remedies[0]] for row in sorted(alone, key=lambda row: -(row.gain or 0))]

    def record_changes(self, folder: Path, base: Path | None) -> None:
        """Record what wins, and state what changed in the step time breakdown.

        Args:
            folder: where sessions are written.
            base: the session of the script as it is, if it was recorded.
        """
        winning = [row for row in self.rows if row.verdict == WINS and not row.on_top_of]
        if not winning:
            return
        try:
            if base is None:
                base = self._recorded(folder / "as_it_is", ())
            for rows in (self.rows, self._totals):
                for at, row in enumerate(rows):
                    if base is not None and (row in winning or rows is self._totals):
                        head = self._recorded(folder / "+".join(row.remedies), row.remedies)
                        changed = [] if head is None else breakdown_changes(base, head)
                        rows[at] = msgspec.structs.replace(row, changes=changed)
        except StoppedError as stop:
            self.notes.append(f"what changed in the step time breakdown is not known: {stop}")

    def _recorded(self, folder: Path, remedies: Sequence[str]) -> Path | None:
        folder.mkdir(parents=True, exist_ok=True)
        error = self.children.record(folder, remedies)
        if error is not None:
            self.notes.append(f"{folder.name} could not be recorded: {error}")
        return folder if error is None else None

    def _with_something_to_patch(self, remedies: Sequence[Remedy]) -> list[Remedy]:
        """Leave out what has nothing to patch, by one child: of few each tells it by its own."""
        if len(remedies) < _COUNTED_FROM:
            return list(remedies)
        self._waiting = list(remedies)
        measured = self.children.applicable([each.name for each in remedies])
        counted = measured.patched if measured.error is None else {}
        left = []
        for each in remedies:
            patched = counted.get(each.name)
            if patched is None or patched.count:
                left.append(each)
            else:
                trial = _Trial((each,), (), Side(()), self.rows)
                self.rows.append(_not_applicable(self._bare_row(trial), each, patched))
        return left

    def _add_up(self) -> None:
        """Try what wins on top of what wins more, and measure the best set."""
        for each in self._winners:
            if self.best:
                kept = tuple(one.name for one in self.best)
                base = Side(kept)
                self._take_turns(base, [_Trial((each,), kept, base, self.rows)])
            if not self.best or self.rows[-1].verdict == WINS:
                self.best.append(each)
        if len(self.best) > 1:
            base = Side(())
            self._take_turns(base, [_Trial(tuple(self.best), (), base, self._totals)])

    def _take_turns(self, base: Side, trials: Sequence[_Trial]) -> None:
        """Run children of all sides in turn, until each trial is decided."""
        self._under_way = list(trials)
        for number in range(1, self.pairs + 1):
            if self._under_way:
                self._add_base(base)
            for each in list(self._under_way):
                self._add(each)
                row = self._row(each)
                if row.verdict != UNDECIDED or number == self.pairs:
                    self._under_way.remove(each)
                    each.rows.append(row)

    def _add_base(self, side: Side) -> None:
        measured = self.children.measure(side.remedies)
        if measured.took_ns:
            self._first = self._first or measured
            side.runs.append(measured)
            return
        what = "with ".join(("the script ", "+".join(side.remedies))) if side.remedies else (
            "the script as it is"
        )  # fmt: skip
        failure = f"{what} cannot be timed: {measured.error}"
        if self._first is None:
            raise UsageError(f"{failure}; see {self.children.logs}")
        raise StoppedError(failure)

    def _add(self, trial: _Trial) -> None:
        measured = self.children.measure(trial.head.remedies)
        trial.head.runs.append(measured)
        for name, patched in measured.patched.items():
            self._sites[name] = patched.sites

    def _bare_row(self, trial: _Trial) -> TrialRow:
        """Return what is known without a child with the remedies."""
        base, is_timed = trial.base, bool(trial.base.runs)
        return TrialRow(
            remedies=[each.name for each in trial.remedies],
            rules=list(dict.fromkeys(rule for each in trial.remedies for rule in each.rules)),
            on_top_of=list(trial.kept),
            verdict=UNDECIDED,
            reason=None,
            base_children=len(base.runs),
            children=len(trial.head.runs),
            base_step_ns=round(base.step_ns) if is_timed else None,
            step_ns=None,
            gain=None,
            gain_low=None,
            gain_high=None,
            base_peak_bytes=base.peak_bytes,
            peak_bytes=None,
            base_reserved_bytes=base.reserved_bytes,
            claimed_bytes=self.claims.get(trial.remedies[0].name) if not trial.kept else None,
            base_startup_ns=base.startup_ns if is_timed else None,
            startup_ns=None,
            losses="unknown",
            loss_difference=None,
            patched=0,
            changes=[],
        )

    def _row(self, trial: _Trial, reason: str | None = None) -> TrialRow:
        """Judge what was measured.

        Args:
            trial: what to judge.
            reason: why there is no more of it.
        """
        row = msgspec.structs.replace(self._bare_row(trial), reason=reason)
        runs = trial.head.runs
        if not runs:
            return row
        broken = next((each for each in runs if not each.took_ns), None)
        if broken is not None:
            return msgspec.structs.replace(row, verdict=BREAKS, reason=broken.error)
        for each in trial.remedies:
            patched = runs[0].patched.get(each.name)
            if patched is None or not patched.count:
                return _not_applicable(row, each, patched)
        counts = [runs[0].patched[each.name].count for each in trial.remedies]
        return self._judged(msgspec.structs.replace(row, patched=sum(counts)), trial)

    def _judged(self, row: TrialRow, trial: _Trial) -> TrialRow:
        base, head = trial.base, trial.head
        saved = gain(base, head, max(self.pairs - 1, 1))
        lowest = max((each.precision for each in trial.remedies), key=_PRECISIONS.index)
        losses, difference = loss_difference(base, head, lowest)
        frees = {each.frees for each in trial.remedies} - {""}
        row = msgspec.structs.replace(
            row,
            step_ns=round(head.step_ns),
            gain=saved.value,
            gain_low=saved.low,
            gain_high=saved.high,
            peak_bytes=head.peak_bytes,
            reserved_bytes=head.reserved_bytes,
            startup_ns=head.startup_ns,
            losses=losses,
            loss_difference=difference,
        )
        verdict = _verdict(saved, losses)
        if verdict != WINS and losses != "different" and any(_saves(row, each) for each in frees):
            verdict = SAVES_MEMORY if saved.low is not None else UNDECIDED
        return msgspec.structs.replace(row, verdict=verdict)

    def answer(self, by_hand: Sequence[Remedy] = ()) -> TryAnswer:
        """Return all that was measured, and the edit to make.

        Args:
            by_hand: what was proposed and cannot be patched in.
        """
        script, first = self.children.script, self._first
        best = [(each, self._sites.get(each.name, [])) for each in self.best]
        edits = edits_of(best, script.path, Path.cwd())
        untried = [HandEdit(remedy=each.name, edit=each.edit, places=[], is_tried=False)
                   for each in by_hand]  # fmt: skip
        kept = [
            HandEdit(remedy=each.name, edit=each.edit, places=_places(sites), is_tried=True)
            for each, sites in best
            if each.name in edits.by_hand
        ]
        return TryAnswer(
            command=script.words,
            steps=script.steps,
            pairs=self.pairs,
            runs=self.children.count,
            duration_ns=time.monotonic_ns() - self.began_ns,
            on_device=first is not None and first.on_device,
            steps_by="" if first is None else first.steps_by,
            rows=self.rows,
            best=[each.name for each in self.best],
            total=self.total,
            diff=edits.diff,
            edits=[*kept, *untried],
            stopped_by=self.stopped_by,
            notes=self.notes,
        )


_PRECISIONS = ("float32", "tf32", "bfloat16")


def _verdict(saved: Gain, losses: str) -> str:
    """Judge a gain by its interval; all of it is on one side of what is asked, or more is run."""
    if saved.low is None or saved.high is None:
        return UNDECIDED
    if saved.low > 0:
        return CHANGES_LOSSES if losses == "different" else WINS
    if saved.high < 0:
        return SLOWER
    return NO_GAIN if saved.high < LEAST_GAIN else UNDECIDED


def _saves(row: TrialRow, what: str) -> bool:
    """Tell whether memory is less by as much as counts: allocated, or reserved."""
    is_reserved = what == "reserved"
    base = row.base_reserved_bytes if is_reserved else row.base_peak_bytes
    peak = row.reserved_bytes if is_reserved else row.peak_bytes
    return base is not None and peak is not None and peak <= (1 - LEAST_GAIN) * base


def _not_applicable(row: TrialRow, remedy: Remedy, patched: Patched | None) -> TrialRow:
    reason = (patched.reason if patched is not None else "") or remedy.lacks
    return msgspec.structs.replace(row, verdict=NOT_APPLICABLE, reason=reason)


def breakdown_changes(base: Path, head: Path) -> list[BreakdownChange]:
    """Return what changed most between two recordings, of what is a part of the step worth it."""
    table = diff(base, head).comparison.table("phase")
    least_ns = _LEAST_CHANGE * table.total.base_per_step_ns
    changed = [row for row in table.rows if abs(row.change.delta_ns) >= least_ns]
    return [
        BreakdownChange(
            name=names_text("phase", row),
            base_ns=row.change.base_per_step_ns,
            head_ns=row.change.head_per_step_ns,
        )
        for row in changed[:_MAX_CHANGES]
    ]


def _places(sites: Sequence[Site]) -> list[str]:
    return [f"{_shown(Path(each.file))}:{each.line}" for each in sites]


def _shown(path: Path) -> Path:
    cwd = Path.cwd()
    return path.relative_to(cwd) if path.is_relative_to(cwd) else path


def keep(answer: TryAnswer, folder: Path) -> Path:
    """Write an answer beside the session; returns its path."""
    path = folder / FILE_NAME
    with replacing(path) as file:
        file.write(msgspec.json.format(msgspec.json.encode(answer), indent=1) + b"\n")
    return path
