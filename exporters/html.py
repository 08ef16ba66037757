"""Owns report.html: one page without network, which shows the ledger and the top rows.

Every name comes from a trace and is escaped; data is never put into the page's script, and
the page's policy lets no other script run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from exporters import tables
from exporters.wording import (
    HEADINGS,
    heading,
    idle_text,
    labels,
    ledger_label,
    percent_text,
    printable,
    records,
    step_text,
    table_by,
    time_text,
)
from profiler_ext.records import Analysis, Phase, Step
from profiler_ext.writing import replacing

_TABLES = {"line": "Lines", "module": "Modules", "kernel": "Kernels"}
_SHOWN_ROWS = 50
_SHOWN_STEPS = 12
_SHOWN_IDLE = 5
Row = Mapping[str, Any]


def export_html(analysis: Analysis, path: Path) -> None:
    """Write the report as one self-contained page.

    Args:
        analysis: what attribution found.
        path: the file; replaced when it is there.

    Raises:
        OutputError: The file cannot be written.
    """
    page = html_text(analysis)
    with replacing(path) as file:
        file.write(page.encode("utf-8", "backslashreplace"))


def html_text(analysis: Analysis) -> str:
    """Return the page."""
    script = _resource("report_sort.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    line = heading(analysis)
    return Template(_resource("report_template.html")).substitute(
        title=_text(f"profiler-ext: {line}"),
        heading=_text(line),
        notes="".join(_section("", f"<p>{_text(note)}</p>", "note") for note in analysis.notes),
        ledger=_ledger(analysis),
        steps=_steps(analysis),
        tables="".join(_top(analysis, by, title) for by, title in _TABLES.items()),
        script=script,
        script_hash=digest,
    )


def _resource(name: str) -> str:
    return files("exporters").joinpath(name).read_text(encoding="utf-8")


def _text(text: str) -> str:
    return escape(printable(text))


def _section(title: str, body: str, kind: str = "") -> str:
    head = f"<h2>{title}</h2>" if title else ""
    return f'<section class="{kind}">{head}{body}</section>\n'


def _ledger(analysis: Analysis) -> str:
    rows = records(tables.coverage(analysis))
    if not rows:
        return _section("Ledger", "<p>No step was profiled, so there is nothing to sum.</p>")
    wall = sum(row["duration_ns"] for row in rows)
    most = max(row["duration_ns"] for row in rows)
    lines = "".join(_ledger_row(row, wall, most) for row in rows)
    foot = f"<tr>{_time_cells(wall, wall)}<td></td><td>total</td></tr>"
    led = tables.fraction_at(analysis, "line", "compiled")
    spans = "".join(f"<p>{_text(idle_text(span))}</p>" for span in analysis.idle[:_SHOWN_IDLE])
    summary = f"<p>{100 * led:.1f}% of compiled device time is led to source lines.</p>"
    table = _table(_heads((), ["wall time of the steps"], sortable=False), lines, foot)
    return _section("Ledger", f'{table}{summary}<div class="quiet">{spans}</div>')


def _ledger_row(row: Row, wall: int, most: int) -> str:
    bar = _bar_cell({row["scope"]: row["duration_ns"]}, most)
    label = f"<td>{_text(ledger_label(row))}</td>"
    return f"<tr>{_time_cells(row['duration_ns'], wall)}{bar}{label}</tr>"


def _steps(analysis: Analysis) -> str:
    if not analysis.steps:
        return ""
    shown = analysis.steps[:_SHOWN_STEPS]
    spent = [_phase_times(analysis, step) for step in shown]
    most = max(sum(parts.values()) for parts in spent)
    pairs = zip(shown, spent, strict=True)
    bars = "".join(f"<p>{_text(step_text(analysis, s))}</p>{_bar(p, most)}" for s, p in pairs)
    rest = len(analysis.steps) - len(shown)
    more = f'<p class="quiet">and {rest} more steps</p>' if rest else ""
    return _section("Device time of each step by phase", _legend(spent) + bars + more)


def _phase_times(analysis: Analysis, step: Step) -> dict[str, int]:
    rows = records(tables.by_phase(analysis, step=step.number))
    spent = {row["phase"]: row["duration_ns"] for row in rows}
    return {phase.value: spent.get(phase, 0) for phase in Phase}


def _legend(spent: Iterable[Mapping[str, int]]) -> str:
    sums = {phase: sum(parts[phase] for parts in spent) for phase in Phase}
    keys = (_key(phase, total) for phase, total in sums.items() if total)
    return f'<p class="legend">{"".join(keys)}</p>'


def _key(phase: Phase, total_ns: int) -> str:
    label = f"{phase.replace('_', ' ')} {time_text(total_ns)}"
    return f'<span class="key {phase}"></span><span>{label}</span>'


def _top(analysis: Analysis, by: str, title: str) -> str:
    whole = table_by(analysis, by)
    if not len(whole):
        return ""
    rows = records(whole.head(_SHOWN_ROWS))
    phases = [phase for phase in Phase if int(whole[phase.value].sum())]
    total = int(whole["duration_ns"].sum())
    settings = analysis.recording.settings
    body = "".join(
        _top_row(row, labels(by, row, settings), phases, rows[0]["duration_ns"], total)
        for row in rows
    )
    heads = _heads((phase.replace("_", " ") for phase in phases), HEADINGS[by])
    return _section(title, _table(heads, body, _rest(whole, rows, phases, total)), by)


def _top_row(row: Row, names: tuple[str, ...], phases: list[Phase], most: int, total: int) -> str:
    bar = _bar_cell({phase: row[phase] for phase in phases}, most)
    times = "".join(
        _number(row[phase], time_text(row[phase]) if row[phase] else "") for phase in phases
    )
    texts = "".join(map(_name, map(_text, names)))
    return f"<tr>{_time_cells(row['duration_ns'], total)}{bar}{times}{texts}</tr>"


def _name(text: str) -> str:
    return f'<td class="name"><div class="clip" title="{text}">{text}</div></td>'


def _rest(
    whole: tables.DataFrame, rows: list[dict[str, Any]], phases: list[Phase], total: int
) -> str:
    more = len(whole) - len(rows)
    if not more:
        return ""
    left = total - sum(row["duration_ns"] for row in rows)
    cells = "<td></td>" * (1 + len(phases))
    return f"<tr>{_time_cells(left, total)}{cells}<td>({more} more)</td></tr>"


def _table(heads: str, body: str, foot: str) -> str:
    return (
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody><tfoot>{foot}</tfoot></table>"
    )


def _heads(numbers: Iterable[str], names: Iterable[str], sortable: bool = True) -> str:
    button = '<button type="button">{}</button>' if sortable else "{}"
    times = [f'<th class="number">{button.format(name)}</th>' for name in ("time", "part")]
    phases = [f'<th class="number">{button.format(escape(name))}</th>' for name in numbers]
    texts = [f'<th class="name">{button.format(escape(name))}</th>' for name in names]
    return "".join((*times, "<th></th>", *phases, *texts))


def _time_cells(duration_ns: int, total_ns: int) -> str:
    part = percent_text(duration_ns, total_ns)
    return _number(duration_ns, time_text(duration_ns)) + _number(duration_ns, part)


def _number(value: int, text: str) -> str:
    return f'<td class="number" data-value="{value}">{escape(text)}</td>'


def _bar(parts: Mapping[str, int], most_ns: int) -> str:
    pieces = (
        f'<span class="{escape(kind)}" style="width:{100 * duration / most_ns:.3f}%" '
        f'title="{escape(kind)} {time_text(duration)}"></span>'
        for kind, duration in parts.items()
        if duration
    )
    return f'<div class="bar">{"".join(pieces)}</div>'


def _bar_cell(parts: Mapping[str, int], most_ns: int) -> str:
    return f'<td class="track">{_bar(parts, most_ns)}</td>'
