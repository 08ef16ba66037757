"""A job's report: in the terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from profiler_ext.cluster import views
from profiler_ext.cluster.job import TABLES, Job
from profiler_ext.exporters.json_output.documents import Cut, JobAnswer
from profiler_ext.exporters.terminal.columns import Name, Number, number, table_of
from profiler_ext.exporters.terminal.console import Console, Table, Text, print_notes
from profiler_ext.exporters.views.formatting import path_end, require_top, start
from profiler_ext.exporters.views.summary import first_rows, records
from profiler_ext.printable import printable
from profiler_ext.records.recording import Settings

_MAX_GAPS = 5
_MIN_FRACTION = 20


def print_job(job: Job, console: Console, by: str | None = None, top: int = 10) -> None:
    """Print a job's overview, or one table of it."""
    require_top(top)
    console.print(Text(printable(views.heading(job)), style="bold"))
    most = None if by == "gap" else _MAX_GAPS
    view, rows = views.view_by("gap"), records(job.columns("gaps"))
    settings = views.settings_of(job)
    for row in rows[:most]:
        text = ": ".join(column.cell(row, settings) for column in view.columns)
        console.print(Text(printable(text), style="yellow"))
    if left := len(rows[:0] if most is None else rows[most:]):
        console.print(Text(f"and {left:,} more are missing: --by gap", style="yellow"))
    for each in (by,) if by else views.AT_A_GLANCE:
        if each != "gap":
            _print_view(job, views.view_by(each), console, top)
    print_notes(tuple(views.sentences(job)), console)


def _print_view(job: Job, view: views.View, console: Console, top: int) -> None:
    rows = records(job.columns(view.table))
    console.print()
    if not rows:
        console.print(Text(view.empty))
        return
    console.print(Text(view.title, style="bold"))
    console.print(_table(view, rows[:top], views.settings_of(job), console.width))
    if len(rows) > top:
        console.print(Text(f"({len(rows) - top:,} more)", style="dim"))


def _table(view: views.View, rows: Sequence[Any], settings: Settings, width: int) -> Table:
    named = [column for column in view.columns if column.order is None]
    names = [
        Name(
            column.name,
            tuple(column.cell(row, settings) for row in rows),
            path_end if column.name == "line" else start,
            _MIN_FRACTION,
        )
        for column in named
    ]
    numbers = [_number(column, rows, settings) for column in view.columns if column not in named]
    return table_of(rows, names, numbers, width)


def _number(column: views.Heading, rows: Sequence[Any], settings: Settings) -> Number:
    width = max(len(column.cell(row, settings)) for row in rows)
    return number(
        column.name, lambda row: printable(column.cell(row, settings)), column.order or 0, width
    )


def job_answer(job: Job, place: str, by: str | None = None, top: int | None = None) -> JobAnswer:
    """Return a job, or one table of it, as an answer."""
    names = [each for each in TABLES if each != "gaps"] if by is None else [views.view_by(by).table]
    made = {name: job.columns(name) for name in names}
    return JobAnswer(
        place=place,
        rank_count=len(job.ranks),
        tables={name: records(first_rows(table, top)) for name, table in made.items()},
        missing=records(job.columns("gaps")),
        notes=views.sentences(job),
        cuts=[
            Cut(where=f"tables.{name}", kept=top, total=len(table), unit="items", reason="top")
            for name, table in made.items()
            if top is not None and len(table) > top
        ],
    )
