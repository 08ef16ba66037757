"""The parts of a recording's steps: what each nanosecond of the breakdown is of.

Launches count whole, for the step that enqueued them, as in a session's tables; the breakdown
counts wall time of the steps. Three accounts reconcile the two (overlapping launches, work in
another step's span, idle time), so that the parts of each step add up to its breakdown on all
devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler_ext.attribution.step_breakdown import busy_spans
from profiler_ext.comparison.records import Account, Subject
from profiler_ext.records.analysis import Analysis, Place
from profiler_ext.records.compiles import CompileKind
from profiler_ext.records.events import Ints
from profiler_ext.records.share_sums import codes_of, profiled_shares, sum_by
from profiler_ext.records.vocabulary import Scope

NO_LAUNCH = -1
_RECONCILING = (Account.OVERLAPPED, Account.OTHER_STEPS, Account.STEPS_OVERLAP)


@dataclass(frozen=True, slots=True)
class Parts:
    """Time by step and subject; one row a part, in no order."""

    subjects: tuple[Subject, ...]  # at their finest
    step: Ints  # row of the step; of compile time, of the run
    subject: Ints  # index into ``subjects``
    duration_ns: Ints
    launch: Ints  # number of its launch, or ``NO_LAUNCH``

    def __len__(self) -> int:
        return len(self.step)


NO_PARTS = Parts((), *(np.empty(0, np.int64),) * 4)


def join(every: Sequence[tuple[Parts, Ints]]) -> Parts:
    """Return the parts as one; each comes with the row that its steps have in the whole."""
    known: dict[Subject, int] = {}
    columns: list[tuple[Ints, ...]] = []
    launches = 0
    for parts, row in every:
        codes = np.array([known.setdefault(s, len(known)) for s in parts.subjects], np.int64)
        launch = np.where(parts.launch == NO_LAUNCH, NO_LAUNCH, parts.launch + launches)
        columns.append((row[parts.step], codes[parts.subject], parts.duration_ns, launch))
        launches += int(parts.launch.max(initial=NO_LAUNCH)) + 1
    if not columns:
        return NO_PARTS
    step, subject, duration_ns, launch = (
        np.concatenate(each) for each in zip(*columns, strict=True)
    )
    return Parts(tuple(known), step, subject, duration_ns, launch)


def parts_of_steps(analysis: Analysis, display_names: Mapping[str, str]) -> Parts:
    """Return the parts of each step's wall time; they add up to the breakdown."""
    every = np.arange(len(analysis.steps))
    made = (
        _of_launches(analysis, display_names),
        _of_idle(analysis, display_names),
        _overlap_and_displaced(analysis),
    )
    return join([(parts, every) for parts in made])


def parts_of_breakdown(analysis: Analysis, display_names: Mapping[str, str]) -> Parts:
    """Return the breakdown of each step, idle time by cause."""
    rows, every = _rows_of_steps(analysis), np.arange(len(analysis.steps))
    busy = _from_rows(
        (
            rows[line.step],
            Subject(scope=line.scope, level=line.level, category=line.category),
            line.duration_ns,
        )
        for line in analysis.breakdown
        if line.scope != Scope.IDLE
    )
    idle = _of_idle(analysis, display_names)
    by_cause = tuple(
        Subject(account=each.account, scope=Scope.IDLE, cause=each.cause) for each in idle.subjects
    )
    twice = _overlap_and_displaced(analysis, (Account.STEPS_OVERLAP,))
    return join([(each, every) for each in (busy, replace(idle, subjects=by_cause), twice)])


def parts_of_compiles(analysis: Analysis, display_names: Mapping[str, str]) -> Parts:
    """Return compile time by function and phase, as one step."""
    waited_for = (
        each for each in analysis.recording.compiles if each.kind is not CompileKind.WORKER
    )
    return _from_rows(
        (
            0,
            Subject(
                file=display_names.get(each.file or ""),
                line=each.line,
                function=each.function,
                kind=each.kind,
                category=time.phase,
            ),
            time.duration_ns,
        )
        for each in waited_for
        for time in each.times
    )


