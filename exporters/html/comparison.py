"""The page of a comparison: what changed overall, each table, and fusions that changed.

It has no script: tables fold as the browser folds them, and its own search finds everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
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
    row_texts,
    shown_rows,
    side_text,
    signed,
    total_texts,
)
from profiler_ext.exporters.html.page import render_page, resource
from profiler_ext.file_io import replacing
from profiler_ext.printable import printable

_MAX_ROWS = 500
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'"
_OPEN = ("ledger", "line")


def export_comparison(comparison: Comparison, path: Path, gate: Gate | None = None) -> Path:
    """Write a comparison as one self-contained page.

    Raises:
        OutputError: The file cannot be written.
    """
    with replacing(path) as file:
        file.write(comparison_page(comparison, gate).encode("utf-8", "backslashreplace"))
    return path


def comparison_page(comparison: Comparison, gate: Gate | None = None) -> str:
    """Return a comparison as a page; every name in it is text."""
    names = [run.name for side in comparison.matched.sides for run in side.runs[:1]]
    return render_page(
        "comparison.html",
        policy=escape(_POLICY),
        title=_text(f"profiler-ext: {' -> '.join(names)}"),
        style=resource("report.css") + resource("comparison.css"),
        links="".join(f'<a href="#{by}">{_text(_title(by).lower())}</a>' for by in BY),
        total="".join(f"<p>{_text(line)}</p>" for line in total_texts(comparison)),
        sides="".join(
            f"<p class='quiet'><b>{name}</b> {_text(side_text(side))}</p>"
            for name, side in zip(("base", "head"), comparison.matched.sides, strict=True)
        ),
        notes="".join(f"<p>{_text(note)}</p>" for note in notes(comparison)),
        gate="" if gate is None else _gate(gate),
        tables="".join(_section(comparison, comparison.table(by)) for by in BY),
        fusions=_fusions(comparison),
    )


def _section(comparison: Comparison, table: Table) -> str:
    of = device_rows(table)
    rows = [row for row in of if row.change.verdict is not Verdict.EQUAL]
    rows = rows if table.by == "ledger" else list(shown_rows(of))
    body = _table(comparison, table, rows) if rows else "<p>Nothing changed.</p>"
    opened = " open" if table.by in _OPEN else ""
    idle = shown_rows(idle_rows(table)) if table.by == "line" else ()
    waits = f"<h3>Idle time</h3>{_table(comparison, table, idle)}" if idle else ""
    return (
        f'<section id="{table.by}"><details{opened}><summary><h2>{_text(_title(table.by))}</h2> '
        f'<span class="quiet">{_text(count_text(of))}</span></summary>{body}{waits}</details>'
        "</section>"
    )


def _table(comparison: Comparison, table: Table, rows: Sequence[Row]) -> str:
    most = max(abs(row.change.delta_ns) for row in rows) or 1.0
    left = f"<p class='quiet'>and {len(rows) - _MAX_ROWS} more</p>" if rows[_MAX_ROWS:] else ""
    heads = ("base", "head", "change", "")
    head = "".join(f'<th class="number">{name}</th>' for name in heads)
    lines = "".join(_row(comparison, table, row, most) for row in rows[:_MAX_ROWS])
    return (
        f'<table><thead><tr>{head}<th class="track"></th><th class="name">{table.by}</th></tr>'
        f"</thead><tbody>{lines}</tbody></table>{left}"
    )


def _row(comparison: Comparison, table: Table, row: Row, most: float) -> str:
    texts = row_texts(comparison, table, row)
    numbers = (texts.base, texts.head, texts.delta, texts.percent)
    cells = "".join(f'<td class="number">{_text(each)}</td>' for each in numbers)
    code = f' <span class="code">{_text(texts.code)}</span>' if texts.code else ""
    details = " · ".join(filter(None, (texts.verdict, details_text(texts))))
    return (
        f'<tr class="{row.change.verdict}">{cells}<td class="track">{_bar(row, most)}</td>'
        f'<td class="what"><b>{_text(texts.name)}</b>{code}'
        f'<div class="quiet">{_text(details)}</div></td></tr>'
    )


def _bar(row: Row, most: float) -> str:
    """Return a bar that leads from the middle to the right for what takes longer, else left."""
    delta = row.change.delta_ns
    half = 50 * abs(delta) / most
    start = 50.0 if delta > 0 else 50.0 - half
    side = "longer" if delta > 0 else "shorter"
    return (
        f'<div class="change"><span class="{side}" style="left:{start:.2f}%;width:{half:.2f}%">'
        "</span></div>"
    )


def _fusions(comparison: Comparison) -> str:
    fusions = comparison.fusions
    if not fusions:
        return ""
    each = "".join(
        f"<h3>{_text(change_text(fusion.change))}</h3>{_lines(fusion_texts(fusion))}"
        for fusion in fusions[:_MAX_ROWS]
    )
    return (
        f'<section id="fusions"><details><summary><h2>Fusions that changed</h2> '
        f'<span class="quiet">{len(fusions)}</span></summary>{each}</details></section>'
    )


def _gate(gate: Gate) -> str:
    rows = "".join(row for result in gate.results for row in _conditions(result))
    return (
        f'<section id="gate"><h2>Gate: {_text(gate_text(gate))}</h2><table>'
        '<thead><tr><th>outcome</th><th class="name">condition</th><th>what it is held against</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></section>"
    )


def _conditions(result: Result) -> Iterator[str]:
    for each in shown_of(result):
        yield (
            f'<tr class="{each.outcome}"><td>{_text(each.outcome.words)}</td>'
            f'<td class="code">{_text(result.condition.text)}</td><td>{_judged(each)}</td></tr>'
        )


def _judged(judged: Evaluation) -> str:
    return _text(judged_text(judged)) + _lines(
        f"{line_text(line)}  {signed(line.delta_ns)}" for line in judged.lines
    )


def _lines(lines: Iterable[str]) -> str:
    return "".join(f'<div class="code">{_text(line)}</div>' for line in lines)


def _title(by: str) -> str:
    return next(kind.title for kind in TABLES if kind.by == by)


def _text(text: str) -> str:
    return escape(printable(text))
