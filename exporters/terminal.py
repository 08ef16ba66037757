"""Owns what a terminal shows: the ledger first, then where the device time went."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Unpack

from profiler_ext.exporters import tables
from profiler_ext.exporters.columns import (
    Name,
    Number,
    Row,
    bar_text,
    bar_width,
    table_of,
)
from profiler_ext.exporters.compile_texts import compile_text
from profiler_ext.exporters.console import print_notes, print_line, print_wrapped, text_console
from profiler_ext.exporters.display_text import (
    cache_bypass_text,
    require_top,
    ledger_label,
    range_text,
    step_text,
    training_text,
)
from profiler_ext.exporters.drawing import Drawing
from profiler_ext.exporters.headings import heading
from profiler_ext.exporters.idle_texts import cause_times, idle_texts
from profiler_ext.exporters.loading import load_function
from profiler_ext.exporters.rich_parts import Console, Table, Text
from profiler_ext.exporters.roofline_texts import utilisation_texts
from profiler_ext.exporters.short_texts import middle
from profiler_ext.exporters.table_kind import TableKind
from profiler_ext.exporters.table_kinds import table_by, table_named
from profiler_ext.exporters.table_texts import (
    first_rows,
    coverage_lines,
    filters_text,
    records,
    table_text,
)
from profiler_ext.exporters.tables.selection import Filters
from profiler_ext.exporters.terminal_findings import print_first
from profiler_ext.exporters.top_table import STEP_PART, SCOPE_STYLES, measures
from profiler_ext.findings import find, training_steps
from profiler_ext.printable import printable
from profiler_ext.records import Analysis, Settings


@dataclass(frozen=True, slots=True)
class Report:
    """What is reported besides the ledger.

    Attributes:
        kind: the summing table.
        top: how many of its rows at most; ``None`` for all.
        depth: how deep modules are shown; ``None`` for as deep as there is room.
        settings: has the roots, to shorten paths.
        table: makes a table by its name, narrowed to the filters that it is given.
    """

    kind: TableKind
    top: int | None
    depth: int | None
    settings: Settings
    table: Callable[..., tables.DataFrame]


_LEAST_LABEL = 34
_SHOWN_STEPS = 8
_SHOWN_IDLE = 3


def print_report(
    analysis: Analysis,
    console: Console,
    *,
    by: str = "line",
    top: int | None = 15,
    depth: int | None = None,
    **filters: Unpack[Filters],
) -> None:
    """Print the ledger, and then the largest rows of one summing table.

    Args:
        analysis: what attribution found.
        console: where to; bars fit its width.
        by: the ``by`` of a table: ``line``, ``module``, ...
        top: how many rows at most; ``None`` for all.
        depth: how deep modules are shown; ``None`` for as deep as there is room.
        **filters: what the table is narrowed to; the ledger is of everything.

    Raises:
        UsageError: There is no such table, step or phase, or ``top`` is less than 1.
    """
    report = report_of(by, top, depth, analysis.recording.settings, _tables_of(analysis))
    table = report.table(report.kind.name, **filters)
    console.print(Text(heading(analysis), style="bold"))
    if analysis.steps:
        print_first(find(analysis), analysis.recording.settings, console)
    else:
        print_line(console, "No step was profiled, so there is nothing to sum.")
    _print_ledger(analysis, console)
    if (compiled := compile_text(analysis)) is not None:
        console.print(Text(compiled))
    if (bypassed := cache_bypass_text(analysis.recording.graphs)) is not None:
        print_line(console, bypassed, "yellow")
    if analysis.steps or len(table):
        print_top(report, table, console, filters)
    print_notes(analysis.notes, console)


def report_of(
    by: str,
    top: int | None,
    depth: int | None,
    settings: Settings,
    table: Callable[..., tables.DataFrame],
) -> Report:
    """Return what is reported.

    Args:
        by: the ``by`` of a table.
        top: how many of its rows at most.
        depth: how deep modules are shown.
        settings: has the roots.
        table: makes a table by its name.

    Raises:
        UsageError: There is no such table, ``top`` is less than 1, or ``depth`` is less than 0 or
            of a table that has none.
    """
    kind = table_by(by)
    if top is not None:
        require_top(top)
    kind.arguments(depth)
    return Report(kind, top, depth, settings, table)


def _tables_of(analysis: Analysis) -> Callable[..., tables.DataFrame]:
    return lambda name, **filters: table_named(name).make(analysis, **filters)


def print_top(
    report: Report,
    table: tables.DataFrame,
    console: Console,
    filters: Filters,
) -> None:
    """Print the largest rows of a summing table, or that it has none, and what it is narrowed to.

    Args:
        report: what is reported.
        table: all rows of the table.
        console: where to.
        filters: what the table was narrowed to.
    """
    kind, shown = report.kind, first_rows(report.kind.in_order(table), report.top)
    console.print()
    if any(value is not None for value in filters.values()):
        all_ns = _time_of(report.table(kind.name))
        console.print(Text(filters_text(filters, _time_of(table), all_ns)))
    if not len(table):
        console.print(Text(f"nothing to show by {kind.by}: {kind.words}"))
        return
    of_wall: Filters = {"step": filters.get("step"), "rank": filters.get("rank")}
    wall_ns = int(report.table("coverage", **of_wall)["duration_ns"].sum())
    drawing = Drawing(kind, table, shown, report.settings, console, wall_ns, report.depth)
    console.print(load_function(kind.drawer)(drawing))


def _time_of(table: tables.DataFrame) -> int:
    name = next(each for each in ("duration_ns", "compile_ns", "wall_ns") if each in table)
    return int(table[name].sum())


def report(
    analysis: Analysis,
    by: str = "line",
    top: int | None = 15,
    format: str = "text",
    width: int = 120,
    depth: int | None = None,
    **filters: Unpack[Filters],
) -> str:
    """Return one summing table as text; for a person, the ledger comes first.

    Args:
        analysis: what attribution found.
        by: the ``by`` of a table: ``line``, ``module``, ...
        top: how many rows at most; ``None`` for all.
        format: ``text`` for a person; ``csv`` or ``md`` hold raw nanoseconds.
        width: columns of the text.
        depth: how deep modules are shown, or told apart.
        **filters: what the table is narrowed to.

    Returns:
        The report.

    Raises:
        UsageError: There is no such table, format, step or phase, or ``top`` is less than 1.
    """
    if format == "text":
        file = io.StringIO()
        console = text_console(file, width)
        print_report(analysis, console, by=by, top=top, depth=depth, **filters)
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"
    request = report_of(by, top, depth, analysis.recording.settings, _tables_of(analysis))
    arguments = request.kind.arguments(depth)
    table = request.kind.make(analysis, *arguments, **filters)
    return table_text(request.kind.in_order(table), top, format)


def _print_ledger(analysis: Analysis, console: Console) -> None:
    rows = records(tables.coverage(analysis))
    if not rows:
        return
    causes = cause_times(tables.idle_by_cause(analysis))
    sentences = (*coverage_lines([analysis]), *utilisation_texts([analysis]))
    print_coverage(rows, causes, sentences, console)
    _print_steps(analysis, console)
    for each in idle_texts(analysis, _SHOWN_IDLE):
        print_line(console, each.text)


def print_coverage(
    rows: list[dict[str, Any]],
    causes: Iterable[tuple[str, int]],
    sentences: Iterable[str],
    console: Console,
) -> None:
    """Print the ledger, and which parts of the device time are led to lines and forward.

    Args:
        rows: of the table ``coverage``.
        causes: why the device was idle, in words, and for how long.
        led: what to say of those parts.
        console: where to.
    """
    if rows:
        console.print(_ledger_table(rows, causes, console))
        for text in sentences:
            print_wrapped(console, text)


def _ledger_table(
    rows: list[dict[str, Any]], causes: Iterable[tuple[str, int]], console: Console
) -> Table:
    wall = sum(row["duration_ns"] for row in rows)
    of_steps = sum(row["per_step_ns"] for row in rows) / wall if wall else 0.0
    rows_shown: list[Row] = [{**row, "label": printable(ledger_label(row))} for row in rows]
    rows_shown += [_part_row(f"  {words}", took_ns, of_steps) for words, took_ns in causes]
    rows_shown.append(_part_row("total", wall, of_steps))
    width = max(bar_width(console), len(STEP_PART))

    def bar(row: Row) -> Text:
        parts = {SCOPE_STYLES[row["scope"]]: row["duration_ns"]} if "scope" in row else {}
        return bar_text(parts, wall, width, console)

    name = Name("wall time of the steps", [row["label"] for row in rows_shown], middle, _LEAST_LABEL)
    numbers = [*measures(wall), Number(STEP_PART, width, bar, 1, justify="left")]
    table = table_of(rows_shown, [name], numbers, console.width)
    for drawn, row in zip(table.rows, rows_shown, strict=True):
        drawn.style = "" if "scope" in row else "bold" if row["label"] == "total" else "dim"
    return table


def _part_row(label: str, duration_ns: int, of_steps: float) -> Row:
    return {"label": label, "duration_ns": duration_ns, "per_step_ns": duration_ns * of_steps}


def _print_steps(analysis: Analysis, console: Console) -> None:
    if steps_ns := training_steps(analysis):
        print_line(console, training_text(analysis, steps_ns))
    if len(analysis.steps) < 2:
        return
    for step in analysis.steps[:_SHOWN_STEPS]:
        print_line(console, step_text(analysis, step))
    if walls := [step.wall_ns for step in analysis.steps[_SHOWN_STEPS:]]:
        # Where the CPU runs ahead, the last step waits for the device, and is the longest.
        print_line(console, f"and {len(walls)} more: {range_text(min(walls), max(walls))}")
