"""The tables of a comparison: what a row of each is of, and its sums on one side."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from profiler_ext.comparison.matched import Matched, function_of, line_at
from profiler_ext.comparison.matching import Pairs, without_indices
from profiler_ext.comparison.parts import NO_LAUNCH, Parts
from profiler_ext.comparison.records import Account, Subject
from profiler_ext.comparison.sides import Side
from profiler_ext.comparison.significance import Sample
from profiler_ext.records import share_sums, vocabulary
from profiler_ext.records.events import Ints

PHASES = tuple(vocabulary.Phase)
_SHOWN_MODULES = 3


def _reason_key(subject: Subject) -> Hashable:
    return subject.account, subject.cause, subject.gap


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """A table of a comparison."""

    by: str
    title: str
    # The subject of a part's row, without what the table does not tell apart.
    shown: Callable[[Subject], Subject]
    # What is matched; ``None`` for a part without a name.
    name: Callable[[Subject], Hashable] = lambda _: None
    # Matches by name; ``None`` where rows of one name are the same.
    pairs: Callable[[Matched], Pairs[Any]] | None = None
    # What else tells rows apart, of a subject as shown.
    rest: Callable[[Subject], Hashable] = _reason_key
    # The parts of a side that it sums.
    parts: Callable[[Side], Parts] = lambda side: side.parts


def _unnamed(subject: Subject) -> Subject:
    """Return the subject of a part without a name: its account and why."""
    return Subject(account=subject.account, cause=subject.cause, gap=subject.gap)


def _line(subject: Subject) -> Subject:
    if line_at(subject) is None:
        return _unnamed(subject)
    place = subject.file, subject.line, subject.function, subject.code
    return Subject(subject.account, *place, cause=subject.cause)


def _module(subject: Subject) -> Subject:
    if subject.module is None:
        return replace(_unnamed(subject), gap=_gap_of_work(subject))
    return Subject(module=subject.module, module_class=subject.module_class)


def _layer(subject: Subject) -> Subject:
    shown = _module(subject)
    return shown if shown.module is None else replace(shown, module=without_indices(shown.module))


def _op(subject: Subject) -> Subject:
    if subject.aten_op is None:
        return replace(_unnamed(subject), gap=_gap_of_work(subject))
    return Subject(aten_op=subject.aten_op)


def _gap_of_work(subject: Subject) -> str | None:
    return subject.gap if subject.account == Account.DEVICE else None


TABLES = (
    ComparedTable(
        by="breakdown",
        title="Step time breakdown",
        parts=lambda side: side.breakdown,
        shown=lambda subject: subject,
        rest=lambda shown: (shown.account, shown.scope, shown.level, shown.category, shown.cause),
    ),
    ComparedTable(
        by="phase",
        title="Phases",
        shown=lambda s: Subject(account=s.account, phase=s.phase, cause=s.cause),
        rest=lambda shown: (shown.account, shown.cause, shown.phase),
    ),
    ComparedTable(
        by="line",
        title="Lines",
        pairs=lambda matched: matched.lines,
        name=line_at,
        shown=_line,
    ),
    ComparedTable(
        by="module",
        title="Modules",
        pairs=lambda matched: matched.modules,
        name=lambda subject: subject.module,
        shown=_module,
    ),
    ComparedTable(
        by="layer",
        title="Modules, numbered layers as one",
        pairs=lambda matched: matched.layers,
        name=lambda subject: None if subject.module is None else without_indices(subject.module),
        shown=_layer,
    ),
    ComparedTable(
        by="op",
        title="ATen ops",
        pairs=lambda matched: matched.ops,
        name=lambda subject: subject.aten_op,
        shown=_op,
    ),
    ComparedTable(
        by="kernel",
        title="Kernels",
        pairs=lambda matched: matched.kernels,
        name=lambda s: (s.kernel, s.kind) if s.account == Account.DEVICE else None,
        shown=lambda s: Subject(s.account, kernel=s.kernel, kind=s.kind, cause=s.cause),
    ),
    ComparedTable(
        by="compile",
        title="Compile time",
        parts=lambda side: side.compiles,
        pairs=lambda matched: matched.functions,
        name=function_of,
        shown=lambda s: Subject(file=s.file, line=s.line, function=s.function, kind=s.kind),
        rest=lambda shown: (shown.kind, shown.function if line_at(shown) is None else None),
    ),
)


@dataclass(frozen=True, slots=True)
class Summed:
    """The parts of a side, summed by row of a table."""

    sample: Sample  # times by step and row
    launches: Ints  # launches with a part in each row
    subjects: tuple[Subject | None, ...]  # ``None`` where this side has no part in the row
    phases: Ints  # device time of each row and phase
    modules: tuple[dict[str, int], ...]  # time of each row by module, numbers as ``*``


def rows_of(matched: Matched, kind: ComparedTable) -> tuple[int, Ints, Ints]:
    """Return a table's row count, and the row of each subject of the base and the head."""
    known: dict[Hashable, int] = {}
    parts = [kind.parts(side).subjects for side in matched.sides]
    names = [[name for each in every if (name := kind.name(each)) is not None] for every in parts]
    numbers = kind.pairs(matched).numbers(*names) if kind.pairs is not None else None
    result = []
    for at, every in enumerate(parts):
        number_of = {} if numbers is None else (numbers.base, numbers.head)[at]
        rows = [
            known.setdefault((number_of.get(kind.name(s)), kind.rest(kind.shown(s))), len(known))
            for s in every
        ]
        result.append(np.array(rows, np.int64))
    return len(known), result[0], result[1]


