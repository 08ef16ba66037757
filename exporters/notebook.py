"""Owns how a session shows itself in a notebook: what to do first, the ledger, the top lines.

A notebook puts the text into its own page, so every name is escaped, and styles are written
on the elements: nothing leaks out, and light and dark themes keep their colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from profiler_ext.exporters import tables
from profiler_ext.exporters.compile_texts import compile_text
from profiler_ext.exporters.display_text import (
    PHASE_STYLES,
    labels,
    led_texts,
    ledger_label,
    percent_text,
    records,
    short_phase,
    time_text,
)
from profiler_ext.exporters.findings_texts import (
    SHOWN,
    findings_title,
    stake_texts,
    where_text,
    why_text,
)
from profiler_ext.exporters.headings import heading
from profiler_ext.exporters.idle_texts import cause_parts, idle_texts
from profiler_ext.exporters.roofline_texts import roofline_text, savings_text, utilisation_texts
from profiler_ext.exporters.table_kinds import BY
from profiler_ext.findings import Finding, find
from profiler_ext.printable import printable
from profiler_ext.records import Analysis, Phase, Settings

_TOP = 10
_SHOWN_IDLE = 3
_LEFT, _RIGHT = "text-align:left", "text-align:right;white-space:nowrap"
_CODE = f"{_LEFT};font-family:monospace"


def session_html(analysis: Analysis) -> str:
    """Return a session as a small piece of HTML.

    Args:
        analysis: what attribution found.

    Returns:
        What to do first, the ledger, what compiling took, and the lines that took most device time.
    """
    notes = "".join(f"<p>{_text(f'note: {note}')}</p>" for note in analysis.notes)
    title = f"<p><b>{_text(heading(analysis))}</b></p>"
    told = compile_text(analysis)
    compiled = f"<p>{_text(told)}</p>" if told is not None else ""
    parts = (title, _findings(analysis), _ledger(analysis), compiled, _top_lines(analysis), notes)
    return f"<div>{''.join(parts)}</div>"


def _findings(analysis: Analysis) -> str:
    if not analysis.steps:
        return ""
    told = find(analysis)
    items = [_finding(each, analysis.recording.settings) for each in told.found]
    rest = "".join(items[SHOWN:])
    more = f"<details><summary>{len(items) - SHOWN} more</summary><ol>{rest}</ol></details>"
    shown = f"<ol>{''.join(items[:SHOWN])}</ol>" if items else ""
    return f"<p><b>{_text(findings_title(told))}</b></p>{shown}{more if rest else ''}"


def _finding(finding: Finding, settings: Settings) -> str:
    time, part = stake_texts(finding)
    place = _text(where_text(finding.where, settings))
    lines = (
        f"<b>{time} {part}</b> {_text(finding.what)}",
        place,
        _text(why_text(finding)),
        f"Try: {_text(finding.remedy)}",
    )
    return f"<li>{'<br>'.join(filter(None, lines))}</li>"


def _ledger(analysis: Analysis) -> str:
    rows = records(tables.coverage(analysis))
    if not rows:
        return "<p>No step was profiled, so there is nothing to sum.</p>"
    wall = sum(row["duration_ns"] for row in rows)
    lines = [(*_time(row["duration_ns"], wall), _text(ledger_label(row))) for row in rows]
    for words, duration_ns in cause_parts(tables.idle_by_cause(analysis)):
        lines.append((*_time(duration_ns, wall), f"&emsp;{_text(words)}"))
    lines.append((*_time(wall, wall), "total"))
    near = utilisation_texts([analysis])
    said = (*led_texts([analysis]), *near, *idle_texts(analysis, _SHOWN_IDLE))
    below = "".join(f"<p>{_text(text)}</p>" for text in said)
    heads = ("time", "part", "wall time of the steps")
    return _table(heads, (_RIGHT, _RIGHT, _LEFT), lines) + below


def _top_lines(analysis: Analysis) -> str:
    rows = records(tables.by_line(analysis))
    if not rows:
        return ""
    phases = [phase for phase in Phase if any(row[phase] for row in rows)]
    total = sum(row["duration_ns"] for row in rows)
    near = ("roofline", "could save")
    heads = ("time", "part", "", *map(short_phase, phases), *near, "line", "code")
    styles = (_RIGHT, _RIGHT, _LEFT, *(_RIGHT for _ in (*phases, *near)), _CODE, _CODE)
    lines = [_line(analysis, row, phases, rows[0]["duration_ns"], total) for row in rows[:_TOP]]
    more = f"<p>and {len(rows) - _TOP} more</p>" if len(rows) > _TOP else ""
    return _table(heads, styles, lines) + more


def _line(
    analysis: Analysis, row: Mapping[str, Any], phases: list[Phase], most: int, total: int
) -> tuple[str, ...]:
    names = labels(BY["line"], row, analysis.recording.settings)
    times = (time_text(row[phase]) if row[phase] else "" for phase in phases)
    near = (roofline_text(row), savings_text(row))
    numbers = (*_time(row["duration_ns"], total), _bar(row, most), *times, *near)
    return (*numbers, *map(_text, names))


def _bar(row: Mapping[str, Any], most_ns: int) -> str:
    pieces = (
        f'<div style="width:{100 * row[phase] / most_ns:.1f}%;'
        f'background:{PHASE_STYLES[phase]}"></div>'
        for phase in Phase
        if row[phase]
    )
    return f'<div style="display:flex;width:8em;height:.8em">{"".join(pieces)}</div>'


def _time(duration_ns: int, total_ns: int) -> tuple[str, str]:
    return time_text(duration_ns), percent_text(duration_ns, total_ns)


def _table(heads: Iterable[str], styles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    body = "".join(_row("td", row, styles) for row in rows)
    return f"<table><thead>{_row('th', heads, styles)}</thead><tbody>{body}</tbody></table>"


def _row(tag: str, cells: Iterable[str], styles: tuple[str, ...]) -> str:
    pairs = zip(cells, styles, strict=True)
    made = (f'<{tag} style="{style}">{cell}</{tag}>' for cell, style in pairs)
    return f"<tr>{''.join(made)}</tr>"


def _text(text: str) -> str:
    return escape(printable(text))
