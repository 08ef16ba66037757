"""What changed of a line, module or kernel since another run: rows and fusions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from profiler_ext.comparison.comparison import Comparison, compare
from profiler_ext.comparison.notes import notes
from profiler_ext.comparison.records import Account, Change, FusionChange, Match, Row, Table
from profiler_ext.comparison.records import Subject as ComparedSubject
from profiler_ext.comparison.sides import RunOfRanks
from profiler_ext.exporters.diff.terminal import fusion_texts
from profiler_ext.exporters.diff.texts import (
    change_text,
    details_text,
    interval_text,
    names_text,
    row_texts,
)
from profiler_ext.exporters.explain.subjects import Kind, Subject
from profiler_ext.exporters.json_output import comparison, explained
from profiler_ext.exporters.views.modules import is_below
from profiler_ext.records.analysis import Analysis

_BY = {Kind.LINE: "line", Kind.MODULE: "module", Kind.KERNEL: "kernel"}
_MAX_ROWS = 8


@dataclass(frozen=True, slots=True)
class Earlier:
    """Another run to compare with."""

    name: str
    analyses: tuple[Analysis, ...]  # one for each rank


def against(analyses: Sequence[Analysis], earlier: Earlier, subject: Subject) -> explained.Against:
    """Return the changes of a subject since another run."""
    compared = compare(
        [RunOfRanks(earlier.name, earlier.analyses)], [RunOfRanks("this", tuple(analyses))]
    )
    rows = [row for row in compared.table(_BY[subject.kind]).rows if _is_of(row, compared, subject)]
    change = _change(compared, rows, subject)
    fusions = [each for each in compared.fusions if _takes_part(each, rows, subject)]
    return explained.Against(
        base=comparison.side_facts(compared.base),
        change=comparison.change_facts(change),
        rows=[comparison.row_facts(row) for row in rows[:_MAX_ROWS]],
        fusions=[comparison.fusion_facts(each) for each in fusions[:_MAX_ROWS]],
        sentences=list(_sentences(compared, change, rows, fusions, subject)),
        notes=list(notes(compared)),
    )


def _is_of(row: Row, compared: Comparison, subject: Subject) -> bool:
    """Return whether a row is of a subject of the head, or of a module below it."""
    of = row.head or row.base
    if of is None:
        return False
    if subject.kind is Kind.LINE:
        paths = compared.head.paths if row.head else compared.base.paths
        return (paths.get(of.file or "", of.file), of.line) == (subject.name, subject.line)
    if subject.kind is Kind.MODULE:
        return of.module is not None and is_below(of.module, subject.name)
    return of.kernel == subject.name


def _change(compared: Comparison, rows: Sequence[Row], subject: Subject) -> Change:
    """Return the change of all its device time, tested as a whole."""
    own = [row for row in rows if row.subject.account == Account.DEVICE]
    if subject.kind is Kind.LINE and len(own) == 1:
        return own[0].change
    names = _names(own, subject)
    return compared.where(lambda p: p.account == Account.DEVICE and _name(p, subject) in names)


def _names(rows: Sequence[Row], subject: Subject) -> set[object]:
    """Return the subject's names on either side."""
    return {_name(each, subject) for row in rows for each in (row.base, row.head) if each}


def _name(part: ComparedSubject, subject: Subject) -> object:
    if subject.kind is Kind.LINE:
        return part.file, part.line
    return part.module if subject.kind is Kind.MODULE else part.kernel


def _takes_part(fusion: FusionChange, rows: Sequence[Row], subject: Subject) -> bool:
    kernels = (*fusion.base, *fusion.head)
    if subject.kind is Kind.KERNEL:
        return any(subject.name in each.kernels for each in kernels)
    names = _names(rows, subject)
    return any(_name(op, subject) in names for each in kernels for op in each.ops)


def _sentences(
    compared: Comparison,
    change: Change,
    rows: Sequence[Row],
    fusions: Sequence[FusionChange],
    subject: Subject,
) -> Iterator[str]:
    table = compared.table(_BY[subject.kind])
    yield f"{change_text(change)} (device time of a mean step)"
    moved = [row for row in rows if row.base and row.head and row.match is not Match.SAME]
    yield from (
        f"it was {names_text(table.by, row)}: {row.match.label}" for row in moved[:_MAX_ROWS]
    )
    yield from (_row_sentence(compared, table, row) for row in rows[:_MAX_ROWS] if len(rows) > 1)
    if len(rows) == 1:
        interval = f"95%: {interval_text(change)}"
        details = row_texts(compared, table, rows[0]).details
        yield from filter(None, [" · ".join(each for each in details if each != interval)])
    for fusion in fusions[:_MAX_ROWS]:
        yield "; ".join(" ".join(line.split()) for line in fusion_texts(fusion))


def _row_sentence(compared: Comparison, table: Table, row: Row) -> str:
    texts = row_texts(compared, table, row)
    change = f"{texts.delta} {texts.percent}".strip()
    parts = (f"{names_text(table.by, row)} {change}: {texts.verdict}", details_text(texts))
    return " · ".join(filter(None, parts))
