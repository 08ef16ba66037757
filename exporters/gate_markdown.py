"""Owns the outcome of a gate as Markdown, for a pull request or the summary of a job."""

from __future__ import annotations

from collections.abc import Iterator

from profiler_ext.exporters.gate_texts import (
    amount_text,
    gate_text,
    judged_text,
    line_text,
    shown_of,
)
from profiler_ext.exporters.tables.files import markdown_row, markdown_escape
from profiler_ext.gate.records import Gate, Evaluation, Result


def gate_markdown(gate: Gate) -> str:
    """Return what came of each condition as Markdown; no name in it breaks out of its cell.

    Args:
        gate: what came of all conditions.
    """
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
            yield f"> {outcome.words} {outcome.meaning}: {outcome.remedy}."
            yield ">"
    yield ""


def _gate_row(result: Result, judged: Evaluation) -> str:
    times = (amount_text(judged, judged.base), amount_text(judged, judged.head))
    change = judged_text(judged).partition(" -> ")[2].partition(", ")[2]
    condition = result.condition.text + (f": {judged.name}" if judged.name else "")
    where = line_text(judged.lines[0]) if judged.lines else ""
    return markdown_row((judged.outcome.words, condition, *times, change, where))
