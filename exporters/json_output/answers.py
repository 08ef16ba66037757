"""Makes JSON answers from a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain, islice
from typing import Any, Unpack

import msgspec

from profiler_ext.exporters import tables
from profiler_ext.exporters.json_output import documents
from profiler_ext.exporters.table_kinds import TableKind, table_named
from profiler_ext.exporters.tables.selection import Filters
from profiler_ext.exporters.tables.trust import RowEvidence, evidence_of_rows
from profiler_ext.exporters.views import formatting, summary
from profiler_ext.exporters.views.findings import SHOWN
from profiler_ext.exporters.views.steps import KindRow, OfKind, kind_rows
from profiler_ext.exporters.views.summary import SessionLike
from profiler_ext.findings import Finding, Findings
from profiler_ext.memory.over_time import highest, kinds_bytes
from profiler_ext.memory.peak import StepPeak
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.gaps import GapReason
from profiler_ext.records.memory import CPU
from profiler_ext.records.vocabulary import Level, Phase, Scope
from profiler_ext.rooflines.utilisation import utilisation_by_step, walls_ns

MAX_STEPS = 32  # listed one by one; tables sum over all
PHASES = {phase.value for phase in Phase}
# The tables whose largest rows are in a report.
OVERVIEW_TABLES = ("by_phase", "by_line", "by_module", "by_kernel", "idle_by_cause", "compiles")


def session_facts(source: SessionLike) -> documents.SessionFacts:
    """Return what was profiled."""
    settings = source.analyses[0].recording.settings
    devices = (name for each in source.analyses for name in each.device_names)
    steps = [(each, number) for each in source.analyses for number in walls_ns(each)]
    return documents.SessionFacts(
        command=list(settings.command),
        torch_version=settings.torch_version or None,
        devices=list(dict.fromkeys(devices)),
        ranks=[each.recording.settings.rank for each in source.analyses],
        world_size=settings.world_size,
        launches=sum(each.launch_count for each in source.analyses),
        step_count=len({number for _, number in steps}),
        step_kinds=list(map(_kind, kind_rows(source.analyses[0]))),
        steps=list(islice(chain.from_iterable(map(_steps, source.analyses)), MAX_STEPS)),
    )


def _kind(row: KindRow) -> documents.StepKindFacts:
    own = row.steps
    return documents.StepKindFacts(
        kind=own.kind.value,
        steps=[each.number for each in own.steps],
        batch=list(own.batch),
        length=list(own.length),
        context=None if own.context is None else list(own.context),
        step_ns=row.step_ns,
        is_profiled=row.is_profiled,
        tokens=row.tokens,
        is_most=row.is_most,
        tokens_per_s=row.tokens_per_s,
    )


def _steps(analysis: Analysis) -> list[documents.StepFacts]:
    """Return the first steps of one rank; steps of the same number are one."""
    walls = dict(islice(walls_ns(analysis).items(), MAX_STEPS))
    busy = dict.fromkeys(walls, 0)
    for line in analysis.breakdown:
        if line.step in busy and line.scope != Scope.IDLE:
            busy[line.step] += line.duration_ns
    utilisations = utilisation_by_step(analysis, list(walls))
    return [
        documents.StepFacts(
            rank=analysis.recording.settings.rank,
            step=number,
            wall_ns=walls[number],
            busy_ns=busy[number],
            mfu=None if each is None else each.mfu,
            est_flops=None if each is None else each.flops,
            known_fraction=None if each is None else each.known_fraction,
            counted_fraction=None if each is None else each.counted_fraction,
        )
        for number, each in zip(walls, utilisations, strict=True)
    ]


def coverage(source: SessionLike) -> documents.Coverage:
    """Return how much of the time is attributed to lines, and why the rest is not."""
    source = OfKind(source)
    rows = summary.records(source.columns("coverage"))
    named = ("scope", "level", "category", "duration_ns", "fraction")
    return documents.Coverage(
        breakdown=[documents.BreakdownRow(**{name: row[name] for name in named}) for row in rows],
        gaps=_gaps(rows),
        line_fraction=_line_fraction(source.analyses, Scope.COMPILED),
        eager_line_fraction=_line_fraction(source.analyses, Scope.EAGER),
        backward_matched_fraction=tables.fraction_linked_to_forward(source.analyses),
        notes=list(source.notes),
    )


def _line_fraction(analyses: Sequence[Analysis], scope: Scope) -> float | None:
    breakdown = [line for analysis in analyses for line in analysis.breakdown]
    is_there = any(line.scope == scope and line.duration_ns for line in breakdown)
    return tables.fraction_of(breakdown, Level.LINE, scope) if is_there else None


def _gaps(rows: Sequence[dict[str, Any]]) -> list[documents.GapRow]:
    """Sum the breakdown's gaps by reason, the longest first."""
    busy = sum(row["duration_ns"] for row in rows if row["scope"] != Scope.IDLE)
    sums = tables.gap_times_ns((row["category"], row["duration_ns"]) for row in rows)
    return [gap_row(reason, duration_ns, busy) for reason, duration_ns in sums.items()]


