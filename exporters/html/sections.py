"""The sections of report.html without script: findings, breakdown, steps, collectives, compiles."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from profiler_ext.exporters import tables
from profiler_ext.exporters.html.elements import (
    Head,
    TableRow,
    bar,
    details,
    numbered,
    quiet,
    section,
    table,
    tag,
    text,
)
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
    saving_texts,
    skipped_rules_lines,
    what_text,
    why_text,
)
from profiler_ext.exporters.views.formatting import (
    breakdown_label,
    labels,
    percent_text,
    short_path,
    time_text,
)
from profiler_ext.exporters.views.idle import cause_sums, idle_texts, straggler_lines, top_causes
from profiler_ext.exporters.views.rooflines import utilisation_texts
from profiler_ext.exporters.views.summary import coverage_lines, note_texts, records
from profiler_ext.findings import Finding, Location, find, find_on_ranks
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.compiles import CompilePhase
from profiler_ext.records.recording import Settings
from profiler_ext.records.step_kinds import of_usual_kind
from profiler_ext.records.vocabulary import Phase

_SHOWN = 20
_TIME_COLUMNS = {
    "a step": "duration_ns",
    "exposed": "exposed_ns",
    "overlapped": "overlapped_ns",
    "waiting": "waiting_ns",
}
Row = Mapping[str, Any]
_FEW_STEPS = 8
_SHOWN_IDLE = 5


def findings(analyses: Sequence[Analysis]) -> str:
    """Return the top recommendations; the rest, and skipped checks, are collapsed."""
    if not any(analysis.steps for analysis in analyses):
        return ""
    result = find(analyses[0]) if len(analyses) == 1 else find_on_ranks(analyses)
    settings = analyses[0].recording.settings
    items = [_finding_item(each, settings) for each in result.ranked[:MAX_ON_PAGE]]
    listed = numbered(items, SHOWN, len(result.ranked), "profiler-ext report --findings")
    unjudged = "".join(tag("p", text(line)) for line in skipped_rules_lines(result))
    skipped = details("rules that could not be judged", unjudged) if unjudged else ""
    return section("findings", findings_heading(result), listed + skipped)


def _finding_item(finding: Finding, settings: Settings) -> str:
    time, part = saving_texts(finding)
    links = " · ".join(place_links(finding.location, settings))
    return tag(
        "li",
        tag("p", f"<b>{time}</b> <b>{part}</b> {text(what_text(finding))}"),
        tag("p", links) if links else "",
        quiet(why_text(finding)),
        tag("p", f"Try: {text(finding.remedy)}"),
        rule_details(finding.rule),
    )


def place_links(where: Location, settings: Settings) -> list[str]:
    """Return the parts of a location as links within the page."""
    line = None if where.file is None else f"{short_path(where.file, settings)}:{where.line}"
    kernel = where.kernel and kernel_name(where.kernel)
    named = (
        ("line", line, line),
        ("module", where.module, where.module),
        ("kernel", where.kernel, kernel),
    )
    parts = [link(kind, name, shown) for kind, name, shown in named if name and shown]
    if where.graph:
        parts.append(text(f"compile {where.graph}"))
    if where.code:
        parts.append(tag("code", text(where.code.strip())))
    return parts


def communication(analyses: Sequence[Analysis]) -> str:
    """Return the collectives, mean per rank step; nothing where none ran."""
    rows = records(tables.of_ranks(analyses, 0, "communication"))
    if not rows:
        return ""
    shown = {
        head: name
        for head, name in _TIME_COLUMNS.items()
        if any(row[name] is not None for row in rows)
    }
    settings = analyses[0].recording.settings
    columns = *map(Head, ("collective", "process group", "line")), *_number_heads(shown)
    body = table(columns, (_collective_row(r, shown.values(), settings) for r in rows[:_SHOWN]))
    rest = len(rows) - _SHOWN
    more = quiet(f"{rest} more: profiler-ext report --by communication") if rest > 0 else ""
    return section("communication", "Communication", body + more)


def _number_heads(titles: Iterable[str]) -> Iterable[Head]:
    return (Head(title, "number") for title in titles)


def _collective_row(row: Row, names: Collection[str], settings: Settings) -> TableRow:
    collective, line = labels(table_named("communication"), row, settings)
    code = quiet(row["code"], "div") if row["code"] else ""
    of_steps = row["steps"] * row.get("ranks", 1)
    known = ((row[name], of_steps) for name in names)
    times = ("unknown" if time is None else time_text(time / steps) for time, steps in known)
    place = text(line) if row["file"] is None else link("line", line)
    named = text(collective), text(row["process_group"] or "unknown"), place + code
    return TableRow((*named, *times))


def compiles(analyses: Sequence[Analysis]) -> str:
    """Return the compilations; nothing where none is known."""
    analysis, *others = analyses
    summary_text = compile_text_of_ranks(analyses) if others else compile_text(analysis)
    if summary_text is None:
        return ""
    rows = records(tables.compiles(analysis))
    phases = phases_of(rows)
    first, rest = rows[:_SHOWN], rows[_SHOWN:]
    settings = analysis.recording.settings
    body = tag("p", text(summary_text)) + _compile_table(first, phases, settings)
    if rest:
        body += details(f"{len(rest)} more", _compile_table(rest, phases, settings))
    where = f" (each compilation: of rank {analysis.recording.settings.rank})" if others else ""
    return section("compiles", f"What torch compiled{where}", body)


def _compile_table(rows: Sequence[Row], phases: Sequence[CompilePhase], settings: Settings) -> str:
    heads = Head("function"), *_number_heads(("time", *(HEADS[phase] for phase in phases)))
    return table(heads, (_compile_row(row, phases, settings) for row in rows))


def _compile_row(row: Row, phases: Sequence[CompilePhase], settings: Settings) -> TableRow:
    spent = (row["compile_ns"], *(row[f"{phase}_ns"] for phase in phases))
    below = "".join(quiet(each, "div") for each in detail_texts(row, settings))
    times = (time_text(each) if each else "" for each in spent)
    return TableRow((text(name_text(row, settings)) + below, *times))


def notes(analyses: Sequence[Analysis]) -> str:
    """Return attribution's notes for the user, and their ranks."""
    lines = note_texts(analyses)
    return "".join(section(None, "", tag("p", text(line)), "note") for line in lines)


