"""The `report` command's text: findings, step time breakdown and one table, of any session."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from profiler_ext.exporters import table_kinds, tables
from profiler_ext.exporters.tables.selection import ALL_KINDS, Filters, kind_named
from profiler_ext.exporters.terminal import columns
from profiler_ext.exporters.terminal.console import (
    Console,
    Table,
    Text,
    print_line,
    print_notes,
    print_wrapped,
    text_console,
)
from profiler_ext.exporters.terminal.first_screen import print_first_screen, with_ops
from profiler_ext.exporters.terminal.tables import SCOPE_STYLES, STEP_PART, measures
from profiler_ext.exporters.views import compiles, formatting, idle, rooflines, summary
from profiler_ext.exporters.views.findings import (
    MAX_ON_PAGE,
    SHOWN,
    findings_heading,
    more_text,
    saving_texts,
    skipped_rules_lines,
    verdict_text,
    what_text,
    where_text,
    why_text,
)
from profiler_ext.exporters.views.steps import OfKind, kind_texts, usual_kind_text
from profiler_ext.exporters.views.summary import SessionLike
from profiler_ext.findings import Finding, Findings, training_steps
from profiler_ext.printable import printable
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.recording import Settings

_TIME, _PART = 7, 6
ALL = "report --findings"
_LEAST_LABEL = 34
_SHOWN_STEPS = 8
_SHOWN_IDLE = 3
TOP = 15  # rows of a table
_BY = "line"


def print_first(findings: Findings, settings: Settings, console: Console) -> None:
    """Print the top findings."""
    _print(findings, findings.ranked[:SHOWN], settings, console)
    if (more := more_text(findings, f"profiler-ext {ALL}")) is not None:
        print_line(console, more, "dim")
    console.print()


def print_all(
    findings: Findings, settings: Settings, console: Console, top: int | None = None
) -> None:
    """Print all findings, at most ``top``, and the skipped checks."""
    shown = findings.ranked[: MAX_ON_PAGE if top is None else formatting.require_top(top)]
    _print(findings, shown, settings, console)
    if (left := len(findings.ranked) - len(shown)) > 0:
        console.print(
            Text(f"and {left:,} more: --top {len(findings.ranked)} prints all", style="dim")
        )
    for line in skipped_rules_lines(findings):
        console.print(Text(line, style="dim"))


def _print(
    findings: Findings, shown: tuple[Finding, ...], settings: Settings, console: Console
) -> None:
    console.print(Text(findings_heading(findings), style="bold"))
    if not shown:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1), show_header=False)
    table.add_column(width=_TIME, justify="right", no_wrap=True)
    table.add_column(width=_PART, justify="right", no_wrap=True)
    table.add_column()
    for finding in shown:
        text = Text(what_text(finding), style="bold")
        if where := where_text(finding.location, settings):
            text.append(f"\n{where}", "not bold cyan")
        text.append(f"\n{why_text(finding)}", "not bold dim")
        text.append(f"\ntry: {printable(finding.remedy)}", "not bold green")
        table.add_row(*map(Text, saving_texts(finding)), text)
    console.print(table)


@dataclass(frozen=True, slots=True)
class Report:
    """What is reported besides the breakdown."""

    kind: table_kinds.TableKind
    top: int | None  # ``None``: all rows
    depth: int | None  # of modules; ``None``: as deep as fits
    settings: Settings  # for short paths
    table: Callable[..., tables.Table]  # (name, **filters) -> table


def print_session(
    session: SessionLike,
    console: Console,
    *,
    by: str | None = None,
    top: int | None = TOP,
    depth: int | None = None,
    verbose: bool = False,
    commands: Sequence[str] = (),
    **filters: Unpack[Filters],
) -> None:
    """Print the first screen, or one table where one is asked for; all there is if ``verbose``.

    ``commands`` are what the first screen suggests.
    """
    is_plain = {by, depth, *filters.values()} == {None}
    if is_plain and not verbose:
        print_first_screen(session, console, commands)
        return
    settings = session.analyses[0].recording.settings
    report = report_of(by or _BY, top, depth, settings, session.columns)
    table = session.columns(report.kind.name, **filters)
    name = filters.get("step_kind")
    of_kind = OfKind(session, None if name in (None, ALL_KINDS) else kind_named(name))
    if verbose:
        _print_overview(of_kind, console, session.analyses)
    else:
        verdict = verdict_text(of_kind.analyses, of_kind.recommendations)
        print_line(console, verdict, "bold")
    if len(session.analyses) > 1 or session.analyses[0].steps or len(table):
        print_top(report, table, console, filters)
    if verbose:
        print_notes(session.notes, console)


def _print_overview(session: OfKind, console: Console, whole: Sequence[Analysis]) -> None:
    """Print all that stands above the table of a verbose report."""
    first, *others = analyses = session.analyses
    is_one = not others
    heading = summary.heading(whole[0]) if is_one else summary.heading_of_ranks(whole)
    console.print(Text(heading, style="bold"))
    for text in kind_texts(whole[0]):
        print_line(console, text)
    if (of_usual := usual_kind_text(whole[0])) and session.kind is None:
        print_line(console, of_usual)
    if first.steps or others:
        print_first(session.recommendations, first.recording.settings, console)
    else:
        print_line(console, "No step was profiled, so there is nothing to sum.")
    stragglers = () if is_one else (each.text for each in idle.straggler_lines(analyses))
    sentences = (
        *summary.coverage_lines(analyses),
        *rooflines.utilisation_texts(analyses),
        *stragglers,
        *summary.peak_texts(analyses),
    )
    causes = idle.cause_times(session.columns("idle_by_cause"))
    print_coverage(summary.records(session.columns("coverage")), causes, sentences, console)
    if is_one:
        _print_steps(whole[0], console)
        for each in idle.idle_texts(first, _SHOWN_IDLE):
            print_line(console, each.text)
    compiled = compiles.compile_text(first) if is_one else compiles.compile_text_of_ranks(analyses)
    if compiled is not None:
        console.print(Text(compiled))
    for analysis in analyses:
        if (bypassed := formatting.cache_bypass_text(analysis.recording.graphs)) is not None:
            rank = "" if is_one else f"rank {analysis.recording.settings.rank}: "
            print_line(console, f"{rank}{bypassed}", "yellow")


def report_of(
    by: str,
    top: int | None,
    depth: int | None,
    settings: Settings,
    table: Callable[..., tables.Table],
) -> Report:
    """Return what to report, checked."""
    kind = table_kinds.table_by(by)
    if top is not None:
        formatting.require_top(top)
    kind.arguments(depth)
    return Report(kind, top, depth, settings, table)


def print_top(report: Report, table: tables.Table, console: Console, filters: Filters) -> None:
    """Print a table's filters and its largest rows."""
    kind = report.kind
    table = with_ops(kind.by, report.table, table, filters)
    shown = summary.first_rows(report.kind.in_order(table), report.top)
    console.print()
    if any(value is not None for value in filters.values()):
        all_ns = _time_of(report.table(kind.name, step_kind=ALL_KINDS))
        console.print(Text(summary.filters_text(filters, _time_of(table), all_ns)))
    if not len(table):
        console.print(Text(f"no rows by {kind.by} ({kind.description})"))
        return
    of_wall: Filters = {
        "step": filters.get("step"),
        "rank": filters.get("rank"),
        "step_kind": filters.get("step_kind"),
    }
    wall_ns = int(report.table("coverage", **of_wall)["duration_ns"].sum())
    drawing = columns.Drawing(kind, table, shown, report.settings, console, wall_ns, report.depth)
    console.print(table_kinds.load_function(kind.drawer)(drawing))


