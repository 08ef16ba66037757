"""The peak of device memory in a terminal: where it is, then by kind, then by line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from profiler_ext.exporters.terminal.columns import Drawing, Name, Number, Row, number, table_of
from profiler_ext.exporters.terminal.console import Group, RenderableType, Table, Text
from profiler_ext.exporters.views import summary
from profiler_ext.exporters.views.findings import figure_text, where_text
from profiler_ext.exporters.views.formatting import (
    memory_label,
    middle,
    path_end,
    peak_text,
    percent_text,
    reserved_text,
    size_text,
    start,
    time_text,
)
from profiler_ext.findings.finding import Figure, FigureUnit
from profiler_ext.memory.recommendations import MemoryFinding, MemoryFindings
from profiler_ext.printable import printable
from profiler_ext.records.memory import LifeReason, MemoryKind
from profiler_ext.records.recording import Settings

_SIZE, _PART, _BLOCKS = 9, 6, 6
_SAVED, _TIME = 10, 9


def memory_table(drawing: Drawing) -> RenderableType:
    """Return the highest peak of each device: its kinds, and its lines."""
    rows = [row for row in summary.records(drawing.whole) if row["blocks"]]
    if not rows:
        return Text("No memory was recorded: record with `profiler-ext run --memory`.")
    parts: list[RenderableType] = []
    for device in dict.fromkeys(row["device"] for row in rows):
        own = [row for row in rows if row["device"] == device]
        step = max({row["step"] for row in own}, key=lambda each: _total(own, each))
        parts += _of_peak(drawing, [row for row in own if row["step"] == step])
    return Group(*parts)


def memory_recommendations(found: MemoryFindings, settings: Settings) -> RenderableType:
    """Return what lowers the peak: bytes, time, the place, evidence and remedy of each."""
    if not found.ranked:
        return Text("No recommendation moves the peak by 1%.")
    table = Table(box=None, pad_edge=False, padding=(0, 1), show_header=False)
    table.add_column(width=_SAVED, justify="right", no_wrap=True)
    table.add_column(width=_TIME, justify="right", no_wrap=True)
    table.add_column()
    for each in found.ranked:
        text = Text(printable(each.summary), style="bold")
        if where := where_text(each.location, settings):
            text.append(f"\n{where}", "not bold cyan")
        text.append(f"\n{_why(each)}", "not bold dim")
        text.append(f"\ntry: {printable(each.remedy)}", "not bold green")
        table.add_row(Text(_change(each)), Text(_time(each)), text)
    return Group(Text("Recommendations, by the bytes that the peak falls", style="bold"), table)


def _change(finding: MemoryFinding) -> str:
    sign = "-" if finding.saved_bytes >= 0 else "+"
    return f"{sign}{size_text(abs(finding.saved_bytes))}"


def _time(finding: MemoryFinding) -> str:
    """Return the time that a step takes more."""
    if finding.extra_ns is None:
        return "time ?"
    sign = "-" if finding.extra_ns < 0 else "+"
    return f"{sign}{time_text(abs(finding.extra_ns))}"


def _why(finding: MemoryFinding) -> str:
    kind = "reserved" if finding.is_reserved else "peak"
    peak = f"{size_text(finding.peak_bytes)} to {size_text(finding.predicted_peak_bytes)}"
    figures = [f"{each.name}: {_figure_text(each)}" for each in finding.evidence]
    return printable(" · ".join([finding.rule, f"{kind} {peak}", *figures]))


def _figure_text(figure: Figure) -> str:
    # In the unit of the peak above it
    is_size = figure.unit is FigureUnit.BYTES and not isinstance(figure.value, str)
    return size_text(int(figure.value)) if is_size else figure_text(figure)


def _total(rows: Sequence[Row], step: int) -> int:
    return sum(row["peak_bytes"] for row in rows if row["step"] == step)


def _of_peak(drawing: Drawing, rows: Sequence[Row]) -> list[RenderableType]:
    total = sum(row["peak_bytes"] for row in rows)
    heading = peak_text(rows[0], total, drawing.settings)
    kinds = _sums(rows, lambda row: row["kind"])
    lines = _sums(rows, lambda row: memory_label(row, drawing.settings))
    reasons = _sums(rows, lambda row: row["life_reason"] or "")
    shown = max(len(drawing.shown), 1)
    left = lines[shown:]
    return [
        Text(heading, style="bold"),
        Text(),
        _table(drawing, kinds, total, "kind", [MemoryKind(name).label for name, _ in kinds], []),
        *([Text(reserved)] if (reserved := reserved_text(rows[0])) else []),
        Text(),
        _table(
            drawing,
            lines[:shown],
            total,
            "line",
            [name for name, _ in lines[:shown]],
            [own[0]["code"] or "" for _, own in lines[:shown]],
        ),
        *([Text(f"({len(left):,} more)", style="dim")] if left else []),
        Text(),
        _table(
            drawing,
            reasons,
            total,
            "why it lives",
            [LifeReason(name).label if name else "(not known)" for name, _ in reasons],
            [own[0]["needed_by"] or own[0]["held_by"] or "" for _, own in reasons],
            "for the largest",
        ),
        Text(),
    ]


def _sums(rows: Iterable[Row], key: Callable[[Row], str]) -> list[tuple[str, list[Row]]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return sorted(groups.items(), key=lambda each: -_bytes(each[1]))


def _bytes(rows: Iterable[Row]) -> int:
    return sum(row["peak_bytes"] for row in rows)


def _table(
    drawing: Drawing,
    groups: Sequence[tuple[str, list[Row]]],
    total: int,
    heading: str,
    names: Sequence[str],
    codes: Sequence[str],
    codes_heading: str = "code",
) -> RenderableType:
    rows: list[Row] = [_row(own) for _, own in groups]
    numbers: list[Number] = [
        number("at peak", lambda row: size_text(row["peak_bytes"]), 0, _SIZE),
        number("% peak", lambda row: percent_text(row["peak_bytes"], total), 0, _PART),
        number("blocks", lambda row: f"{row['blocks']:,}", 1, _BLOCKS),
    ]
    of_lines = codes and codes_heading == "code"
    columns = [Name(heading, names, path_end if of_lines else middle, 18)]
    if codes:
        columns.append(Name(codes_heading, codes, start, 14))
        numbers.append(Number("kinds", 26, lambda row: Text(_cut(row["kinds"])), 2, justify="left"))
    return table_of(rows, columns, numbers, drawing.console.width)


def _cut(text: str) -> str:
    return start(text, 26)


def _row(rows: Sequence[Row]) -> dict[str, Any]:
    kinds = _sums(rows, lambda row: row["kind"])
    return {
        "peak_bytes": _bytes(rows),
        "blocks": sum(row["blocks"] for row in rows),
        "kinds": ", ".join(MemoryKind(name).label for name, _ in kinds),
    }
