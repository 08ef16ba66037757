"""The sections of report.html that need no script.

Findings, ledger, steps, collectives, compilations.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from profiler_ext.exporters import tables
from profiler_ext.exporters.html.links import link, linked, placed, rule_details, term_of
from profiler_ext.exporters.html.slices import Choices, Slice, rank_number
from profiler_ext.exporters.html.steps import (
    StepColumn,
    chart,
    device_times_of,
    parts_of,
    step_columns,
)
from profiler_ext.exporters.table_kinds import table_named
from profiler_ext.exporters.terminal.tables import HEADS, phases_of
from profiler_ext.exporters.views.compiles import (
    compile_text,
    compile_text_of_ranks,
    detail_texts,
    name_text,
)
from profiler_ext.exporters.views.findings import (
    MAX_ON_PAGE,
    SHOWN,
    findings_heading,
    kernel_name,
    skipped_rules_lines,
    time_at_stake_texts,
    what_text,
    why_text,
)
from profiler_ext.exporters.views.formatting import (
    labels,
    ledger_label,
    percent_text,
    short_path,
    time_text,
)
from profiler_ext.exporters.views.idle import cause_sums, idle_texts, straggler_lines, top_causes
from profiler_ext.exporters.views.rooflines import utilisation_texts
from profiler_ext.exporters.views.summary import coverage_lines, note_texts, records
from profiler_ext.findings import Finding, Location, find, find_on_ranks
from profiler_ext.printable import printable
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.compiles import CompilePhase
from profiler_ext.records.recording import Settings
from profiler_ext.records.vocabulary import Phase


def findings(analyses: Sequence[Analysis]) -> str:
    """Return what to do first; the rest, and what could not be judged, can be opened."""
    if not any(analysis.steps for analysis in analyses):
        return ""
    result = find(analyses[0]) if len(analyses) == 1 else find_on_ranks(analyses)
    settings = analyses[0].recording.settings
    items = [_finding_item(each, settings) for each in result.found[:MAX_ON_PAGE]]
    shown = f"<ol>{''.join(items[:SHOWN])}</ol>" if items else ""
    more = _more_findings("".join(items[SHOWN:]), len(result.found))
    unjudged = "".join(f"<p>{escape(line)}</p>" for line in skipped_rules_lines(result))
    skipped = _details_html("rules that could not be judged", unjudged) if unjudged else ""
    title = escape(findings_heading(result))
    return f'<section id="findings"><h2>{title}</h2>{shown}{more}{skipped}</section>\n'


def _more_findings(rest: str, found: int) -> str:
    """Return what is behind a key; of very many findings how all are seen."""
    numbered = f'<ol start="{SHOWN + 1}">{rest}</ol>'
    if found > MAX_ON_PAGE:
        numbered += f"<p>and {found - MAX_ON_PAGE:,} more: profiler-ext report --findings</p>"
    return _details_html(f"{found - SHOWN:,} more", numbered) if rest else ""


def _finding_item(finding: Finding, settings: Settings) -> str:
    time, part = time_at_stake_texts(finding)
    head = f"<b>{time}</b> <b>{part}</b> {_text(what_text(finding))}"
    links = " · ".join(place_links(finding.where, settings))
    place = f"<p>{links}</p>" if links else ""
    why = f'<p class="quiet">{_text(why_text(finding))}</p>'
    means = rule_details(finding.rule)
    return f"<li><p>{head}</p>{place}{why}<p>Try: {_text(finding.remedy)}</p>{means}</li>"


def place_links(where: Location, settings: Settings) -> list[str]:
    """Return the parts of a place, each as a link to where the page shows it."""
    line = None if where.file is None else f"{short_path(where.file, settings)}:{where.line}"
    kernel = where.kernel and kernel_name(where.kernel)
    named = (
        ("line", line, line),
        ("module", where.module, where.module),
        ("kernel", where.kernel, kernel),
    )
    parts = [link(kind, name, shown) for kind, name, shown in named if name and shown]
    if where.graph:
        parts.append(_text(f"compile {where.graph}"))
    if where.code:
        parts.append(f"<code>{_text(where.code.strip())}</code>")
    return parts


def _details_html(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>{body}</details>"


def _text(text: str) -> str:
    return escape(printable(text))


_SHOWN = 20
_TIME_COLUMNS = {
    "a step": "duration_ns",
    "exposed": "exposed_ns",
    "overlapped": "overlapped_ns",
    "waiting": "waiting_ns",
}
Row = Mapping[str, Any]


def communication(analyses: Sequence[Analysis]) -> str:
    """Return what collectives took; nothing where none ran.

    Args:
        analyses: one for each rank; of several it is the mean of a rank.
    """
    rows = records(tables.of_ranks(analyses, 0, "communication"))
    if not rows:
        return ""
    shown = {
        head: name
        for head, name in _TIME_COLUMNS.items()
        if any(row[name] is not None for row in rows)
    }
    settings = analyses[0].recording.settings
    heads = "".join(f'<th class="number">{escape(each)}</th>' for each in shown)
    named = f"<thead><tr><th>collective</th><th>process group</th><th>line</th>{heads}</tr></thead>"
    body = "".join(_collective_row(row, shown.values(), settings) for row in rows[:_SHOWN])
    rest = len(rows) - _SHOWN
    more = f'<p class="quiet">{rest} more: profiler-ext report --by communication</p>'
    table = f"<table>{named}<tbody>{body}</tbody></table>{more if rest > 0 else ''}"
    return f'<section id="communication"><h2>Communication</h2>{table}</section>\n'


def _collective_row(row: Row, names: Collection[str], settings: Settings) -> str:
    collective, line = labels(table_named("communication"), row, settings)
    code = f'<div class="quiet">{_text(row["code"])}</div>' if row["code"] else ""
    of_steps = row["steps"] * row.get("ranks", 1)
    times = (None if row[name] is None else row[name] / of_steps for name in names)
    cells = "".join(f'<td class="number">{_time_or_unknown(each)}</td>' for each in times)
    group = row["process_group"] or "not told"
    place = _text(line) if row["file"] is None else link("line", line)
    shown = f"<td>{_text(collective)}</td><td>{_text(group)}</td><td>{place}{code}</td>"
    return f"<tr>{shown}{cells}</tr>"


def _time_or_unknown(time_ns: float | None) -> str:
    """A time; of a group that is not whole nobody knows how long it waited."""
    return "not told" if time_ns is None else time_text(time_ns)


def compiles(analyses: Sequence[Analysis]) -> str:
    """Return what compiling took; nothing where no compilation is known."""
    analysis, *others = analyses
    summary_text = compile_text_of_ranks(analyses) if others else compile_text(analysis)
    if summary_text is None:
        return ""
    rows = records(tables.compiles(analysis))
    phases = phases_of(rows)
    first, rest = rows[:_SHOWN], rows[_SHOWN:]
    settings = analysis.recording.settings
    more = _more_details(len(rest), _compile_table(rest, phases, settings)) if rest else ""
    body = f"<p>{_text(summary_text)}</p>{_compile_table(first, phases, settings)}{more}"
    where = f" (each compilation: of rank {analysis.recording.settings.rank})" if others else ""
    return f'<section id="compiles"><h2>What torch compiled{where}</h2>{body}</section>\n'


def _compile_table(rows: Sequence[Row], phases: Sequence[CompilePhase], settings: Settings) -> str:
    heads = ("time", *(HEADS[phase] for phase in phases))
    head = "".join(f'<th class="number">{escape(each)}</th>' for each in heads)
    body = "".join(_compile_row(row, phases, settings) for row in rows)
    named = f"<thead><tr><th>function</th>{head}</tr></thead>"
    return f"<table>{named}<tbody>{body}</tbody></table>"


def _compile_row(row: Row, phases: Sequence[CompilePhase], settings: Settings) -> str:
    spent = (row["compile_ns"], *(row[f"{phase}_ns"] for phase in phases))
    cells = "".join(f'<td class="number">{time_text(each) if each else ""}</td>' for each in spent)
    details = "".join(
        f'<div class="quiet">{_text(each)}</div>' for each in detail_texts(row, settings)
    )
    return f"<tr><td>{_text(name_text(row, settings))}{details}</td>{cells}</tr>"


def _more_details(count: int, body: str) -> str:
    return f"<details><summary>{count} more</summary>{body}</details>"


_FEW_STEPS = 8
_SHOWN_IDLE = 5


def notes(analyses: Sequence[Analysis]) -> str:
    """Return what attribution has to say to a person, and of which ranks."""
    lines = note_texts(analyses)
    return "".join(_section("", "", f"<p>{_text(line)}</p>", "note") for line in lines)


def ledger(chosen: Choices) -> str:
    """Return the wall time of the steps by category, for all that can be chosen."""
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
    """Return a row of the ledger; one without a scope is a part of the idle time, or the total."""
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
    below = straggler_lines(shown) if several else idle_texts(part.analyses[0], _SHOWN_IDLE)
    quiet = "".join(f"<p>{placed(each)}</p>" for each in below)
    return f'<p>{_text(" ".join(texts))}</p><div class="quiet">{quiet}</div>'


def steps(analyses: Sequence[Analysis]) -> str:
    """Return the wall time of each step by phase: a bar for each of few, a chart of many."""
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
