"""Owns what a terminal shows: the ledger first, then where the device time went."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from profiler_ext.exporters import tables
from profiler_ext.exporters.console import print_notes, say, text_console
from profiler_ext.exporters.display_text import (
    PHASE_STYLES,
    bypass_text,
    first_rows,
    heading,
    labels,
    led_texts,
    ledger_label,
    percent_text,
    records,
    short_phase,
    step_text,
    table_text,
    time_text,
)
from profiler_ext.exporters.idle_texts import idle_texts
from profiler_ext.exporters.table_kinds import TableKind, table_by
from profiler_ext.exporters.terminal_findings import print_first
from profiler_ext.findings import find
from profiler_ext.printable import printable
from profiler_ext.records import Analysis, Phase, Scope, Settings

_SCOPE_STYLES = {Scope.COMPILED: "cyan", Scope.EAGER: "green", Scope.IDLE: "bright_black"}
_SHOWN_STEPS = 8
_SHOWN_IDLE = 3
_NARROW, _WIDE = 72, 130
_TWO_NAMES = 44
_TIME, _PART, _BETWEEN = 7, 6, 2
_ONE_LINE: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"}
Row = Mapping[str, Any]
Frame = tables.DataFrame
PhaseColumns = Mapping[str, tuple[Phase, ...]]


def print_report(
    analysis: Analysis, console: Console, *, by: str = "line", top: int | None = 15
) -> None:
    """Print the ledger, and then the largest rows of one summing table.

    Args:
        analysis: what attribution found.
        console: where to; bars fit its width.
        by: the ``by`` of a table: ``line``, ``module``, ...
        top: how many rows at most; ``None`` for all.

    Raises:
        UsageError: There is no such table, or ``top`` is less than 1.
    """
    kind = table_by(by)
    table = kind.make(analysis)
    shown = first_rows(table, top)
    say(console, heading(analysis), "bold")
    if analysis.steps:
        print_first(find(analysis), analysis.recording.settings, console)
    else:
        say(console, "No step was profiled, so there is nothing to sum.")
    _print_ledger(analysis, console)
    if (bypassed := bypass_text(analysis.recording.graphs)) is not None:
        say(console, bypassed, "yellow")
    print_top(analysis.recording.settings, kind, table, shown, console)
    print_notes(analysis.notes, console)


def print_top(
    settings: Settings, kind: TableKind, whole: Frame, shown: Frame, console: Console
) -> None:
    """Print the largest rows of a summing table, if it has any.

    Args:
        settings: has the roots, to shorten paths.
        kind: which table it is.
        whole: all its rows.
        shown: those to print.
        console: where to.
    """
    if len(whole):
        console.print()
        console.print(_top_table(settings, kind, whole, shown, console))


def report(
    analysis: Analysis,
    by: str = "line",
    top: int | None = 15,
    format: str = "text",
    width: int = 120,
) -> str:
    """Return one summing table as text; for a person, the ledger comes first.

    Args:
        analysis: what attribution found.
        by: the ``by`` of a table: ``line``, ``module``, ...
        top: how many rows at most; ``None`` for all.
        format: ``text`` for a person; ``csv``, ``json`` or ``md`` hold raw nanoseconds.
        width: columns of the text.

    Returns:
        The report.

    Raises:
        UsageError: There is no such table or format, or ``top`` is less than 1.
    """
    if format == "text":
        file = io.StringIO()
        console = text_console(file, width)
        print_report(analysis, console, by=by, top=top)
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"
    return table_text(table_by(by).make(analysis), top, format)


def _print_ledger(analysis: Analysis, console: Console) -> None:
    rows = records(tables.coverage(analysis))
    if not rows:
        return
    print_coverage(rows, led_texts([analysis]), console)
    _print_steps(analysis, console)
    for text in idle_texts(analysis, _SHOWN_IDLE):
        say(console, text)


def print_coverage(rows: list[dict[str, Any]], led: Iterable[str], console: Console) -> None:
    """Print the ledger, and which parts of the device time are led to lines and forward.

    Args:
        rows: of the table ``coverage``.
        led: what to say of those parts.
        console: where to.
    """
    if rows:
        console.print(_ledger_table(rows, console))
        for text in led:
            say(console, text)


def _ledger_table(rows: list[dict[str, Any]], console: Console) -> Table:
    wall = sum(row["duration_ns"] for row in rows)
    most = max(row["duration_ns"] for row in rows)
    bar_width = _bar_width(console)
    table = _plain_table()
    _add_columns(table, {"time": _TIME, "part": _PART, "": bar_width}, numbers=2)
    taken = _TIME + _PART + bar_width + 3 * _BETWEEN
    table.add_column("wall time of the steps", width=max(console.width - taken, 1), **_ONE_LINE)
    for row in rows:
        bar = _bar({_SCOPE_STYLES[row["scope"]]: row["duration_ns"]}, most, bar_width, console)
        table.add_row(*_time(row["duration_ns"], wall), bar, Text(printable(ledger_label(row))))
    table.add_row(*_time(wall, wall), "", Text("total"), style="bold")
    return table


def _print_steps(analysis: Analysis, console: Console) -> None:
    if len(analysis.steps) < 2:
        return
    for step in analysis.steps[:_SHOWN_STEPS]:
        say(console, step_text(analysis, step))
    if len(analysis.steps) > _SHOWN_STEPS:
        say(console, f"and {len(analysis.steps) - _SHOWN_STEPS} more steps")


@dataclass(frozen=True, slots=True)
class _Layout:
    """What there is room for: cells of the bar, columns of phases, widths of the names."""

    bar: int
    phases: PhaseColumns
    names: tuple[int, ...]


def _top_table(
    settings: Settings, kind: TableKind, whole: Frame, shown: Frame, console: Console
) -> Table:
    rows, total = records(shown), int(whole["duration_ns"].sum())
    names = [labels(kind, row, settings) for row in rows]
    phases = _phase_columns(kind, records(whole), console.width)
    layout = _layout(names, phases, console)
    table = _empty_top_table(kind, layout)
    for row, texts in zip(rows, names, strict=True):
        bar = _row_bar(kind, row, rows[0]["duration_ns"], layout, console)
        numbers = (*_time(row["duration_ns"], total), *bar, *_phase_times(row, phases))
        table.add_row(*numbers, *_cells(kind, texts, layout.names))
    if len(whole) > len(shown):
        left = total - sum(row["duration_ns"] for row in rows)
        blanks = ("",) * (bool(layout.bar) + len(phases))
        name = Text(f"({len(whole) - len(shown)} more)")
        table.add_row(*_time(left, total), *blanks, name, style="dim")
    return table


def _layout(names: list[tuple[str, ...]], phases: PhaseColumns, console: Console) -> _Layout:
    bar = _bar_width(console) if console.width >= _NARROW else 0
    numbers = [_TIME, _PART, *([bar] if bar else []), *map(_phase_width, phases)]
    room = max(console.width - sum(numbers) - _BETWEEN * len(numbers), 1)
    return _Layout(bar, phases, _name_widths(names, room))


def _empty_top_table(kind: TableKind, layout: _Layout) -> Table:
    table = _plain_table()
    _add_columns(table, {"time": _TIME, "part": _PART}, numbers=2)
    if layout.bar:
        table.add_column("", width=layout.bar)
    for name, members in layout.phases.items():
        style = PHASE_STYLES[members[0]] if len(members) == 1 else ""
        table.add_column(Text(name, style=style), justify="right", width=_phase_width(name))
    for name, width in zip(kind.headings, layout.names, strict=False):
        table.add_column(name, width=width, **_ONE_LINE)
    return table


def _phase_width(name: str) -> int:
    return max(_TIME, len(name))


def _row_bar(
    kind: TableKind, row: Row, most_ns: int, layout: _Layout, console: Console
) -> tuple[Text, ...]:
    parts = {_SCOPE_STYLES[Scope.IDLE]: row["duration_ns"]}
    if kind.has_phases:
        parts = {PHASE_STYLES[phase]: row[phase] for phase in Phase}
    return (_bar(parts, most_ns, layout.bar, console),) if layout.bar else ()


def _name_widths(names: list[tuple[str, ...]], room: int) -> tuple[int, ...]:
    """Return the widths of the columns of names; the second is left out where it has no room."""
    longest = max(len(each[0]) for each in names)
    if len(names[0]) == 1 or room < _TWO_NAMES:
        return (room,)
    first = min(max(longest, _TIME), room // 2)
    return first, room - first - _BETWEEN


def _phase_columns(kind: TableKind, rows: list[dict[str, Any]], width: int) -> PhaseColumns:
    """Return heading to phases: one column a phase where there is room, else the rest together."""
    if "phase" in kind.keys or not kind.has_phases:
        return {}
    spent = [phase for phase in Phase if any(row[phase] for row in rows)]
    first = [phase for phase in spent if phase in (Phase.FORWARD, Phase.BACKWARD)]
    rest = tuple(phase for phase in spent if phase not in first)
    if width >= _WIDE or len(rest) < 2:
        return {short_phase(phase): (phase,) for phase in spent}
    return {phase.value: (phase,) for phase in first} | {"rest": rest}


def _plain_table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")


def _add_columns(table: Table, widths: Mapping[str, int], numbers: int) -> None:
    for at, (name, width) in enumerate(widths.items()):
        table.add_column(name, width=width, justify="right" if at < numbers else "left")


def _time(duration_ns: int, total_ns: int) -> tuple[Text, Text]:
    return Text(time_text(duration_ns)), Text(percent_text(duration_ns, total_ns))


def _phase_times(row: Row, columns: PhaseColumns) -> list[Text]:
    sums = (sum(row[phase] for phase in phases) for phases in columns.values())
    return [Text(time_text(each) if each else "") for each in sums]


def _cells(kind: TableKind, names: tuple[str, ...], widths: tuple[int, ...]) -> list[Text]:
    texts = [printable(name) for name in names[: len(widths)]]
    if "line" in kind.keys and len(texts[0]) > widths[0] and not texts[0].startswith("("):
        # The end of a path tells more than its start.
        texts[0] = "\N{HORIZONTAL ELLIPSIS}" + texts[0][len(texts[0]) - widths[0] + 1 :]
    return [Text(text) for text in texts]


def _bar_width(console: Console) -> int:
    return max(4, min(24, console.width // 8))


def _bar(parts: Mapping[str, int], most_ns: int, width: int, console: Console) -> Text:
    """Return a bar, coloured by part; ``most_ns`` fills its width."""
    block = "#" if console.options.ascii_only else "\N{FULL BLOCK}"
    bar, reached, drawn = Text(no_wrap=True), 0, 0
    for style, duration in parts.items():
        reached += duration
        edge = round(width * reached / most_ns) if most_ns else 0
        bar.append(block * (edge - drawn), style=style)
        drawn = edge
    return bar