def breakdown(chosen: Choices) -> str:
    """Return the step time breakdown of every slice."""
    whole = chosen.slices[0]
    if not any(analysis.breakdown for analysis in whole.analyses):
        nothing = tag("p", "No step was profiled, so there is nothing to sum.")
        return section("breakdown", "Step time breakdown", nothing)
    each = (
        tag(
            "div",
            _slice_breakdown(part, chosen.ranks),
            data_slice=str(at),
            hidden="" if at else None,
        )
        for at, part in enumerate(chosen.slices)
    )
    return section("breakdown", "Step time breakdown", "".join(each))


def _slice_breakdown(part: Slice, ranks: Container[int]) -> str:
    if not part.analyses:  # ranks need not have the same steps
        return tag("p", f"Rank {part.rank} did not profile step {part.step}.")
    coverage_notes = tag("div", _coverage_notes(part, ranks))
    return tag("div", _breakdown_table(part), coverage_notes, class_="breakdown-parts")


def _breakdown_table(part: Slice) -> str:
    base_ns = part.analyses[0].recording.trace.base_ns
    rows = records(tables.of_ranks(part.analyses, base_ns, "coverage", step=part.step))
    wall = sum(row["duration_ns"] for row in rows)
    causes = top_causes(cause_sums(part.analyses, part.step))
    labelled = [(row, _glossary_label(breakdown_label(row), row["category"])) for row in rows]
    lines = [_breakdown_row(r["duration_ns"], wall, part.spans, s, r["scope"]) for r, s in labelled]
    lines += [
        _breakdown_row(time, wall, part.spans, _glossary_label(words)) for words, time in causes
    ]
    total = _breakdown_row(wall, wall, part.spans, "total")
    return table(tuple(_breakdown_heads(part)), lines, total)


def _glossary_label(label: str, category: str | None = None) -> str:
    return linked(text(label), term_of(label, category))