def _of_launches(analysis: Analysis, display_names: Mapping[str, str]) -> Parts:
    shares, launches = analysis.shares, analysis.launches
    chosen = profiled_shares(analysis)
    launch, place = shares.launch[chosen], shares.place[chosen].astype(np.int64)
    kernel = launches.kernel_or_name
    columns = np.column_stack(
        (place, kernel.codes[launch], launches.kind.codes[launch], launches.scope.codes[launch])
    )
    distinct, subject = np.unique(columns, axis=0, return_inverse=True)
    subjects = tuple(
        _subject_at(
            analysis.places[place],
            display_names,
            kernel=kernel.strings[name] or None,
            kind=launches.kind.strings[kind],
            scope=launches.scope.strings[scope],
        )
        for place, name, kind, scope in distinct.tolist()
    )
    step = _rows(analysis, np.asarray(launches.step.filled(0))[launch])
    return Parts(subjects, step, subject.ravel(), shares.duration_ns[chosen], launch)


def _of_idle(analysis: Analysis, display_names: Mapping[str, str]) -> Parts:
    idle = analysis.idle
    columns = np.column_stack((idle.cause_place, idle.cause.codes)).astype(np.int64)
    distinct, subject = np.unique(columns, axis=0, return_inverse=True)
    subjects = tuple(
        Subject(
            account=Account.IDLE,
            cause=idle.cause.strings[cause],
            file=display_names.get(idle.places[place].file or ""),
            line=idle.places[place].line,
            function=idle.places[place].function,
            code=idle.places[place].code,
            gap=idle.places[place].gap if idle.places[place].file is None else None,
        )
        for place, cause in distinct.tolist()
    )
    none = np.full(len(idle), NO_LAUNCH, np.int64)
    return Parts(subjects, _rows(analysis, idle.step), subject.ravel(), idle.duration_ns, none)


def _overlap_and_displaced(
    analysis: Analysis, wanted: Iterable[Account] = tuple(_RECONCILING)
) -> Parts:
    """Return the breakdown's time less the launches' own, for each step."""
    launches = analysis.launches
    rows, spent = _rows_of_steps(analysis), np.zeros((2, len(analysis.steps)), np.int64)
    for line in analysis.breakdown:
        spent[int(line.scope == Scope.IDLE), rows[line.step]] += line.duration_ns
    busy_ns, idle_ns = spent[0], spent[1]
    alone_ns = np.zeros(len(launches), np.int64)
    for device in busy_spans(launches):
        alone_ns += sum_by(device.launch, device.end_ns - device.start_ns, len(launches))
    own = np.flatnonzero(launches.in_steps)
    step = _rows(analysis, np.asarray(launches.step.filled(0))[own])
    steps = len(analysis.steps)
    exclusive_ns = sum_by(step, alone_ns[own], steps)
    summed_ns = sum_by(step, launches.duration_ns[own], steps)
    idle_recorded_ns = sum_by(_rows(analysis, analysis.idle.step), analysis.idle.duration_ns, steps)
    return _from_rows(
        (row, Subject(account=account), amount)
        for account, amounts in zip(
            _RECONCILING,
            (exclusive_ns - summed_ns, busy_ns - exclusive_ns, idle_ns - idle_recorded_ns),
            strict=True,
        )
        if account in wanted
        for row, amount in enumerate(amounts.tolist())
        if amount
    )


def _subject_at(
    place: Place, display_names: Mapping[str, str], *, kernel: str | None, kind: str, scope: str
) -> Subject:
    return Subject(
        file=display_names.get(place.file or ""),
        line=place.line,
        function=place.function,
        code=place.code,
        module=place.module,
        module_class=place.module_class,
        aten_op=place.aten_op,
        phase=place.phase,
        kernel=kernel,
        kind=kind,
        scope=scope,
        gap=place.gap,
    )


def _from_rows(parts: Iterable[tuple[int, Subject, int]]) -> Parts:
    rows = list(parts)
    codes, subjects = codes_of(subject for _, subject, _ in rows)
    step, duration_ns = (np.array([row[at] for row in rows], np.int64) for at in (0, 2))
    return Parts(tuple(subjects), step, codes, duration_ns, np.full(len(rows), NO_LAUNCH, np.int64))


def _rows_of_steps(analysis: Analysis) -> dict[int, int]:
    return {step.number: row for row, step in enumerate(analysis.steps)}


def _rows(analysis: Analysis, numbers: Ints) -> Ints:
    known = np.array([step.number for step in analysis.steps], np.int64)
    order = np.argsort(known)
    rows: Ints = order[np.searchsorted(known[order], numbers)]
    return rows
