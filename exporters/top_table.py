"""Owns the table of times that a terminal shows: its bars, its columns of phases, its names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from profiler_ext.exporters import tables
from profiler_ext.exporters.colors import SCOPE_COLORS
from profiler_ext.exporters.display_text import (
    PHASE_STYLES,
    labels,
    percent_text,
    records,
    short_phase,
    time_text,
)
from profiler_ext.exporters.roofline_texts import roofline_text, savings_text
from profiler_ext.exporters.table_kind import TableKind
from profiler_ext.printable import printable
from profiler_ext.records import Phase, Scope, Settings

SCOPE_STYLES = {scope: color.middle for scope, color in SCOPE_COLORS.items()}
_NARROW, _WIDE, _TWO_NAMES = 72, 130, 44
_ROOM_FOR_ROOFLINES, _ROOM_FOR_SAVINGS = 96, 116
TIME, PART, BETWEEN = 7, 6, 2
_ROOFLINE = 11
ONE_LINE: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"}
Row = Mapping[str, Any]
Frame = tables.DataFrame
PhaseColumns = Mapping[str, tuple[Phase, ...]]
Rooflines = Mapping[str, Callable[[Row], str]]


@dataclass(frozen=True, slots=True)
class _Layout:
    """What there is room for: cells of the bar, phases, rooflines, widths of the names."""

    bar: int
    phases: PhaseColumns
    rooflines: Rooflines
    names: tuple[int, ...]


def top_table(
    settings: Settings, kind: TableKind, whole: Frame, shown: Frame, console: Console
) -> Table:
    """Return the table of the largest rows of a summing table, with the rest in one row.

    Args:
        settings: has the roots, to shorten paths.
        kind: which table it is.
        whole: all its rows.
        shown: those to print.
        console: what it must fit.
    """
    rows, total = records(shown), int(whole["duration_ns"].sum())
    names = [labels(kind, row, settings) for row in rows]
    phases = _phase_columns(kind, records(whole), console.width)
    rooflines = _roofline_columns(records(whole), console.width)
    layout = _layout(names, phases, rooflines, console)
    table = _empty_top_table(kind, layout)
    for row, texts in zip(rows, names, strict=True):
        bar = _row_bar(kind, row, rows[0]["duration_ns"], layout, console)
        numbers = (*time_and_part(row["duration_ns"], total), *bar, *_phase_times(row, phases))
        near = (Text(text_of(row)) for text_of in rooflines.values())
        table.add_row(*numbers, *near, *_cells(kind, texts, layout.names))
    if len(whole) > len(shown):
        left = total - sum(row["duration_ns"] for row in rows)
        blanks = ("",) * (bool(layout.bar) + len(phases) + len(rooflines))
        name = Text(f"({len(whole) - len(shown)} more)")
        table.add_row(*time_and_part(left, total), *blanks, name, style="dim")
    return table


def _layout(
    names: list[tuple[str, ...]], phases: PhaseColumns, rooflines: Rooflines, console: Console
) -> _Layout:
    bar = bar_width(console) if console.width >= _NARROW else 0
    numbers = [TIME, PART, *([bar] if bar else []), *map(_phase_width, phases)]
    numbers += [_ROOFLINE] * len(rooflines)
    room = max(console.width - sum(numbers) - BETWEEN * len(numbers), 1)
    return _Layout(bar, phases, rooflines, _name_widths(names, room))


def _roofline_columns(rows: list[dict[str, Any]], width: int) -> Rooflines:
    """Return heading to what a row says: how near it is to its roofline, what it could save."""
    if width < _ROOM_FOR_ROOFLINES or not any(row.get("bound") for row in rows):
        return {}
    shown = {"roofline": roofline_text}
    if width >= _ROOM_FOR_SAVINGS:
        shown["could save"] = savings_text
    return {name: text_of for name, text_of in shown.items() if any(map(text_of, rows))}


def _empty_top_table(kind: TableKind, layout: _Layout) -> Table:
    table = plain_table()
    add_columns(table, {"time": TIME, "part": PART}, numbers=2)
    if layout.bar:
        table.add_column("", width=layout.bar)
    for name, members in layout.phases.items():
        style = PHASE_STYLES[members[0]] if len(members) == 1 else ""
        table.add_column(Text(name, style=style), justify="right", width=_phase_width(name))
    for name in layout.rooflines:
        table.add_column(name, justify="right", width=_ROOFLINE)
    for name, width in zip(kind.headings, layout.names, strict=False):
        table.add_column(name, width=width, **ONE_LINE)
    return table


def _phase_width(name: str) -> int:
    return max(TIME, len(name))


def _row_bar(
    kind: TableKind, row: Row, most_ns: int, layout: _Layout, console: Console
) -> tuple[Text, ...]:
    parts = {SCOPE_STYLES[Scope.IDLE]: row["duration_ns"]}
    if kind.has_phases:
        parts = {PHASE_STYLES[phase]: row[phase] for phase in Phase}
    return (bar_text(parts, most_ns, layout.bar, console),) if layout.bar else ()


def _name_widths(names: list[tuple[str, ...]], room: int) -> tuple[int, ...]:
    """Return the widths of the columns of names; the second is left out where it has no room."""
    longest = max(len(each[0]) for each in names)
    if len(names[0]) == 1 or room < _TWO_NAMES:
        return (room,)
    first = min(max(longest, TIME), room // 2)
    return first, room - first - BETWEEN


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


def plain_table() -> Table:
    """Return a table without lines."""
    return Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")


def add_columns(table: Table, widths: Mapping[str, int], numbers: int) -> None:
    """Add columns to a table.

    Args:
        table: the table.
        widths: heading to width.
        numbers: so many of the first are numbers.
    """
    for at, (name, width) in enumerate(widths.items()):
        table.add_column(name, width=width, justify="right" if at < numbers else "left")


def time_and_part(duration_ns: int, total_ns: int) -> tuple[Text, Text]:
    """Return a time, and which part of a whole it is.

    Args:
        duration_ns: the time.
        total_ns: the whole.
    """
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


def bar_width(console: Console) -> int:
    """Return how wide bars are."""
    return max(4, min(24, console.width // 8))


def bar_text(parts: Mapping[str, int], most_ns: int, width: int, console: Console) -> Text:
    """Return a bar, coloured by part.

    Args:
        parts: style to time.
        most_ns: the time that fills its width.
        width: in cells.
        console: what it is drawn for.
    """
    block = "#" if console.options.ascii_only else "\N{FULL BLOCK}"
    bar, reached, drawn = Text(no_wrap=True), 0, 0
    for style, duration in parts.items():
        reached += duration
        edge = round(width * reached / most_ns) if most_ns else 0
        bar.append(block * (edge - drawn), style=style)
        drawn = edge
    return bar
