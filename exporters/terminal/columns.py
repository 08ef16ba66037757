"""Terminal layout: rows to draw, and which columns fit the width."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profiler_ext.exporters import table_kinds, tables
from profiler_ext.exporters.terminal.console import Console, Table, Text
from profiler_ext.exporters.views.formatting import percent_text, time_text
from profiler_ext.printable import printable
from profiler_ext.records.recording import Settings

BETWEEN = 2
ONE_LINE: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"}
_PRIORITY_LIMIT = 3
_MIN_NAME_WIDTH = 8
_EIGHTHS = " ▏▎▍▌▋▊▉"
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A table to draw in a terminal."""

    kind: table_kinds.TableKind
    whole: tables.Table  # all rows
    shown: tables.Table  # the rows to show
    settings: Settings  # for short paths
    console: Console
    wall_ns: int  # fills a bar
    depth: int | None = None  # of modules; ``None``: as deep as fits


@dataclass(frozen=True, slots=True)
class Number:
    """A column of numbers or bars."""

    heading: str
    width: int  # in characters
    cell: Callable[[Row], Text]
    order: int  # lowest first when space is short; 0 always
    style: str = ""  # of the heading
    justify: Any = "right"
    group: str = ""  # columns of one group and order fit together or not at all
    stands_for: str = ""  # the group that it sums, and which replaces it


@dataclass(frozen=True, slots=True)
class Name:
    """A column that names rows."""

    heading: str  # what heads it
    texts: Sequence[str]  # one per row
    cut: Callable[[str, int], str]  # cuts a text to a width
    least: int  # width reserved before lower-priority numbers
    wanted: int = 48  # width reserved before those of lowest priority

    @property
    def longest(self) -> int:
        """Length of the longest text."""
        return max(map(len, (self.heading, *self.texts)), default=0)


def number(
    heading: str, cell: Callable[[Row], str], order: int, width: int = 0, style: str = ""
) -> Number:
    """Return a column of numbers."""
    return Number(heading, max(width, len(heading)), lambda row: Text(cell(row)), order, style)


def fitting(numbers: Sequence[Number], names: Sequence[Name], width: int) -> list[Number]:
    """Return the number columns that fit, in order."""
    least = sum(min(each.least, each.longest) + BETWEEN for each in names) - BETWEEN
    wanted = sum(min(max(each.least, each.wanted), each.longest) for each in names)
    wanted += BETWEEN * (len(names) - 1)
    chosen: list[Number] = []
    for some in _by_priority(numbers):
        groups = {each.group for each in some} - {""}
        with_these = [*(each for each in chosen if each.stands_for not in groups), *some]
        taken = sum(column.width + BETWEEN for column in with_these)
        order = some[0].order
        if order == 0 or taken + (least if order <= _PRIORITY_LIMIT else wanted) <= width:
            chosen = with_these
    return [each for each in numbers if each in chosen]


def _by_priority(numbers: Sequence[Number]) -> list[list[Number]]:
    """Return the columns by order, those of one group together."""
    grouped: dict[tuple[int, object], list[Number]] = {}
    for at, each in enumerate(numbers):
        grouped.setdefault((each.order, each.group or at), []).append(each)
    return sorted(grouped.values(), key=lambda some: some[0].order)


def name_widths(names: Sequence[Name], room: int) -> list[int]:
    """Return the widths of name columns; a second without room is left out."""
    first, *others = names
    if others:
        second = others[0]
        own = min(first.longest, max(first.least, room - BETWEEN - second.longest))
        left = min(second.longest, room - BETWEEN - own)
        if left >= min(second.longest, _MIN_NAME_WIDTH):
            return [own, left]
    return [max(min(first.longest, room), 1)]


def table_of(
    rows: Sequence[Row], names: Sequence[Name], numbers: Sequence[Number], width: int
) -> Table:
    """Return a table of name columns and the number columns that fit."""
    names = [each for at, each in enumerate(names) if at == 0 or any(each.texts)]
    shown = fitting(numbers, names, width)
    widths = name_widths(names, width - sum(each.width + BETWEEN for each in shown))
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    for each, wide in zip(names, widths, strict=False):
        table.add_column(each.heading, width=wide, **ONE_LINE)
    for column in shown:
        heading = Text(column.heading, style=column.style)
        table.add_column(heading, justify=column.justify, width=column.width)
    for at, row in enumerate(rows):
        texts = _spread_names([printable(each.texts[at]) for each in names], widths)
        cut = (each.cut(text, wide) for each, text, wide in zip(names, texts, widths, strict=False))
        table.add_row(*map(Text, cut), *(column.cell(row) for column in shown))
    return table


def _spread_names(texts: list[str], widths: list[int]) -> list[str]:
    """Move a name too long for its column into the next, if that is empty and wider."""
    if len(widths) < 2 or texts[1] or len(texts[0]) <= widths[0] or widths[1] <= widths[0]:
        return texts
    return ["", texts[0]]


def time_cell(duration_ns: float) -> str:
    """Return a time, ``""`` for zero."""
    return time_text(duration_ns) if duration_ns else ""


def part_of(total_ns: float) -> Callable[[Row], str]:
    """Return a function from a row to its percentage of a total."""
    return lambda row: percent_text(row["duration_ns"], total_ns)


def bar_width(console: Console) -> int:
    """Return the width of bars."""
    return max(4, min(24, console.width // 8))


def bar_text(parts: Mapping[str, float], whole: float, width: int, console: Console) -> Text:
    """Return a bar coloured by part; on an ASCII console, of whole cells."""
    is_plain = console.options.ascii_only
    block = "#" if is_plain else "\N{FULL BLOCK}"
    bar, reached, drawn = Text(no_wrap=True), 0.0, 0
    for style, duration in parts.items():
        reached += duration
        cells = min(width * reached / whole, width) if whole else 0
        edge = round(cells) if is_plain else int(cells + 1e-9)
        bar.append(block * (edge - drawn), style=style)
        drawn = edge
    last = next((style for style, time in reversed([*parts.items()]) if time), "")
    cells = min(width * reached / whole, width) if whole else 0
    eighths = 0 if is_plain else int(8 * (cells - drawn) + 1e-9)
    bar.append(_EIGHTHS[eighths].strip(), style=last)
    return bar
