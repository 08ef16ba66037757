"""The order of ``profiler-ext try``: each remedy alone, or what findings propose, added up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from profiler_ext.errors import UsageError
from profiler_ext.exporters.json_output.documents import HandEdit, TrialRow, TryAnswer
from profiler_ext.exporters.views.trials import FILE_NAME
from profiler_ext.file_io import replacing
from profiler_ext.findings import SavingPer
from profiler_ext.sessions.merging import load
from profiler_ext.trials import BY_NAME, REMEDIES
from profiler_ext.trials.child import Measured
from profiler_ext.trials.edits import edits_of
from profiler_ext.trials.measuring import Children, Side, gain, loss_difference
from profiler_ext.trials.remedy import Remedy, Site

WINS, SLOWER = "wins", "slower"
EQUAL = "no significant difference"
CHANGES_LOSSES = "changes the losses"
BREAKS = "breaks the script"
NOT_APPLICABLE = "not applicable"


def proposed(session_folder: Path) -> tuple[Remedy, ...]:
    """Return the remedies that the findings of a session propose, the largest saving first."""
    of_steps = [
        each
        for each in load(session_folder).recommendations.ranked
        if each.saving_per in (SavingPer.STEP, SavingPer.UNKNOWN)
    ]
    rules = dict.fromkeys(each.rule for each in of_steps)
    by_rule = ((rule, each) for rule in rules for each in REMEDIES if rule in each.rules)
    return tuple(dict.fromkeys(each for _, each in by_rule))


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
class Trials:
    """Measures remedies, and keeps what was measured."""

    children: Children
    pairs: int
    rows: list[TrialRow] = field(default_factory=list)
    best: list[Remedy] = field(default_factory=list)
    total: TrialRow | None = None
    notes: list[str] = field(default_factory=list)
    began_ns: int = field(default_factory=time.monotonic_ns)
    _sites: dict[str, list[Site]] = field(default_factory=dict)
    _last_base: Measured | None = None  # the last child of the set that is tried on top of
    _first: Measured | None = None

    def each_alone(self, remedies: Sequence[Remedy]) -> None:
        """Measure each remedy against the script as it is, in turn, and all that won together."""
        base, left = Side(()), {each: Side((each.name,)) for each in remedies}
        sides = dict(left)
        for _ in range(self.pairs):
            self._add_base(base)
            for each, side in list(left.items()):
                if not self._add(side, each):
                    del left[each]
        for each, side in sides.items():
            self.rows.append(self._row(base, side, [each], ()))
        self.best = [BY_NAME[row.remedies[0]] for row in self.rows if row.verdict == WINS]
        if len(self.best) > 1:
            self._add_total()

    def on_top(self, remedies: Sequence[Remedy]) -> None:
        """Try remedies one after the other, each on top of those that won before."""
        for each in remedies:
            kept = tuple(one.name for one in self.best)
            base, head = Side(kept), Side((*kept, each.name))
            if self._last_base is not None:
                base.runs.append(self._last_base)
            else:
                self._add_base(base)
            while self._add(head, each) and len(head.runs) < self.pairs:
                self._add_base(base)
            row = self._row(base, head, [each], kept)
            self.rows.append(row)
            self._last_base = base.runs[-1]
            if row.verdict == WINS:
                self.best.append(each)
                self._last_base = head.runs[-1]
        if len(self.best) > 1:
            self._add_total()

    def _add_total(self) -> None:
        """Measure the best set against the script as it is."""
        names = tuple(each.name for each in self.best)
        base, head = Side(()), Side(names)
        for _ in range(self.pairs):
            self._add_base(base)
            head.runs.append(self.children.measure(names))
            if head.runs[-1].error is not None and not head.runs[-1].took_ns:
                break
        self.total = self._row(base, head, self.best, ())

    def _add_base(self, side: Side) -> None:
        measured = self.children.measure(side.remedies)
        self._first = self._first or measured
        if not measured.took_ns:
            what = "with ".join(("the script ", "+".join(side.remedies))) if side.remedies else (
                "the script as it is"
            )  # fmt: skip
            raise UsageError(f"{what} cannot be timed: {measured.error}; see {self.children.logs}")
        side.runs.append(measured)

    def _add(self, side: Side, remedy: Remedy) -> bool:
        """Run a child with a remedy; return whether there is reason to run another."""
        measured = self.children.measure(side.remedies)
        side.runs.append(measured)
        patched = measured.patched.get(remedy.name)
        if patched is not None:
            self._sites[remedy.name] = patched.sites
        return bool(measured.took_ns and patched is not None and patched.count)

    def _row(
        self, base: Side, head: Side, remedies: Sequence[Remedy], kept: tuple[str, ...]
    ) -> TrialRow:
        """Judge what was measured."""
        patched = [head.runs[0].patched.get(each.name) for each in remedies]
        counts = [0 if each is None else each.count for each in patched]
        row = TrialRow(
            remedies=[each.name for each in remedies],
            on_top_of=list(kept),
            verdict=BREAKS,
            reason=None,
            children=len(head.runs),
            base_step_ns=round(base.step_ns),
            step_ns=None,
            gain=None,
            gain_low=None,
            gain_high=None,
            base_peak_bytes=base.peak_bytes,
            peak_bytes=None,
            base_startup_ns=base.startup_ns,
            startup_ns=None,
            losses="unknown",
            loss_difference=None,
            patched=sum(counts),
        )
        broken = next((each for each in head.runs if not each.took_ns), None)
        if broken is not None:
            return msgspec.structs.replace(row, reason=broken.error)
        if not all(counts):
            at = counts.index(0)
            known = patched[at]
            reason = (known.reason if known is not None else "") or remedies[at].lacks
            return msgspec.structs.replace(row, verdict=NOT_APPLICABLE, reason=reason)
        return self._judged(row, base, head, remedies)

    def _judged(
        self, row: TrialRow, base: Side, head: Side, remedies: Sequence[Remedy]
    ) -> TrialRow:
        saved = gain(base, head)
        lowest = max((each.precision for each in remedies), key=_PRECISIONS.index)
        losses, difference = loss_difference(base, head, lowest)
        verdict = EQUAL
        if saved.low > 0:
            verdict = CHANGES_LOSSES if losses == "different" else WINS
        elif saved.high < 0:
            verdict = SLOWER
        return msgspec.structs.replace(
            row,
            verdict=verdict,
            step_ns=round(head.step_ns),
            gain=saved.value,
            gain_low=saved.low,
            gain_high=saved.high,
            peak_bytes=head.peak_bytes,
            startup_ns=head.startup_ns,
            losses=losses,
            loss_difference=difference,
        )

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
            notes=self.notes,
        )


_PRECISIONS = ("float32", "tf32", "bfloat16")


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
