"""Owns what a terminal shows: the ledger first, then where the device time went."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any, Unpack

from rich.console import Console
from rich.table import Table
from rich.text import Text

from profiler_ext.exporters import tables
from profiler_ext.exporters.compile_table import compile_table
from profiler_ext.exporters.compile_texts import compile_text
from profiler_ext.exporters.console import print_notes, say, text_console
from profiler_ext.exporters.display_text import (
    bypass_text,
    first_rows,
    heading,
    led_texts,
    ledger_label,
    narrowed_text,
    records,
    step_text,
    table_text,
)
from profiler_ext.exporters.idle_texts import cause_parts, idle_texts
from profiler_ext.exporters.roofline_texts import utilisation_texts
from profiler_ext.exporters.table_kind import TableKind
from profiler_ext.exporters.table_kinds import table_by
from profiler_ext.exporters.tables.selection import Filters
from profiler_ext.exporters.terminal_findings import print_first
from profiler_ext.exporters.top_table import (
    BETWEEN,
    ONE_LINE,
    PART,
    SCOPE_STYLES,
    TIME,
    add_columns,
    bar_text,
    bar_width,
    plain_table,
    time_and_part,
    top_table,
)
from profiler_ext.findings import find
from profiler_ext.printable import printable
from profiler_ext.records import Analysis, Settings

_SHOWN_STEPS = 8
_SHOWN_IDLE = 3


def print_report(
    analysis: Analysis,
    console: Console,
    *,
    by: str = "line",
    top: int | None = 15,
    **filters: Unpack[Filters],
) -> None:
    """Print the ledger, and then the largest rows of one summing table.

    Args:
        analysis: what attribution found.
        console: where to; bars fit its width.
        by: the ``by`` of a table: ``line``, ``module``, ...
        top: how many rows at most; ``None`` for all.
        **filters: what the table is narrowed to; the ledger is of everything.

    Raises:
        UsageError: There is no such table, step or phase, or ``top`` is less than 1.
    """
    kind = table_by(by)
    table = kind.make(analysis, **filters)
    shown = first_rows(table, top)
    say(console, heading(analysis), "bold")
    if analysis.steps:
        print_first(find(analysis), analysis.recording.settings, console)
    else:
        say(console, "No step was profiled, so there is nothing to sum.")
    _print_ledger(analysis, console)
    if (compiled := compile_text(analysis)) is not None:
        console.print(Text(compiled))
    if (bypassed := bypass_text(analysis.recording.graphs)) is not None:
        say(console, bypassed, "yellow")
    if analysis.steps or len(table):
        print_top(analysis.recording.settings, kind, table, shown, console, filters)
    print_notes(analysis.notes, console)


def print_top(
    settings: Settings,
    kind: TableKind,
    whole: tables.DataFrame,
    shown: tables.DataFrame,
    console: Console,
    filters: Filters,
) -> None:
    """Print the largest rows of a summing table, or that it has none, and what it is narrowed to.

    Args:
        settings: has the roots, to shorten paths.
        kind: which table it is.
        whole: all its rows.
        shown: those to print.
        console: where to.
        filters: what the table was narrowed to.
    """
    console.print()
    if narrowed := narrowed_text(filters):
        say(console, narrowed)
    if not len(whole):
        console.print(Text(f"nothing to show by {kind.by}: {kind.words}"))
    elif kind.by == "compile":
        console.print(compile_table(settings, shown, console, len(whole) - len(shown)))
    else:
        console.print(top_table(settings, kind, whole, shown, console))


def report(
    analysis: Analysis,
    by: str = "line",
    top: int | None = 15,
    format: str = "text",
    width: int = 120,
    **filters: Unpack[Filters],
) -> str:
    """Return one summing table as text; for a person, the ledger comes first.

    Args:
        analysis: what attribution found.
        by: the ``by`` of a table: ``line``, ``module``, ...
        top: how many rows at most; ``None`` for all.
        format: ``text`` for a person; ``csv`` or ``md`` hold raw nanoseconds.
        width: columns of the text.
        **filters: what the table is narrowed to.

    Returns:
        The report.

    Raises:
        UsageError: There is no such table, format, step or phase, or ``top`` is less than 1.
    """
    if format == "text":
        file = io.StringIO()
        console = text_console(file, width)
        print_report(analysis, console, by=by, top=top, **filters)
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"
    return table_text(table_by(by).make(analysis, **filters), top, format)


def _print_ledger(analysis: Analysis, console: Console) -> None:
    rows = records(tables.coverage(analysis))
    if not rows:
        return
    causes = cause_parts(tables.idle_by_cause(analysis))
    said = (*led_texts([analysis]), *utilisation_texts([analysis]))
    print_coverage(rows, causes, said, console)
    _print_steps(analysis, console)
    for text in idle_texts(analysis, _SHOWN_IDLE):
        say(console, text)


def print_coverage(
    rows: list[dict[str, Any]],
    causes: Iterable[tuple[str, int]],
    led: Iterable[str],
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
        for text in led:
            say(console, text)


def _ledger_table(
    rows: list[dict[str, Any]], causes: Iterable[tuple[str, int]], console: Console
) -> Table:
    wall = sum(row["duration_ns"] for row in rows)
    most = max(row["duration_ns"] for row in rows)
    room = bar_width(console)
    table = plain_table()
    add_columns(table, {"time": TIME, "part": PART, "": room}, numbers=2)
    taken = TIME + PART + room + 3 * BETWEEN
    table.add_column("wall time of the steps", width=max(console.width - taken, 1), **ONE_LINE)
    for row in rows:
        bar = bar_text({SCOPE_STYLES[row["scope"]]: row["duration_ns"]}, most, room, console)
        table.add_row(
            *time_and_part(row["duration_ns"], wall), bar, Text(printable(ledger_label(row)))
        )
    for words, duration_ns in causes:
        table.add_row(*time_and_part(duration_ns, wall), "", Text(f"  {words}"), style="dim")
    table.add_row(*time_and_part(wall, wall), "", Text("total"), style="bold")
    return table


def _print_steps(analysis: Analysis, console: Console) -> None:
    if len(analysis.steps) < 2:
        return
    for step in analysis.steps[:_SHOWN_STEPS]:
        say(console, step_text(analysis, step))
    if len(analysis.steps) > _SHOWN_STEPS:
        say(console, f"and {len(analysis.steps) - _SHOWN_STEPS} more steps")
