"""A comparison and its gate as Markdown, for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profiler_ext.comparison.comparison import Comparison
from profiler_ext.comparison.gate import Evaluation, Gate, Result
from profiler_ext.comparison.notes import notes
from profiler_ext.comparison.records import Row, Table, Verdict
from profiler_ext.exporters.diff.gate import (
    amount_text,
    gate_text,
    judged_text,
    line_text,
    shown_of,
)
from profiler_ext.exporters.diff.terminal import MAX_FUSIONS, fusion_texts
from profiler_ext.exporters.diff.texts import (
    change_text,
    count_text,
    details_text,
    device_rows,
    idle_rows,
    memory_rows,
    row_texts,
    shown_rows,
    side_text,
    step_text,
    total_texts,
)
from profiler_ext.exporters.tables.files import markdown_escape, markdown_row
from profiler_ext.exporters.views.formatting import require_top


def comparison_markdown(comparison: Comparison, by: str = "line", top: int | None = 15) -> str:
    """Return a comparison as Markdown; names are escaped."""
    if top is not None:
        require_top(top)
    return "\n".join(_comparison_lines(comparison, comparison.table(by), top)) + "\n"


def _comparison_lines(comparison: Comparison, table: Table, top: int | None) -> Iterator[str]:
    yield f"### {markdown_escape(step_text(comparison).capitalize())}"
    yield ""
    for line in (*total_texts(comparison),)[1:]:
        yield markdown_escape(line)
        yield ""
    for name, side in zip(("base", "head"), comparison.matched.sides, strict=True):
        yield f"- {name}: {markdown_escape(side_text(side))}"
    yield ""
    if table.by != "breakdown":
        breakdown = comparison.table("breakdown")
        changed = [row for row in breakdown.rows if row.change.verdict is not Verdict.EQUAL]
        yield from _table(comparison, breakdown, changed, "wall time of a step")
    for label, of in (("By", device_rows(table)), ("Idle time by", idle_rows(table))):
        rows = shown_rows(of)
        if rows or label == "By":
            yield f"**{label} {table.by}**: {count_text(of)}"
            yield ""
            yield from _table(comparison, table, rows[:top], table.by)
        if left := len(rows) - len(rows[:top]):
            yield f"and {left} more"
            yield ""
    yield from _memory(comparison, top)
    yield from _fusions(comparison)
    for note in notes(comparison, table.by):
        yield f"> {markdown_escape(note)}"
        yield ">"


def _table(
    comparison: Comparison, table: Table, rows: Sequence[Row], heading: str
) -> Iterator[str]:
    if not rows:
        return
    yield markdown_row(("base", "head", "change", "", "verdict", heading, ""))
    yield "| ---: | ---: | ---: | ---: | --- | --- | --- |"
    for row in rows:
        texts = row_texts(comparison, table, row)
        name = f"{texts.name}  {texts.code}" if texts.code else texts.name
        numbers = (texts.base, texts.head, texts.delta, texts.percent, texts.verdict)
        yield markdown_row((*numbers, name, details_text(texts)))
    yield ""


def _memory(comparison: Comparison, top: int | None) -> Iterator[str]:
    rows = [] if comparison.memory is None else memory_rows(comparison.memory)
    if not rows:
        return
    yield "**Memory at the peak by line**"
    yield ""
    yield markdown_row(("base", "head", "change", "line"))
    yield "| ---: | ---: | ---: | --- |"
    for base, head, change, name, code in rows[:top]:
        yield markdown_row((base, head, change, f"{name}  {code}".rstrip()))
    yield ""
    if left := len(rows) - len(rows[:top]):
        yield f"and {left} more"
        yield ""


def _fusions(comparison: Comparison) -> Iterator[str]:
    fusions = comparison.fusions
    if not fusions:
        return
    yield f"<details><summary>Fusions that changed: {len(fusions)}</summary>"
    yield ""
    for fusion in fusions[:MAX_FUSIONS]:
        yield f"- {markdown_escape(change_text(fusion.change))}"
        for line in fusion_texts(fusion):
            yield f"  - {markdown_escape(line.strip())}"
    yield ""
    yield "</details>"
    yield ""


def gate_markdown(gate: Gate) -> str:
    """Return the outcome of each condition as Markdown; names are escaped."""
    return "\n".join(_gate_lines(gate)) + "\n"


def _gate_lines(gate: Gate) -> Iterator[str]:
    yield f"## Gate: {markdown_escape(gate_text(gate))}"
    yield ""
    yield markdown_row(("outcome", "condition", "base", "head", "change", "most of it at"))
    yield "| --- | --- | ---: | ---: | --- | --- |"
    for result in gate.results:
        for each in shown_of(result):
            yield _gate_row(result, each)
        if left := len(result.judged) - len(shown_of(result)):
            yield markdown_row(("", result.condition.text, "", "", f"and {left} more", ""))
    yield ""
    for outcome in dict.fromkeys(result.outcome for result in gate.results):
        if outcome.remedy and outcome not in ("passed", "failed"):
            yield f"> {outcome.label} {outcome.meaning}: {outcome.remedy}."
            yield ">"
    yield ""


def _gate_row(result: Result, judged: Evaluation) -> str:
    times = (amount_text(judged, judged.base), amount_text(judged, judged.head))
    change = judged_text(judged).partition(" -> ")[2].partition(", ")[2]
    condition = result.condition.text + (f": {judged.name}" if judged.name else "")
    where = line_text(judged.lines[0]) if judged.lines else ""
    return markdown_row((judged.outcome.label, condition, *times, change, where))