def gap_row(reason: str, duration_ns: int, total_ns: int) -> documents.GapRow:
    """Return a gap with its description and remedy."""
    gap = GapReason(reason)
    return documents.GapRow(
        gap=gap.value,
        description=gap.label,
        duration_ns=duration_ns,
        fraction=duration_ns / total_ns if total_ns else None,
        remedy=gap.remedy,
        page=gap.page,
    )


@cache
def table_answer_type(name: str) -> type[documents.TableAnswer]:
    """Return the answer type of a table."""
    title = "".join(word.capitalize() for word in name.split("_"))
    made = msgspec.defstruct(
        f"{title}Answer",
        [],
        bases=(documents.TableAnswer,),
        tag=name,
        module=__name__,
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
    assert issubclass(made, documents.TableAnswer)
    return made


def table_answer(
    source: SessionLike,
    kind: TableKind,
    top: int | None = None,
    depth: int | None = None,
    **filters: Unpack[Filters],
) -> documents.TableAnswer:
    """Return the largest rows of a table, with their evidence.

    Raises:
        UsageError: There is no such step, rank or phase, ``top`` is less than 1, or the table has
            no depth.
    """
    rows, cuts = _rows(source, kind, "rows", top, kind.arguments(depth), **filters)
    given = {"depth": depth, **filters}
    narrowed = {name: value for name, value in given.items() if value is not None}
    return table_answer_type(kind.name)(
        cuts=[*cuts, *steps_truncation(source)],
        session=session_facts(source),
        coverage=coverage(source),
        filters=narrowed,
        row_count=rows.row_count,
        total_ns=rows.total_ns,
        rows=rows.rows,
    )


def report_answer(
    source: SessionLike, top: int | None = 15, measured: documents.Measurements | None = None
) -> documents.Report:
    """Return a session's overview, and what was measured since it was recorded."""
    cuts: list[documents.Cut] = []
    rows: dict[str, documents.Rows] = {}
    for name in OVERVIEW_TABLES:
        rows[name], more = _rows(source, table_named(name), f"tables.{name}.rows", top)
        cuts += more
    entries = [finding_entry(each) for each in source.recommendations.ranked]
    cuts += _cut("findings.findings", len(entries[:SHOWN]), len(entries))
    findings = documents.FindingsPart(
        step_ns=source.recommendations.step_ns,
        unprofiled_step_ns=source.recommendations.unprofiled_step_ns,
        rules_evaluated=source.recommendations.rules_evaluated,
        findings=entries[:SHOWN],
        rules_skipped=list(source.recommendations.rules_skipped),
    )
    return documents.Report(
        cuts=[*cuts, *steps_truncation(source)],
        session=session_facts(source),
        coverage=coverage(source),
        measured=measured,
        findings=findings,
        tables=rows,
        memory=[
            peak_facts(analysis, peak) for analysis in source.analyses for peak in highest(analysis)
        ],
    )


def peak_facts(analysis: Analysis, peak: StepPeak) -> documents.PeakFacts:
    """Return a peak of memory, and what it is made of."""
    return documents.PeakFacts(
        rank=analysis.recording.settings.rank,
        device=None if peak.device == CPU else peak.device,
        step=peak.step,
        phase=peak.place.phase,
        file=peak.place.file,
        line=peak.place.line,
        peak_bytes=peak.peak_bytes,
        kinds_bytes={kind.value: size for kind, size in kinds_bytes(peak).items()},
    )


def findings_answer(
    source: SessionLike, top: int | None = None, measured: documents.Measurements | None = None
) -> documents.FindingsAnswer:
    """Return the findings of a session, and what was measured since it was recorded."""
    recommendations: Findings = source.recommendations
    entries = [finding_entry(each) for each in recommendations.ranked]
    kept = entries if top is None else entries[: formatting.require_top(top)]
    return documents.FindingsAnswer(
        cuts=[*_cut("findings", len(kept), len(entries)), *steps_truncation(source)],
        session=session_facts(source),
        coverage=coverage(source),
        step_ns=recommendations.step_ns,
        unprofiled_step_ns=recommendations.unprofiled_step_ns,
        rules_evaluated=recommendations.rules_evaluated,
        measured=measured,
        findings=kept,
        rules_skipped=list(recommendations.rules_skipped),
    )


def steps_truncation(source: SessionLike) -> list[documents.Cut]:
    """Return the cut of the steps that :func:`session_facts` leaves out."""
    walls = [step.wall_ns for each in source.analyses for step in each.steps]
    kept = min(len(walls), MAX_STEPS)
    return _cut("session.steps", kept, len(walls), sum(walls[kept:]), "size")


def top_of(
    where: str, rows: Sequence[Any], top: int | None
) -> tuple[list[Any], list[documents.Cut]]:
    """Return the first rows of a list, and the cut, with the time of its rows if they have one."""
    kept = list(rows if top is None else rows[: formatting.require_top(top)])
    times = [getattr(row, "duration_ns", None) for row in rows[len(kept) :]]
    known = [time for time in times if time is not None]
    left = sum(known) if len(known) == len(times) else None
    return kept, _cut(where, len(kept), len(rows), left)


def sequence_answer(table: tables.Table) -> documents.SequenceTable:
    """Return the table of a joint graph."""
    return documents.SequenceTable(row_count=len(table), rows=summary.records(table))


def _rows(
    source: SessionLike,
    kind: TableKind,
    where: str,
    top: int | None,
    arguments: tuple[Any, ...] = (),
    **filters: Unpack[Filters],
) -> tuple[documents.Rows, list[documents.Cut]]:
    table = kind.in_order(source.columns(kind.name, *arguments, **filters))
    shown = summary.first_rows(table, top)
    plain = [_nest_phases(row) for row in summary.records(shown)]
    trust = evidence_of_rows(source.analyses, kind.name, kind.keys, *arguments, **filters)
    if trust is not None:
        plain = [row | _evidence_columns(trust, kind, row) for row in plain]
    time = _time(table)
    left = None if time is None else time - (_time(shown) or 0)
    return documents.Rows(row_count=len(table), total_ns=time, rows=plain), _cut(
        where, len(shown), len(table), left
    )


def _nest_phases(row: Mapping[str, Any]) -> dict[str, Any]:
    """Put the columns of phases, whose names have no unit, into ``phases_ns``."""
    if not row.keys() >= PHASES:
        return dict(row)
    spent = {name: row[name] for name in row if name in PHASES and row[name]}
    return {name: value for name, value in row.items() if name not in PHASES} | {"phases_ns": spent}


def _evidence_columns(
    trust: Mapping[tuple[Any, ...], RowEvidence], kind: TableKind, row: Mapping[str, Any]
) -> dict[str, dict[str, int]]:
    of_row = trust.get(tuple(row[name] for name in kind.keys), RowEvidence())
    return {
        "site_evidence_ns": of_row.site_evidence_ns,
        "line_evidence_ns": of_row.line_evidence_ns,
        "share_evidence_ns": of_row.share_evidence_ns,
        "gaps_ns": of_row.gaps_ns,
    }


def _time(table: tables.Table) -> int | None:
    return int(table["duration_ns"].sum()) if "duration_ns" in table.columns else None


def _cut(
    where: str, kept: int, total: int, left_out_ns: int | None = None, reason: str = "top"
) -> list[documents.Cut]:
    """Return the cut of a list, if any."""
    cut = documents.Cut(
        where=where, kept=kept, total=total, unit="items", reason=reason, left_out_ns=left_out_ns
    )
    return [cut] if kept < total else []


def finding_entry(finding: Finding) -> documents.FindingEntry:
    """Return a finding as an answer."""
    return documents.FindingEntry(
        rule=finding.rule,
        rank=finding.rank,
        summary=finding.summary,
        location=finding.location,
        est_saving_ns=finding.est_saving_ns,
        total_ns=finding.total_ns,
        fraction=finding.fraction,
        saving_per=finding.saving_per,
        confidence=finding.confidence,
        evidence=[
            documents.Figure(name=f.name, value=f.value, unit=f.unit) for f in finding.evidence
        ],
        remedy=finding.remedy,
        overlaps_with=list(finding.overlaps_with),
        page=f"findings.md#{finding.rule}",
    )
