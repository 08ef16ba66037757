"""Owns what report.html says before any script runs: the ledger and a bar for each step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from profiler_ext.exporters import tables
from profiler_ext.exporters.display_text import (
    led_texts,
    ledger_label,
    percent_text,
    records,
    step_text,
    time_text,
)
from profiler_ext.exporters.idle_texts import cause_parts, idle_texts
from profiler_ext.exporters.roofline_texts import utilisation_texts
from profiler_ext.printable import printable
from profiler_ext.records import Analysis, Phase, Step

_SHOWN_STEPS = 12
_SHOWN_IDLE = 5
Row = Mapping[str, Any]


def notes(analysis: Analysis) -> str:
    """Return what attribution has to say to a person."""
    return "".join(_section("", "", f"<p>{_text(note)}</p>", "note") for note in analysis.notes)


def ledger(analysis: Analysis) -> str:
    """Return the wall time of the steps by category, and where the CPU was while it idled."""
    rows = records(tables.coverage(analysis))
    if not rows:
        nothing = "<p>No step was profiled, so there is nothing to sum.</p>"
        return _section("ledger", "Ledger", nothing)
    wall = sum(row["duration_ns"] for row in rows)
    most = max(row["duration_ns"] for row in rows)
    lines = "".join(_ledger_row(row, wall, most) for row in rows)
    causes = cause_parts(tables.idle_by_cause(analysis))
    lines += "".join(_cause_row(words, duration_ns, wall) for words, duration_ns in causes)
    total = f"<tr>{_time_cells(wall, wall)}<td></td><td>total</td></tr>"
    idle = "".join(f"<p>{_text(text)}</p>" for text in idle_texts(analysis, _SHOWN_IDLE))
    said = (*led_texts([analysis]), *utilisation_texts([analysis]))
    summary = f"<p>{_text(' '.join(said))}</p>"
    table = f"<table>{_LEDGER_HEAD}<tbody>{lines}</tbody><tfoot>{total}</tfoot></table>"
    return _section("ledger", "Ledger", f'{table}{summary}<div class="quiet">{idle}</div>')


def steps(analysis: Analysis) -> str:
    """Return a bar by phase for each of the first steps."""
    if not analysis.steps:
        return ""
    shown = analysis.steps[:_SHOWN_STEPS]
    spent = [_phase_times(analysis, step) for step in shown]
    most = max(sum(parts.values()) for parts in spent)
    pairs = zip(shown, spent, strict=True)
    bars = "".join(f"<p>{_text(step_text(analysis, s))}</p>{_bar(p, most)}" for s, p in pairs)
    rest = len(analysis.steps) - len(shown)
    more = f'<p class="quiet">and {rest} more steps</p>' if rest else ""
    return _section("steps", "Device time of each step by phase", _legend(spent) + bars + more)


_LEDGER_HEAD = (
    '<thead><tr><th class="number">time</th><th class="number">part</th><th></th>'
    '<th class="name">wall time of the steps</th></tr></thead>'
)


def _ledger_row(row: Row, wall: int, most: int) -> str:
    bar = f'<td class="track">{_bar({row["scope"]: row["duration_ns"]}, most)}</td>'
    label = f"<td>{_text(ledger_label(row))}</td>"
    return f"<tr>{_time_cells(row['duration_ns'], wall)}{bar}{label}</tr>"


def _cause_row(words: str, duration_ns: int, wall: int) -> str:
    cells = _time_cells(duration_ns, wall)
    return f'<tr class="quiet">{cells}<td></td><td>&emsp;{_text(words)}</td></tr>'


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


def _text(text: str) -> str:
    return escape(printable(text))


def _section(name: str, title: str, body: str, kind: str = "") -> str:
    head = f"<h2>{title}</h2>" if title else ""
    return f'<section id="{name}" class="{kind}">{head}{body}</section>\n'


def _time_cells(duration_ns: int, total_ns: int) -> str:
    texts = (time_text(duration_ns), percent_text(duration_ns, total_ns))
    return "".join(f'<td class="number">{text}</td>' for text in texts)


def _bar(parts: Mapping[str, int], most_ns: int) -> str:
    pieces = (
        f'<span class="{escape(kind)}" style="width:{100 * duration / most_ns:.3f}%" '
        f'title="{escape(kind)} {time_text(duration)}"></span>'
        for kind, duration in parts.items()
        if duration
    )
    return f'<div class="bar">{"".join(pieces)}</div>'
