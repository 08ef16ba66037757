"""A session's notebook view: top lines and three sentences; the rest is collapsed.

A notebook puts the text into its own page, so every name is escaped, and styles are inline: none
leaks out, and light and dark themes keep their colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from profiler_ext.exporters import tables
from profiler_ext.exporters.html.elements import Head, TableRow, details, numbered, table, tag, text
from profiler_ext.exporters.table_kinds import BY, table_named
from profiler_ext.exporters.views import findings, summary
from profiler_ext.exporters.views.compiles import compile_text, compile_text_of_ranks
from profiler_ext.exporters.views.formatting import (
    PHASE_STYLES,
    breakdown_label,
    kernel_text,
    labels,
    middle,
    percent_text,
    short_phase,
    time_text,
)
from profiler_ext.exporters.views.idle import cause_sums, idle_texts, straggler_lines, top_causes
from profiler_ext.exporters.views.modules import ModuleNode, module_tree, root_label, tree_rooflines
from profiler_ext.exporters.views.rooflines import roofline_text, utilisation_texts
from profiler_ext.findings import Finding, Findings, find, find_on_ranks
from profiler_ext.records import recording, vocabulary
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.step_kinds import of_usual_kind

_TOP = 10
_SHOWN_IDLE = 3
_DEPTH = 4
_MAX_CHARS = 64
# The phases with a column of their own; a page of 1,000 px has no room for more.
_COLUMNS = (vocabulary.Phase.FORWARD, vocabulary.Phase.BACKWARD, vocabulary.Phase.RECOMPUTE)
_CUT = "max-width:max(15em,100vw - 62em);overflow:hidden;text-overflow:ellipsis;white-space:nowrap"
_ROOFLINE_HEADS = ("roofline", "max saving")
_STYLES = {
    None: "text-align:left",
    "what": "text-align:left;font-family:monospace;padding:.3em .4em",
    "number": "text-align:right;white-space:nowrap;padding:.3em .4em",
}
Row = Mapping[str, Any]


def session_html(analyses: Sequence[Analysis]) -> str:
    """Return a session as HTML: the top lines, and what to change first.

    Recommendations, breakdown, modules (a tree), kernels and notes are collapsed. Times are per
    step.
    """
    line = (
        summary.heading(analyses[0]) if len(analyses) == 1 else summary.heading_of_ranks(analyses)
    )
    recommendations = _recommendations(analyses)
    return tag(
        "div",
        tag("p", tag("b", text(line))),
        _top_lines(analyses),
        *_sentences(analyses, recommendations),
        _findings(analyses, recommendations),
        _breakdown(analyses),
        _modules(analyses),
        _kernels(analyses),
        _notes(summary.note_texts(analyses)),
    )


def _sentences(analyses: Sequence[Analysis], result: Findings | None) -> Iterator[str]:
    """Yield the top recommendation, and where the time of a step goes."""
    rows = _rows(analyses, "coverage")
    if not rows:
        yield tag("p", "No step was profiled, so there is nothing to sum.")
        return
    if result is not None and result.ranked:
        top = result.ranked[0]
        what = text(findings.what_text(top))
        yield tag("p", f"Top recommendation: {_at_stake(top)} {what}")
    wall = sum(row["duration_ns"] for row in rows)
    parts = (
        f"{breakdown_label(row)} {percent_text(row['duration_ns'], wall)}"
        for row in sorted(rows, key=lambda row: -row["duration_ns"])
    )
    yield tag("p", text(f"Recorded step {time_text(wall / _spans(analyses))}: {'; '.join(parts)}"))


def _notes(notes: Sequence[str]) -> str:
    paragraphs = [tag("p", text(f"note: {note}")) for note in notes]
    if len(paragraphs) < 2:
        return "".join(paragraphs)
    return details(f"{len(paragraphs)} notes", "".join(paragraphs))


def _rows(analyses: Sequence[Analysis], name: str) -> list[dict[str, Any]]:
    """Return the rows of a table, summed over ranks where there are several."""
    if len(analyses) == 1:
        return summary.records(table_named(name).make(analyses[0]))
    return summary.records(tables.of_ranks(analyses, analyses[0].recording.trace.base_ns, name))


def _spans(analyses: Sequence[Analysis]) -> int:
    """Return the number of rank steps that sums cover."""
    return max(sum(len(of_usual_kind(each).steps) for each in analyses), 1)


def _recommendations(analyses: Sequence[Analysis]) -> Findings | None:
    if not any(analysis.steps for analysis in analyses):
        return None
    return find(analyses[0]) if len(analyses) == 1 else find_on_ranks(analyses)


def _findings(analyses: Sequence[Analysis], result: Findings | None) -> str:
    if result is None:
        return ""
    settings = analyses[0].recording.settings
    items = [_finding(each, settings) for each in result.ranked[: findings.MAX_ON_PAGE]]
    listed = numbered(items, findings.SHOWN, len(result.ranked), "session.findings()")
    title = text(findings.findings_heading(result))
    return details(title, listed) if items else tag("p", title)


def _at_stake(finding: Finding) -> str:
    time, part = findings.saving_texts(finding)
    return f"<b>{time} {part}</b>"


def _finding(finding: Finding, settings: recording.Settings) -> str:
    lines = (
        f"{_at_stake(finding)} {text(findings.what_text(finding))}",
        text(findings.where_text(finding.location, settings)),
        text(findings.why_text(finding)),
        f"Try: {text(finding.remedy)}",
    )
    return tag("li", "<br>".join(filter(None, lines)))


def _breakdown(analyses: Sequence[Analysis]) -> str:
    rows = _rows(analyses, "coverage")
    if not rows:
        return ""
    wall, spans = sum(row["duration_ns"] for row in rows), _spans(analyses)
    lines = [
        _breakdown_row(row["duration_ns"], wall, spans, text(breakdown_label(row))) for row in rows
    ]
    for words, duration_ns in top_causes(cause_sums(analyses)):
        lines.append(_breakdown_row(duration_ns, wall, spans, f"&emsp;{text(words)}"))
    lines.append(_breakdown_row(wall, wall, spans, "total"))
    waits = straggler_lines(analyses) if len(analyses) > 1 else idle_texts(analyses[0], _SHOWN_IDLE)
    placed = (each.text for each in waits)
    compiled = compile_text_of_ranks(analyses) if len(analyses) > 1 else compile_text(analyses[0])
    sentences = (*summary.coverage_lines(analyses), *utilisation_texts(analyses), *placed)
    sentences = (*sentences, *summary.peak_texts(analyses))
    every = sentences if compiled is None else (*sentences, compiled)
    below = "".join(tag("p", text(sentence)) for sentence in every)
    heads = Head("account"), *_numbers("time/step", "% wall")
    return details("Step time breakdown", _table(heads, lines) + below)


def _breakdown_row(duration_ns: int, wall_ns: int, spans: int, label: str) -> tuple[str, ...]:
    return label, time_text(duration_ns / spans), percent_text(duration_ns, wall_ns)


def _top_lines(analyses: Sequence[Analysis]) -> str:
    rows = _rows(analyses, "by_line")
    if not rows:
        return ""
    spent = [phase for phase in vocabulary.Phase if any(row[phase] for row in rows)]
    phases = [[phase] for phase in spent if phase in _COLUMNS]
    rest = [phase for phase in spent if phase not in _COLUMNS]
    names = [short_phase(phase) for [phase] in phases]
    if rest:
        phases.append(rest)
        names.append(short_phase(rest[0]) if len(rest) == 1 else "other")
    heads = (
        Head("line", "what"),
        *_numbers("time/step", "% busy", *names, *_ROOFLINE_HEADS),
    )
    total = sum(row["duration_ns"] for row in rows)
    lines = [_line(analyses, row, total, phases) for row in rows[:_TOP]]
    return _table(heads, lines) + _more(rows)


def _more(rows: Sequence[Row]) -> str:
    return tag("p", f"and {len(rows) - _TOP} more") if len(rows) > _TOP else ""


def _line(
    analyses: Sequence[Analysis],
    row: Row,
    total_ns: int,
    phases: Sequence[Sequence[vocabulary.Phase]],
) -> tuple[str, ...]:
    names, spans = labels(BY["line"], row, analyses[0].recording.settings), _spans(analyses)
    name = tag("div", "<br>".join(map(text, filter(None, names))), style=_CUT)
    pieces = (
        tag("div", style=f"width:{part:.1f}%;background:{PHASE_STYLES[phase]}")
        for phase in vocabulary.Phase
        if (part := 100 * row[phase] / max(total_ns, 1))
    )
    bar = tag("div", *pieces, style="display:flex;width:4em;height:.8em")
    percent = percent_text(row["duration_ns"], total_ns) + bar
    of_phases = (_of_step(sum(row[phase] for phase in each), spans) for each in phases)
    numbers = (_of_step(row["duration_ns"], spans), percent, *of_phases)
    return (name, *numbers, *_roofline_cells(analyses, row))


def _roofline_cells(analyses: Sequence[Analysis], row: Row) -> tuple[str, ...]:
    return roofline_text(row), _of_step(row["could_save_ns"] or 0, _spans(analyses))


def _of_step(duration_ns: int, spans: int) -> str:
    return time_text(duration_ns / spans) if duration_ns else ""


def _modules(analyses: Sequence[Analysis]) -> str:
    rows = [row for row in _rows(analyses, "by_module") if row["module"] is not None]
    if not rows:
        return ""
    own: dict[str, int] = {}
    for row in rows:
        own[row["module"]] = own.get(row["module"], 0) + row["duration_ns"]
    tree = module_tree(own, {row["module"]: row["module_class"] for row in rows})
    spans, rooflines = _spans(analyses), tree_rooflines(rows)
    root = root_label(analyses[0].recording.settings.models)
    lines = [
        (
            *_module(node, root, depth, tree.inclusive_ns, spans),
            *_roofline_cells(analyses, rooflines[node.path]),
        )
        for node, depth in _walk(tree, 0)
    ]
    heads = Head("module", "what"), *_numbers("time/step", "% modules", *_ROOFLINE_HEADS)
    return details("Modules", _table(heads, lines))


def _walk(node: ModuleNode, depth: int) -> Iterator[tuple[ModuleNode, int]]:
    yield node, depth
    for each in node.below if depth < _DEPTH else ():
        yield from _walk(each, depth + 1)


def _module(node: ModuleNode, root: str, depth: int, whole_ns: int, spans: int) -> tuple[str, ...]:
    several = f" \N{MULTIPLICATION SIGN}{node.modules}" if node.modules > 1 else ""
    name = f"{node.path or root}{several}"
    marks = (
        f"; {each.path} {time_text(each.inclusive_ns / spans)}, of a median of "
        f"{time_text(each.median_ns / spans)}"
        for each in node.outliers
    )
    label = f"{text(name)} {text(node.module_class or '')}{text(''.join(marks))}"
    part = percent_text(node.inclusive_ns, whole_ns)
    return f"{'&emsp;' * depth}{label}", time_text(node.inclusive_ns / spans), part


def _kernels(analyses: Sequence[Analysis]) -> str:
    rows = _rows(analyses, "by_kernel")
    if not rows:
        return ""
    heads = Head("kernel", "what"), *_numbers("time/step", "% busy", "launches", *_ROOFLINE_HEADS)
    total = sum(row["duration_ns"] for row in rows)
    lines = [_kernel(analyses, row, total) for row in rows[:_TOP]]
    return details("Kernels", _table(heads, lines) + _more(rows))


def _kernel(analyses: Sequence[Analysis], row: Row, total_ns: int) -> tuple[str, ...]:
    name = middle(kernel_text(row), _MAX_CHARS)
    time = _of_step(row["duration_ns"], _spans(analyses))
    part = percent_text(row["duration_ns"], total_ns)
    return text(name), time, part, f"{row['launches']:,}", *_roofline_cells(analyses, row)


def _numbers(*titles: str) -> Iterator[Head]:
    return (Head(title, "number") for title in titles)


def _table(heads: Sequence[Head], rows: Iterable[Sequence[str]]) -> str:
    made = table(heads, map(TableRow, rows), styles=_STYLES)
    return tag("div", made, style="overflow-x:auto")
