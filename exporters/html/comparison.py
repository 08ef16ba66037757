"""The page of a comparison: summary, tables, changed fusions.

It has no script: tables are ``<details>``, and the browser's own search finds everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from profiler_ext.comparison.comparison import BY, Comparison
from profiler_ext.comparison.gate import Evaluation, Gate, Result
from profiler_ext.comparison.notes import notes
from profiler_ext.comparison.records import Row, Table, Verdict
from profiler_ext.comparison.tables import TABLES
from profiler_ext.exporters.diff.gate import gate_text, judged_text, line_text, shown_of
from profiler_ext.exporters.diff.terminal import fusion_texts
from profiler_ext.exporters.diff.texts import (
    change_text,
    count_text,
    details_text,
    device_rows,
    idle_rows,
    memory_rows,
    memory_text,
    row_texts,
    shown_rows,
    side_text,
    signed,
    total_texts,
)
from profiler_ext.exporters.html.elements import (
    Head,
    TableRow,
    folding_section,
    quiet,
    section,
    table,
    tag,
    text,
)
from profiler_ext.exporters.html.template import render_page, resource, write_page
from profiler_ext.records.vocabulary import Scope

_MAX_ROWS = 500
_MOVED = "moved"
_DEVICE_SCOPES = (Scope.COMPILED, Scope.EAGER)
_HEADS = {"breakdown": "what the device did"}
# What colours mean: better and worse only. Work that is elsewhere now is neither.
_LEGEND = (
    (Verdict.SLOWER, "slower"),
    (Verdict.FASTER, "faster"),
    (_MOVED, "moved, new or gone"),
    (Verdict.NOT_SIGNIFICANT, "not significant"),
)
_OPEN = ("breakdown", "line")


def export_comparison(comparison: Comparison, path: Path, gate: Gate | None = None) -> Path:
    """Write a comparison as one self-contained page."""
    return write_page(path, comparison_page(comparison, gate))


def comparison_page(comparison: Comparison, gate: Gate | None = None) -> str:
    """Return a comparison as a page; every name is escaped."""
    names = [run.name for side in comparison.matched.sides for run in side.runs[:1]]
    return render_page(
        "comparison.html",
        title=text(f"profiler-ext: {' -> '.join(names)}"),
        style=resource("report.css") + resource("comparison.css"),
        links="".join(tag("a", text(_title(by).lower()), href=f"#{by}") for by in BY)
        + (tag("a", "memory", href="#memory") if comparison.memory is not None else ""),
        total="".join(tag("p", text(line)) for line in total_texts(comparison)) + _legend(),
        sides="".join(
            tag("p", tag("b", name), f" {text(side_text(side))}", class_="quiet")
            for name, side in zip(("base", "head"), comparison.matched.sides, strict=True)
        ),
        notes="".join(tag("p", text(note)) for note in notes(comparison)),
        gate="" if gate is None else _gate(gate),
        tables="".join(_section(comparison, comparison.table(by)) for by in BY),
        fusions=_memory(comparison) + _fusions(comparison),
    )


def _memory(comparison: Comparison) -> str:
    """Return the memory at the peak by line; nothing where a side has no record."""
    if comparison.memory is None:
        return ""
    rows = memory_rows(comparison.memory)
    heads = (*(Head(title, "number") for title in ("base", "head", "change")), Head("line", "what"))
    lines = (
        TableRow((*map(text, sizes), text(name) + quiet(code, "div")))
        for *sizes, name, code in rows[:_MAX_ROWS]
    )
    left = quiet(f"and {len(rows) - _MAX_ROWS} more") if rows[_MAX_ROWS:] else ""
    body = table(heads, lines) + left if rows else tag("p", "Nothing changed.")
    said = memory_text(comparison.memory).partition(": ")[2]
    return folding_section("memory", "Memory at the peak, by line", said, body, is_open=True)


def _legend() -> str:
    keys = (
        tag("span", tag("span", class_=f"key {kind}"), text(label), class_="entry")
        for kind, label in _LEGEND
    )
    return tag("p", *keys, class_="legend quiet")


def _section(comparison: Comparison, of: Table) -> str:
    every = device_rows(of)
    rows = [row for row in every if row.change.verdict is not Verdict.EQUAL]
    rows = rows if of.by == "breakdown" else list(shown_rows(every))
    body = _table(comparison, of, rows) if rows else tag("p", "Nothing changed.")
    idle = shown_rows(idle_rows(of)) if of.by == "line" else ()
    if idle:
        body += tag("h3", "Idle time") + _table(comparison, of, idle)
    return folding_section(of.by, _title(of.by), count_text(every), body, of.by in _OPEN)


def _table(comparison: Comparison, of: Table, rows: Sequence[Row]) -> str:
    most = max(abs(row.change.delta_ns) for row in rows) or 1.0
    numbers = (Head(title, "number") for title in ("base", "head", "change", "% change"))
    way = _way_of_move(of)
    lines = (_row(comparison, of, row, most, way) for row in rows[:_MAX_ROWS])
    left = quiet(f"and {len(rows) - _MAX_ROWS} more") if rows[_MAX_ROWS:] else ""
    heads = (*numbers, Head("less | more", "track"), Head(_HEADS.get(of.by, of.by), "what"))
    return table(heads, lines) + left


def _way_of_move(of: Table) -> str:
    """Return between which scopes work moved: one has less of it, the other more."""
    compiled, eager = (
        sum(row.change.delta_ns for row in of.rows if row.subject.scope == scope)
        for scope in _DEVICE_SCOPES
    )
    if compiled * eager >= 0:
        return ""
    return "moved from eager to compiled" if compiled > 0 else "moved from compiled to eager"


def _row(comparison: Comparison, of: Table, row: Row, most: float, way: str) -> TableRow:
    texts = row_texts(comparison, of, row)
    has_moved = bool(way) and row.subject.scope in _DEVICE_SCOPES
    reported = way if has_moved else texts.verdict
    code = " " + tag("span", text(texts.code), class_="code") if texts.code else ""
    below = quiet(" · ".join(filter(None, (reported, details_text(texts)))), "div")
    numbers = map(text, (texts.base, texts.head, texts.delta, texts.percent))
    what = tag("b", text(texts.name)) + code + below
    return TableRow((*numbers, _bar(row, most), what), _meaning(row.change.verdict, has_moved))


def _meaning(verdict: Verdict, has_moved: bool) -> str:
    """Return the class of a row, which its colour is of."""
    if has_moved or verdict in (Verdict.NEW, Verdict.REMOVED):
        return _MOVED
    return verdict


def _bar(row: Row, most: float) -> str:
    """Return a bar from the middle, to the right for more time, to the left for less."""
    delta = row.change.delta_ns
    half = 50 * abs(delta) / most
    start = 50.0 if delta > 0 else 50.0 - half
    part = tag("span", style=f"left:{start:.2f}%;width:{half:.2f}%")
    return tag("div", part, class_="change")


def _fusions(comparison: Comparison) -> str:
    fusions = comparison.fusions
    if not fusions:
        return ""
    each = "".join(
        tag("h3", text(change_text(fusion.change))) + _lines(fusion_texts(fusion))
        for fusion in fusions[:_MAX_ROWS]
    )
    return folding_section("fusions", "Fusions that changed", str(len(fusions)), each)


def _gate(gate: Gate) -> str:
    heads = (*map(Head, ("outcome", "condition", "what it is held against")),)
    rows = (row for result in gate.results for row in _conditions(result))
    return section("gate", f"Gate: {gate_text(gate)}", table(heads, rows))


def _conditions(result: Result) -> Iterator[TableRow]:
    for each in shown_of(result):
        condition = tag("span", text(result.condition.text), class_="code")
        yield TableRow((text(each.outcome.label), condition, _judged(each)), each.outcome)


def _judged(judged: Evaluation) -> str:
    return text(judged_text(judged)) + _lines(
        f"{line_text(line)}  {signed(line.delta_ns)}" for line in judged.lines
    )


def _lines(lines: Iterable[str]) -> str:
    return "".join(tag("div", text(line), class_="code") for line in lines)


def _title(by: str) -> str:
    return next(kind.title for kind in TABLES if kind.by == by)
