"""Owns the table that a terminal shows of rows that are no sums: launches, graphs, steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from profiler_ext.exporters.columns import Name, Number, Row, number, table_of
from profiler_ext.exporters.display_text import gap_text, percent_text, short_path, time_text
from profiler_ext.exporters.drawing import Drawing
from profiler_ext.exporters.rich_parts import Group, RenderableType, Text
from profiler_ext.exporters.roofline_texts import figure
from profiler_ext.exporters.short_texts import kernel_text, middle, short_kernel
from profiler_ext.exporters.table_texts import records
from profiler_ext.records import Settings

_LEAST_NAME_WIDTH = 24


def record_table(drawing: Drawing) -> RenderableType:
    """Return the first rows of a table: what each is called, then the columns that are shown.

    Args:
        drawing: what is shown, and where.
    """
    rows, left = records(drawing.shown), len(drawing.whole) - len(drawing.shown)
    (first, heading), *others = drawing.kind.shown
    labels = [_text(row, first, drawing.settings) or _unnamed(row, drawing) for row in rows]
    every = (_column(at, *each, rows, drawing.settings) for at, each in enumerate(others))
    numbers = [each for each in every if any(each.cell(row).plain for row in rows)]
    table = table_of(rows, [Name(heading, labels, middle, _LEAST_NAME_WIDTH)], numbers, drawing.console.width)
    return Group(table, *([Text(f"({left:,} more)", style="dim")] if left > 0 else []))


def _unnamed(row: Row, drawing: Drawing) -> str:
    return f"({gap_text(row['gap'])})" if row.get("gap") else f"({drawing.kind.unnamed})"


def _column(at: int, name: str, heading: str, rows: Sequence[Row], settings: Settings) -> Number:
    """Return a column; those that stand first matter most where there is little room."""
    width = max((len(_text(row, name, settings)) for row in rows), default=0)
    return number(heading, lambda row: _text(row, name, settings), at, width)


def _text(row: Row, name: str, settings: Settings) -> str:
    value: Any = _kernel(row) if name == "kernel" else row[name]
    if value is None or value == "":
        return ""
    if name.endswith("_ns"):
        return time_text(value)
    if name == "file":
        return f"{short_path(value, settings)}:{row['line']}"
    if name in ("mfu", "share") or name.endswith("fraction"):
        return percent_text(value, 1)
    if name == "est_flops":
        return figure(value / 1e12)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _kernel(row: Row) -> str:
    """Return what ran: what Inductor calls it, if it does, and the device."""
    return kernel_text(row) if row["kernel"] else short_kernel(row["name"])
