"""Owns what the subjects of a comparison are called for a person."""

from __future__ import annotations

from profiler_ext.comparison.records import Row, Subject
from profiler_ext.comparison.words import Account
from profiler_ext.exporters.display_text import cause_text, gap_text, ledger_label, short_phase
from profiler_ext.exporters.short_texts import short_kernel
from profiler_ext.records import CompileKind, Phase, Scope

_FALLBACK_LABELS = {
    "line": "no source line",
    "module": "no module",
    "layer": "no module",
    "op": "no op",
    "kernel": "no kernel",
}


def names_text(by: str, row: Row) -> str:
    """Return what a row is of; where the two sides call it differently, both.

    Args:
        by: the table's.
        row: the row.
    """
    base, head = (None if each is None else name_text(by, each) for each in (row.base, row.head))
    if base is None or head is None or base == head:
        return head or base or ""
    if by == "kernel":  # their names are long, and the base's is told beside
        return head
    old, new = row.base, row.head
    if by in ("line", "compile") and old and new and old.file == new.file:
        return f"{base} -> :{new.line}"
    return f"{base} -> {head}"


def name_text(by: str, subject: Subject) -> str:
    """Return what a subject is called in a table.

    Args:
        by: the table's.
        subject: the subject of one side.
    """
    if by == "ledger":
        return _ledger_name(subject)
    if subject.account not in (Account.DEVICE, Account.IDLE):
        return f"({Account(subject.account).words})"
    idle = f"idle: {cause_text(subject.cause)}" if subject.cause else ""
    name = own_name(by, subject)
    if idle:
        return f"{name} ({idle})" if name else f"({idle})"
    why = gap_text(subject.gap) if subject.gap else _FALLBACK_LABELS.get(by, "not told")
    return name or f"({why})"


def own_name(by: str, subject: Subject) -> str:
    """Return what tells a subject apart in a table, nothing where it has no such name.

    Args:
        by: the table's.
        subject: the subject of one side.
    """
    if by in ("line", "compile") and subject.file is not None:
        function = f" {subject.function}" if by == "compile" and subject.function else ""
        return f"{subject.file}:{subject.line}{function}{_compile_kind(by, subject)}"
    if by == "compile":
        return f"{subject.function or 'no function'}{_compile_kind(by, subject)}"
    if by in ("module", "layer") and subject.module is not None:
        return subject.module or "(the model itself)"
    if by == "phase":
        return short_phase(Phase(subject.phase)) if subject.phase else ""
    if by == "kernel":
        return short_kernel(subject.kernel or "")
    return (subject.aten_op or "") if by == "op" else ""


def _compile_kind(by: str, subject: Subject) -> str:
    return f" ({CompileKind(subject.kind).words})" if by == "compile" and subject.kind else ""


def _ledger_name(subject: Subject) -> str:
    if subject.account == Account.STEPS_OVERLAP:
        return Account.STEPS_OVERLAP.words
    if subject.account == Account.IDLE:
        return f"{Scope.IDLE.words}: {cause_text(subject.cause or '')}"
    return ledger_label(
        {"scope": subject.scope, "level": subject.level, "category": subject.category}
    )
