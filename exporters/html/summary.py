"""Owns what report.html says before any script runs: the ledger, and the wall time of each step."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from profiler_ext.exporters import tables
from profiler_ext.exporters.display_text import ledger_label, percent_text, time_text
from profiler_ext.exporters.html.chart import chart, parts_of, device_times_of
from profiler_ext.exporters.html.choices import rank_number
from profiler_ext.exporters.html.links import placed
from profiler_ext.exporters.html.slices import Choices, Slice
from profiler_ext.exporters.html.steps import StepColumn, step_columns
from profiler_ext.exporters.html.words import linked, term_of
from profiler_ext.exporters.idle_texts import cause_sums, top_causes, idle_texts
from profiler_ext.exporters.note_texts import note_texts
from profiler_ext.exporters.roofline_texts import utilisation_texts
from profiler_ext.exporters.skew_texts import skew_texts
from profiler_ext.exporters.table_texts import coverage_lines, records
from profiler_ext.printable import printable
from profiler_ext.records import Analysis, Phase

_FEW_STEPS = 8
_SHOWN_IDLE = 5
Row = Mapping[str, Any]


def notes(analyses: Sequence[Analysis]) -> str:
    """Return what attribution has to say to a person, and of which ranks.

    Args:
        analyses: one for each rank.
    """
    lines = note_texts(analyses)
    return "".join(_section("", "", f"<p>{_text(line)}</p>", "note") for line in lines)


def ledger(chosen: Choices) -> str:
    """Return the wall time of the steps by category, for all that can be chosen.

    Args:
        chosen: what the page can be narrowed to.
    """
    whole = chosen.slices[0]
    if not any(analysis.ledger for analysis in whole.analyses):
        nothing = "<p>No step was profiled, so there is nothing to sum.</p>"
        return _section("ledger", "Ledger", nothing)
    each = (
        f'<div data-slice="{at}"{" hidden" if at else ""}>{_slice_ledger(part, chosen.ranks)}</div>'
        for at, part in enumerate(chosen.slices)
    )
    return _section("ledger", "Ledger", "".join(each))


def _slice_ledger(part: Slice, ranks: Container[int]) -> str:
    if not part.analyses:  # ranks need not have the same steps
        return f"<p>Rank {part.rank} did not profile step {part.step}.</p>"
    return f"{_ledger_table(part)}{_coverage_notes(part, ranks)}"


def _ledger_table(part: Slice) -> str:
    base_ns = part.analyses[0].recording.trace.base_ns
    rows = records(tables.of_ranks(part.analyses, base_ns, "coverage", step=part.step))
    wall = sum(row["duration_ns"] for row in rows)
    causes = top_causes(cause_sums(part.analyses, part.step))
    lines = [_ledger_row(r["duration_ns"], wall, part.spans, _label(r), r["scope"]) for r in rows]
    lines += [_ledger_row(time, wall, part.spans, _glossary_label(words)) for words, time in causes]
    total = _ledger_row(wall, wall, part.spans, "total")
    head = f"<thead><tr>{''.join(_heads(part))}</tr></thead>"
    return f"<table>{head}<tbody>{''.join(lines)}</tbody><tfoot>{total}</tfoot></table>"


def _label(row: Row) -> str:
    return _glossary_label(ledger_label(row), row["category"])


def _glossary_label(text: str, category: str | None = None) -> str:
    return linked(_text(text), term_of(text, category))


def _heads(part: Slice) -> Iterable[str]:
    yield '<th class="name">wall time of the device</th>'
    yield '<th class="number">a step</th>'
    if part.spans > 1:
        of = f"in {part.spans:,} steps" if part.step is None else f"on {part.spans} ranks"
        yield f'<th class="number">{of}</th>'
    yield '<th class="number">of wall time</th><th class="track"></th>'


def _ledger_row(time: int, wall: int, spans: int, label: str, scope: str | None = None) -> str:
    """Return a row of the ledger; one without a scope is a part of the idle time, or the total.

    Args:
        time: nanoseconds.
        wall: of so many.
        spans: steps, or a step's ranks.
        label: what it says, escaped.
        scope: a ``Scope``.
    """
    numbers = [time_text(time / max(spans, 1)), *([time_text(time)] if spans > 1 else [])]
    cells = "".join(f'<td class="number">{n}</td>' for n in (*numbers, percent_text(time, wall)))
    bar = _bar({scope: time}, wall, {scope: time}) if scope else ""
    opened = "<tr>" if scope else '<tr class="quiet part">'
    return f'{opened}<td>{label}</td>{cells}<td class="track">{bar}</td></tr>'


def _coverage_notes(part: Slice, ranks: Container[int]) -> str:
    """Return what else is known of whole ranks: how much is led to lines, waits, utilisation."""
    if part.step is not None:
        return ""
    shown = [each for each in part.analyses if rank_number(each) in ranks]
    texts = (*coverage_lines(part.analyses), *utilisation_texts(shown))
    several = len(part.analyses) > 1
    below = skew_texts(shown) if several else idle_texts(part.analyses[0], _SHOWN_IDLE)
    quiet = "".join(f"<p>{placed(each)}</p>" for each in below)
    return f'<p>{_text(" ".join(texts))}</p><div class="quiet">{quiet}</div>'


def steps(analyses: Sequence[Analysis]) -> str:
    """Return the wall time of each step by phase: a bar for each of few, a chart of many.

    Args:
        analyses: one for each rank.
    """
    shown = {rank: columns for rank, columns in step_columns(analyses).items() if columns}
    if not shown:
        return ""
    most = max(max(c.walls_ns) for columns in shown.values() for c in columns) or 1
    each = (_rank_steps(*item, most, len(analyses) > 1) for item in shown.items())
    legend = _legend([column for columns in shown.values() for column in columns])
    return _section("steps", "Wall time of each step, by phase", legend + "".join(each))


def _rank_steps(rank: int, columns: Sequence[StepColumn], most: int, several: bool) -> str:
    title = f"<h3>rank {rank}</h3>" if several else ""
    few = len(columns) <= _FEW_STEPS and columns[0].first == columns[0].last
    body = "".join(_step_bar(c, most) for c in columns) if few else chart(rank, columns, most)
    return f'<div class="rank" data-rank="{rank}">{title}{body}</div>'


def _step_bar(column: StepColumn, most: int) -> str:
    kinds = (*map(str, Phase), "idle")
    parts = dict(zip(kinds, parts_of(column), strict=True))
    times = dict(zip(kinds, device_times_of(column), strict=True))
    busy = percent_text(column.busy_ns, column.wall_ns)
    text = f"step {column.first}: {time_text(column.wall_ns)}, device busy {busy}"
    return f"<p>{text}</p>{_bar(parts, most, times)}"


def _legend(columns: Sequence[StepColumn]) -> str:
    """Return what the colours are, with the device time of a step."""
    kinds = (*map(str, Phase), "idle")
    times = np.array([device_times_of(column) for column in columns], np.float64)
    means = np.average(times, axis=0, weights=[c.steps for c in columns]).tolist()
    keys = (_legend_key(kind, time) for kind, time in zip(kinds, means, strict=True) if time)
    return f'<p class="legend"><span class="quiet">mean of a step:</span> {"".join(keys)}</p>'


def _legend_key(kind: str, time_ns: float) -> str:
    label = f"{kind.replace('_', ' ')} {time_text(time_ns)}"
    return f'<span><span class="key {kind}"></span>{label}</span>'


def _text(text: str) -> str:
    return escape(printable(text))


def _section(name: str, title: str, body: str, kind: str = "") -> str:
    head = f"<h2>{title}</h2>" if title else ""
    return f'<section id="{name}" class="{kind}">{head}{body}</section>\n'


def _bar(parts: Mapping[str, float], most_ns: int, times: Mapping[str, float]) -> str:
    """Return a bar of parts as long as their wall time, each of which says its device time."""
    pieces = (
        f'<span class="{escape(kind)}" style="width:{100 * duration / most_ns:.3f}%" '
        f'title="{escape(kind.replace("_", " "))} {time_text(times[kind])}"></span>'
        for kind, duration in parts.items()
        if duration
    )
    return f'<div class="bar">{"".join(pieces)}</div>'
