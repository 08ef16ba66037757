"""Owns the list of tables of a comparison: what tells the rows of each apart."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

from profiler_ext.comparison.matched import Matched, function_of, line_at
from profiler_ext.comparison.matching.names import without_indices
from profiler_ext.comparison.matching.pairs import Pairs
from profiler_ext.comparison.parts import Parts
from profiler_ext.comparison.records import Subject
from profiler_ext.comparison.sides import Side
from profiler_ext.comparison.words import Account

Rest = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """A table of a comparison.

    Attributes:
        by: what its rows are.
        title: what heads it.
        parts: which parts of a side it sums.
        pairs: what is matched by name; ``None`` where rows of one name are the same.
        name: the name of a part that is matched, ``None`` where it has none.
        shown: the subject of its row: the part's, with nothing that it does not tell.
        rest: what else tells rows apart, of such a subject.
    """

    by: str
    title: str
    parts: Callable[[Side], Parts]
    pairs: Callable[[Matched], Pairs[Any]] | None
    name: Callable[[Subject], Hashable]
    shown: Callable[[Subject], Subject]
    rest: Callable[[Subject], Hashable]


def _unnamed(subject: Subject) -> Subject:
    """Return what a part without a name is of: its account, and why it has none."""
    return Subject(account=subject.account, cause=subject.cause, gap=subject.gap)


def _line(subject: Subject) -> Subject:
    if line_at(subject) is None:
        return _unnamed(subject)
    return Subject(
        account=subject.account,
        file=subject.file,
        line=subject.line,
        function=subject.function,
        code=subject.code,
        cause=subject.cause,
    )


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


def _kernel(subject: Subject) -> Subject:
    return Subject(
        account=subject.account, kernel=subject.kernel, kind=subject.kind, cause=subject.cause
    )


def _phase(subject: Subject) -> Subject:
    return Subject(account=subject.account, phase=subject.phase, cause=subject.cause)


def _compile(subject: Subject) -> Subject:
    return Subject(
        file=subject.file, line=subject.line, function=subject.function, kind=subject.kind
    )


def _no_key(subject: Subject) -> Hashable:
    return None


def _reason_key(subject: Subject) -> Hashable:
    return subject.account, subject.cause, subject.gap


def _parts(side: Side) -> Parts:
    return side.parts


TABLES = (
    ComparedTable(
        by="ledger",
        title="Ledger",
        parts=lambda side: side.ledger,
        pairs=None,
        name=_no_key,
        shown=lambda subject: subject,
        rest=lambda shown: (shown.account, shown.scope, shown.level, shown.category, shown.cause),
    ),
    ComparedTable(
        by="phase",
        title="Phases",
        parts=_parts,
        pairs=None,
        name=_no_key,
        shown=_phase,
        rest=lambda shown: (shown.account, shown.cause, shown.phase),
    ),
    ComparedTable(
        by="line",
        title="Lines",
        parts=_parts,
        pairs=lambda matched: matched.lines,
        name=line_at,
        shown=_line,
        rest=_reason_key,
    ),
    ComparedTable(
        by="module",
        title="Modules",
        parts=_parts,
        pairs=lambda matched: matched.modules,
        name=lambda subject: subject.module,
        shown=_module,
        rest=_reason_key,
    ),
    ComparedTable(
        by="layer",
        title="Modules, numbered layers as one",
        parts=_parts,
        pairs=lambda matched: matched.layers,
        name=lambda subject: None if subject.module is None else without_indices(subject.module),
        shown=_layer,
        rest=_reason_key,
    ),
    ComparedTable(
        by="op",
        title="ATen ops",
        parts=_parts,
        pairs=lambda matched: matched.ops,
        name=lambda subject: subject.aten_op,
        shown=_op,
        rest=_reason_key,
    ),
    ComparedTable(
        by="kernel",
        title="Kernels",
        parts=_parts,
        pairs=lambda matched: matched.kernels,
        name=lambda s: (s.kernel, s.kind) if s.account == Account.DEVICE else None,
        shown=_kernel,
        rest=_reason_key,
    ),
    ComparedTable(
        by="compile",
        title="Compile time",
        parts=lambda side: side.compiles,
        pairs=lambda matched: matched.functions,
        name=function_of,
        shown=_compile,
        rest=lambda shown: (shown.kind, shown.function if line_at(shown) is None else None),
    ),
)
