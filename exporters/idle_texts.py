"""Owns how idle time reads for a person: where the CPU was while the device waited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiler_ext.exporters import tables
from profiler_ext.exporters.display_text import gap_text, records, short_path, time_text
from profiler_ext.printable import printable
from profiler_ext.records import Analysis, IdleSpan, Settings

PYTHON = "Python outside of any op"


def idle_texts(analysis: Analysis, most: int) -> list[str]:
    """Return lines that say where the CPU was in most of the idle time, largest first.

    Where nobody watched the lines, the largest idle spans are told instead.

    Args:
        analysis: what attribution found.
        most: so many lines at most.
    """
    if analysis.recording.python is None:
        return [_span_text(span) for span in analysis.idle[:most]]
    rows = records(tables.idle_by_line(analysis))
    lines: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        lines.setdefault((row["file"], row["line"], row["gap"]), []).append(row)
    longest = sorted(lines.values(), key=lambda of_line: -_time(of_line))[:most]
    return [_line_text(of_line, analysis.recording.settings) for of_line in longest]


def _time(rows: list[dict[str, Any]]) -> int:
    return sum(row["duration_ns"] for row in rows)


def _line_text(rows: list[dict[str, Any]], settings: Settings) -> str:
    first = rows[0]
    doing = first["cpu_activity"] or PYTHON
    where = f"waiting {_place_text(first, settings)}"
    return printable(f"{where}: idle {time_text(_time(rows))}, mostly in {doing}")


def _place_text(row: Mapping[str, Any], settings: Settings) -> str:
    if row["file"] is None:
        return f"at no line ({gap_text(row['gap'])})"
    return f"at {short_path(row['file'], settings)}:{row['line']}"


def _span_text(span: IdleSpan) -> str:
    doing = f"while the CPU ran {span.cpu_activity or PYTHON}"
    return printable(f"idle {time_text(span.duration_ns)} in step {span.step}, {doing}")