def summed(
    parts: Parts, subjects: Sequence[Subject], row_of: Ints, rows: int, steps: Sample
) -> Summed:
    """Return the parts of a side, summed by row."""
    row = row_of[parts.subject] if len(parts) else np.empty(0, np.int64)
    launched = parts.launch != NO_LAUNCH
    sums = share_sums.sum_by((parts.step, row), parts.duration_ns, len(steps.ranks), rows)
    return Summed(
        sample=replace(steps, sums=sums),
        launches=share_sums.count_distinct(row[launched], parts.launch[launched], rows),
        subjects=_first(subjects, row_of, rows),
        phases=_phases(parts, row, rows),
        modules=_modules(parts, row, rows),
    )


def _first(subjects: Sequence[Subject], row_of: Ints, rows: int) -> tuple[Subject | None, ...]:
    """Return each row's first subject with a text: function and text may differ within a row."""
    result: list[Subject | None] = [None] * rows
    for subject, row in zip(subjects, row_of.tolist(), strict=True):
        known = result[row]
        if known is None or (known.code is None and subject.code is not None):
            result[row] = subject
    return tuple(result)


def _phases(parts: Parts, row: Ints, rows: int) -> Ints:
    none = len(PHASES)  # the last column sums what has no phase
    phases = [PHASES.index(vocabulary.Phase(s.phase)) if s.phase else none for s in parts.subjects]
    phase = np.array(phases, np.int64)[parts.subject]
    return share_sums.sum_by((row, phase), parts.duration_ns, rows, none + 1)[:, :-1]


def _modules(parts: Parts, row: Ints, rows: int) -> tuple[dict[str, int], ...]:
    time = share_sums.sum_by(parts.subject, parts.duration_ns, len(parts.subjects))
    of_row = np.zeros(len(parts.subjects), np.int64)
    of_row[parts.subject] = row
    result: tuple[dict[str, int], ...] = tuple({} for _ in range(rows))
    for subject, at, ns in zip(parts.subjects, of_row.tolist(), time.tolist(), strict=True):
        if subject.module is not None and ns:
            name = without_indices(subject.module)
            result[at][name] = result[at].get(name, 0) + ns
    return result


def main_modules(base: dict[str, int], head: dict[str, int]) -> tuple[str, ...]:
    """Return the modules with most of a row's time."""
    both = {name: base.get(name, 0) + head.get(name, 0) for name in (*base, *head)}
    return tuple(sorted(both, key=lambda name: (-both[name], name))[:_SHOWN_MODULES])