def _breakdown_heads(part: Slice) -> Iterable[Head]:
    yield Head("what the device did")
    yield Head("time/step" if part.spans > 1 and part.step is None else "time", "number")
    if part.spans > 1:
        of = f"in {part.spans:,} steps" if part.step is None else f"on {part.spans} ranks"
        yield Head(of, "number")
    yield Head("% of step", "number")
    yield Head("part of the step", "track")


def _breakdown_row(
    time: int, wall: int, spans: int, label: str, scope: str | None = None
) -> TableRow:
    """Return a breakdown row; without a scope it is part of idle time, or the total."""
    times = time_text(time / max(spans, 1)), *([time_text(time)] if spans > 1 else [])
    track = _time_bar({scope: time}, wall, {scope: time}) if scope else ""
    cells = label, *times, percent_text(time, wall), track
    return TableRow(cells, None if scope else "quiet part")


def _coverage_notes(part: Slice, ranks: Container[int]) -> str:
    """Return sentences on whole ranks: coverage, waits, utilisation."""
    if part.step is not None:
        return ""
    shown = [each for each in part.analyses if rank_number(each) in ranks]
    texts = (*coverage_lines(part.analyses), *utilisation_texts(shown))
    several = len(part.analyses) > 1
    below = straggler_lines(shown) if several else idle_texts(part.analyses[0], _SHOWN_IDLE)
    waits = (tag("p", placed(each)) for each in below)
    return tag("p", text(" ".join(texts))) + tag("div", *waits, class_="quiet")


def steps(analyses: Sequence[Analysis]) -> str:
    """Return each step's wall time by phase: bars for a few steps, else a chart."""
    shown = {rank: columns for rank, columns in step_columns(analyses).items() if columns}
    if not shown:
        return ""
    most = max(max(c.walls_ns) for columns in shown.values() for c in columns) or 1
    each = (_rank_steps(*item, most, len(analyses) > 1) for item in shown.items())
    usual = step_columns([*map(of_usual_kind, analyses)])
    legend = _legend([column for columns in usual.values() for column in columns])
    return section("steps", "Wall time of each step, by phase", legend + "".join(each))


def _rank_steps(rank: int, columns: Sequence[StepColumn], most: int, several: bool) -> str:
    title = tag("h3", f"rank {rank}") if several else ""
    few = len(columns) <= _FEW_STEPS and columns[0].first == columns[0].last
    body = "".join(_step_bar(c, most) for c in columns) if few else chart(rank, columns, most)
    return tag("div", title, body, class_="rank", data_rank=str(rank))


def _step_bar(column: StepColumn, most: int) -> str:
    kinds = (*map(str, Phase), "idle")
    parts = dict(zip(kinds, parts_of(column), strict=True))
    times = dict(zip(kinds, device_times_of(column), strict=True))
    busy = percent_text(column.busy_ns, column.wall_ns)
    line = f"step {column.first}: {time_text(column.wall_ns)}, device busy {busy}"
    head = tag("p", line, class_="step", data_step=str(column.first))
    return head + _time_bar(parts, most, times)


def _legend(columns: Sequence[StepColumn]) -> str:
    """Return the colour legend, with mean device times."""
    kinds = (*map(str, Phase), "idle")
    times = np.array([device_times_of(column) for column in columns], np.float64)
    means = np.average(times, axis=0, weights=[c.steps for c in columns]).tolist()
    keys = (
        tag("span", tag("span", class_=f"key {kind}"), _kind_time(kind, time))
        for kind, time in zip(kinds, means, strict=True)
        if time
    )
    return tag("p", quiet("mean of a step:", "span"), " ", *keys, class_="legend")


def _kind_time(kind: str, time_ns: float) -> str:
    return f"{kind.replace('_', ' ')} {time_text(time_ns)}"


def _time_bar(parts: Mapping[str, float], most_ns: int, times: Mapping[str, float]) -> str:
    """Return a bar scaled by wall time, with device times as titles."""
    return bar(parts, most_ns, {kind: _kind_time(kind, time) for kind, time in times.items()})
