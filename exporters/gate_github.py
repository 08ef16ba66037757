"""Owns the outcome of a gate for GitHub Actions: annotations at lines, as workflow commands.

What a command's text and properties may not hold is escaped as the runner takes it back:
actions/toolkit, ``packages/core/src/command.ts`` (``escapeData``, ``escapeProperty``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from profiler_ext.comparison.comparison import Comparison
from profiler_ext.exporters.gate_texts import judged_text
from profiler_ext.gate.chosen import PlacedLine
from profiler_ext.gate.records import Gate, Evaluation, Result
from profiler_ext.gate.words import Outcome

MOST = 10
"""GitHub shows so many errors of a step, and as many warnings; it drops the others in silence."""
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = _DATA | {":": "%3A", ",": "%2C"}


def workflow_commands(
    gate: Gate, comparison: Comparison, root: Path, *, is_too_few_allowed: bool = False
) -> Iterator[str]:
    """Yield a workflow command for each thing that did not pass, at the line with most of it.

    Args:
        gate: what came of all conditions.
        comparison: what they were held against.
        root: the checkout; files are named below it.
        is_too_few_allowed: a condition with too few steps is a warning, and not an error.
    """
    errors = [
        _failed(result, each, comparison, root)
        for result in gate.results
        for each in result.of(Outcome.FAILED)
    ]
    level = "warning" if is_too_few_allowed else "error"
    undecided = [
        _command(each_level, {"title": _title(result)}, _why(result))
        for result in gate.results
        for outcome, each_level in (
            (Outcome.TOO_FEW, level),
            (Outcome.NOT_COMPARABLE, level),
            (Outcome.UNCLEAR, "warning"),
        )
        if result.outcome is outcome
    ]
    yield from undecided
    yield from _bounded(errors, MOST - sum(each.startswith("::error") for each in undecided))


def _bounded(commands: list[str], most: int) -> list[str]:
    if len(commands) <= most:
        return commands
    left = len(commands) - max(most - 1, 0)
    more = _command("error", {"title": "profiler-ext"}, f"{left} more failed: see the summary")
    return [*commands[: max(most - 1, 0)], more]


def _failed(result: Result, judged: Evaluation, comparison: Comparison, root: Path) -> str:
    where = _where(judged.lines[0], comparison, root) if judged.lines else {}
    return _command("error", {**where, "title": _title(result)}, judged_text(judged))


def _where(line: PlacedLine, comparison: Comparison, root: Path) -> dict[str, str]:
    side = comparison.head if line.is_in_head else comparison.base
    name = line.subject.file or ""
    path = Path(side.paths.get(name, name))
    below = path.relative_to(root).as_posix() if path.is_relative_to(root) else name
    return {"file": below, "line": str(line.subject.line)}


def _why(result: Result) -> str:
    return f"{judged_text(result.judged[0])}\ntry: {result.outcome.remedy}"


def _title(result: Result) -> str:
    return f"{result.outcome.words}: {result.condition.text}"


def _command(level: str, properties: dict[str, str], message: str) -> str:
    fields = ",".join(f"{name}={_escaped(text, _PROPERTY)}" for name, text in properties.items())
    return f"::{level} {fields}::{_escaped(message, _DATA)}"


def _escaped(text: str, escapes: dict[str, str]) -> str:
    return "".join(escapes.get(each, each) for each in text)