def _time_of(table: tables.Table) -> int:
    name = next(each for each in ("duration_ns", "compile_ns", "wall_ns") if each in table)
    return int(table[name].sum())


def report(
    session: SessionLike,
    by: str | None = None,
    top: int | None = TOP,
    format: str = "text",
    width: int = 120,
    depth: int | None = None,
    verbose: bool = False,
    **filters: Unpack[Filters],
) -> str:
    """Return what :func:`print_session` prints, or one table as ``csv`` or ``md``."""
    if format == "text":
        file = io.StringIO()
        console = text_console(file, width)
        print_session(session, console, by=by, top=top, depth=depth, verbose=verbose, **filters)
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"
    kind = table_kinds.table_by(by or _BY)
    table = session.columns(kind.name, *kind.arguments(depth), **filters)
    return summary.table_text(kind.in_order(table), top, format)


def print_coverage(
    rows: list[dict[str, Any]],
    causes: Iterable[tuple[str, int]],
    sentences: Iterable[str],
    console: Console,
) -> None:
    """Print the step time breakdown, and how much is attributed."""
    if rows:
        console.print(_breakdown_table(rows, causes, console))
        for text in sentences:
            print_wrapped(console, text)


def _breakdown_table(
    rows: list[dict[str, Any]], causes: Iterable[tuple[str, int]], console: Console
) -> Table:
    wall = sum(row["duration_ns"] for row in rows)
    of_steps = sum(row["per_step_ns"] for row in rows) / wall if wall else 0.0
    rows_shown: list[columns.Row] = [
        {**row, "label": printable(formatting.breakdown_label(row))} for row in rows
    ]
    rows_shown += [_part_row(f"  {words}", took_ns, of_steps) for words, took_ns in causes]
    rows_shown.append(_part_row("total", wall, of_steps))
    width = max(columns.bar_width(console), len(STEP_PART))

    def bar(row: columns.Row) -> Text:
        parts = {SCOPE_STYLES[row["scope"]]: row["duration_ns"]} if "scope" in row else {}
        return columns.bar_text(parts, wall, width, console)

    name = columns.Name(
        "Step time breakdown", [row["label"] for row in rows_shown], formatting.middle, _LEAST_LABEL
    )
    numbers = [*measures(wall, "step"), columns.Number(STEP_PART, width, bar, 1, justify="left")]
    table = columns.table_of(rows_shown, [name], numbers, console.width)
    for drawn, row in zip(table.rows, rows_shown, strict=True):
        drawn.style = "" if "scope" in row else "bold" if row["label"] == "total" else "dim"
    return table


def _part_row(label: str, duration_ns: int, of_steps: float) -> columns.Row:
    return {"label": label, "duration_ns": duration_ns, "per_step_ns": duration_ns * of_steps}


def _print_steps(analysis: Analysis, console: Console) -> None:
    if steps_ns := training_steps(analysis):
        print_line(console, formatting.training_text(analysis, steps_ns))
    if len(analysis.steps) < 2:
        return
    for step in analysis.steps[:_SHOWN_STEPS]:
        print_line(console, formatting.step_text(analysis, step))
    if walls := [step.wall_ns for step in analysis.steps[_SHOWN_STEPS:]]:
        # Where the CPU runs ahead, the last step waits for the device, and is the longest.
        print_line(
            console, f"and {len(walls)} more: {formatting.range_text(min(walls), max(walls))}"
        )
