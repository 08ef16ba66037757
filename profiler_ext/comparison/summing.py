"""Owns how the rows of a table of a comparison are summed, on one side."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler_ext.comparison.kinds import ComparedTable
from profiler_ext.comparison.matched import Matched
from profiler_ext.comparison.matching.names import without_indices
from profiler_ext.comparison.parts import NO_LAUNCH, Parts
from profiler_ext.comparison.records import Subject
from profiler_ext.comparison.uncertainty import Sample
from profiler_ext.records import Ints, Phase

PHASES = tuple(Phase)
_SHOWN_MODULES = 3


@dataclass(frozen=True, slots=True)
class Summed:
    """The parts of a side, summed by row of a table.

    Attributes:
        sample: the times of each step and row.
        launches: how many launches have a part in each row.
        subjects: what each row is of on this side, ``None`` where it has no part in it.
        phases: device time of each row and phase.
        modules: time of each row by module, numbers as ``*``.
    """

    sample: Sample
    launches: Ints
    subjects: tuple[Subject | None, ...]
    phases: Ints
    modules: tuple[dict[str, int], ...]


def rows_of(matched: Matched, kind: ComparedTable) -> tuple[int, Ints, Ints]:
    """Return how many rows a table has, and the row of each subject of the base and the head.

    Args:
        matched: the sides.
        kind: which table.
    """
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
    parts: Parts,
    subjects: Sequence[Subject],
    row_of: Ints,
    rows: int,
    steps: Sample,
) -> Summed:
    """Return the parts of a side summed.

    Args:
        parts: the parts.
        subjects: what a row shows of each of their subjects.
        row_of: the row of each of their subjects.
        rows: how many rows there are.
        steps: the steps, without a row.
    """
    row = row_of[parts.subject] if len(parts) else np.empty(0, np.int64)
    sums = np.zeros((len(steps.ranks), rows), np.int64)
    np.add.at(sums, (parts.step, row), parts.duration_ns)
    return Summed(
        sample=replace(steps, sums=sums),
        launches=_launches(parts, row, rows),
        subjects=_first(subjects, row_of, rows),
        phases=_phases(parts, row, rows),
        modules=_modules(parts, row, rows),
    )


def _first(subjects: Sequence[Subject], row_of: Ints, rows: int) -> tuple[Subject | None, ...]:
    """Return what each row is of: the first that is known, as function and text may differ."""
    result: list[Subject | None] = [None] * rows
    for subject, row in zip(subjects, row_of.tolist(), strict=True):
        known = result[row]
        if known is None or (known.code is None and subject.code is not None):
            result[row] = subject
    return tuple(result)


def _launches(parts: Parts, row: Ints, rows: int) -> Ints:
    own = parts.launch != NO_LAUNCH
    every = int(parts.launch.max(initial=0)) + 1
    once = np.unique(row[own] * every + parts.launch[own])
    return np.bincount(once // every, minlength=rows).astype(np.int64)


def _phases(parts: Parts, row: Ints, rows: int) -> Ints:
    phase = np.array([PHASES.index(Phase(s.phase)) if s.phase else -1 for s in parts.subjects])
    sums = np.zeros((rows, len(PHASES)), np.int64)
    of = phase.astype(np.int64)[parts.subject] if len(parts) else np.empty(0, np.int64)
    np.add.at(sums, (row[of >= 0], of[of >= 0]), parts.duration_ns[of >= 0])
    return sums


def _modules(parts: Parts, row: Ints, rows: int) -> tuple[dict[str, int], ...]:
    time = np.zeros(len(parts.subjects), np.int64)
    np.add.at(time, parts.subject, parts.duration_ns)
    of_row = np.zeros(len(parts.subjects), np.int64)
    of_row[parts.subject] = row
    result: tuple[dict[str, int], ...] = tuple({} for _ in range(rows))
    for subject, at, ns in zip(parts.subjects, of_row.tolist(), time.tolist(), strict=True):
        if subject.module is not None and ns:
            name = without_indices(subject.module)
            result[at][name] = result[at].get(name, 0) + ns
    return result


def main_modules(base: dict[str, int], head: dict[str, int]) -> tuple[str, ...]:
    """Return the modules that have most of a row's time.

    Args:
        base: time by module, numbers as ``*``.
        head: the same of the head.
    """
    both = {name: base.get(name, 0) + head.get(name, 0) for name in (*base, *head)}
    return tuple(sorted(both, key=lambda name: (-both[name], name))[:_SHOWN_MODULES])
