"""The outcome of a gate: in the terminal, as GitHub annotations, as JUnit XML.

Texts and properties of commands are escaped as the runner unescapes them: actions/toolkit,
``packages/core/src/command.ts`` (``escapeData``, ``escapeProperty``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from profiler_ext.comparison import conditions, records
from profiler_ext.comparison.comparison import Comparison
from profiler_ext.comparison.gate import Evaluation, Gate, Outcome, PlacedLine, Result
from profiler_ext.exporters.diff.texts import signed, signed_size
from profiler_ext.exporters.terminal.console import Console, Padding, Text, print_line
from profiler_ext.exporters.views.formatting import signed_time_text, size_text
from profiler_ext.file_io import replacing
from profiler_ext.printable import printable

SHOWN = 10  # failures of one condition
MOST = 10  # GitHub shows so many errors and warnings of a step, and drops the rest silently
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = _DATA | {":": "%3A", ",": "%2C"}
# What an XML document must not hold (XML 1.0, 2.2), escaped or not.
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STYLES = {
    Outcome.PASSED: "green",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.TOO_FEW: "bold yellow",
    Outcome.NOT_COMPARABLE: "bold yellow",
    Outcome.FAILED: "bold red",
}
_WIDTH = max(len(outcome.label) for outcome in Outcome)


def print_gate(gate: Gate, console: Console) -> None:
    """Print the outcome of each condition, and the lines of failures."""
    print_line(console, printable(f"gate: {gate_text(gate)}"), _STYLES[gate.outcome])
    for result in gate.results:
        line = f"{result.outcome.label:<{_WIDTH}}  {result.condition.text}"
        print_line(console, printable(line), _STYLES[result.outcome])
        for text in result_lines(result):
            console.print(Padding(Text(printable(text)), (0, 0, 0, _WIDTH + 2)))
    console.print()


def gate_text(gate: Gate) -> str:
    """Return the counts of outcomes, in one line."""
    occurrences = Counter(result.outcome for result in gate.results)
    counts = [
        f"{occurrences[outcome]} {outcome.label}"
        for outcome in reversed(Outcome)
        if occurrences[outcome]
    ]
    of = f" of {len(gate.results)} conditions" if len(gate.results) > 1 else ""
    return f"{', '.join(counts)}{of}"


def result_lines(result: Result) -> Iterator[str]:
    """Yield the evaluations of a condition, a line each, and the lines of failures."""
    shown = shown_of(result)
    for each in shown:
        yield judged_text(each)
        for line in each.lines:
            yield f"  {line_text(line)}  {_moved(line)}"
    if left := len(result.judged) - len(shown):
        yield f"and {left} more: {_counts(result.judged[len(shown) :])}"
    if result.outcome in (Outcome.INCONCLUSIVE, Outcome.TOO_FEW, Outcome.NOT_COMPARABLE):
        yield f"try: {result.outcome.remedy}"


def shown_of(result: Result) -> tuple[Evaluation, ...]:
    """Return the evaluations to show: the first failures, else the worst one."""
    failed = result.of(Outcome.FAILED)
    return failed[:SHOWN] or result.judged[:1]


def judged_text(judged: Evaluation) -> str:
    """Return an evaluation: both sides' amounts, the difference, and its interval."""
    times = f"{amount_text(judged, judged.base)} -> {amount_text(judged, judged.head)}"
    named = f"{judged.name}  {times}" if judged.name else times
    if judged.verdict is records.Verdict.EQUAL or not judged.delta:
        return f"{named}, equal"
    percent = f" ({judged.fraction:+.1%})" if judged.fraction is not None else " (from nothing)"
    verdict = f": {judged.verdict.label}" if judged.verdict is not None else ""
    return f"{named}, {_signed(judged, judged.delta)}{percent}{_interval(judged)}{verdict}"


def amount_text(judged: Evaluation, amount: float) -> str:
    """Return a time, or a size."""
    if judged.unit is conditions.Unit.NS:
        return signed_time_text(amount)
    return size_text(round(amount))


def _moved(line: PlacedLine) -> str:
    return signed(line.delta_ns) if line.delta_bytes is None else signed_size(line.delta_bytes)


def line_text(line: PlacedLine) -> str:
    """Return a line with its text."""
    at = line.subject
    gone = "" if line.is_in_head else " (of the base)"
    return f"{at.file}:{at.line}{gone}  {at.code or at.cause or ''}".rstrip()


def _signed(judged: Evaluation, delta: float) -> str:
    return f"{'-' if delta < 0 else '+'}{amount_text(judged, abs(delta))}"


def _interval(judged: Evaluation) -> str:
    interval = judged.interval
    if interval is None:
        return ""
    return f", 95%: {_signed(judged, interval.low_ns)} to {_signed(judged, interval.high_ns)}"


def _counts(judged: tuple[Evaluation, ...]) -> str:
    occurrences = Counter(each.outcome for each in judged)
    return ", ".join(f"{occurrences[o]} {o.label}" for o in reversed(Outcome) if occurrences[o])


def workflow_commands(
    gate: Gate, comparison: Comparison, root: Path, *, is_too_few_allowed: bool = False
) -> Iterator[str]:
    """Yield a workflow command for each evaluation that did not pass, at its main line.

    With ``is_too_few_allowed``, too few steps are a warning, not an error.
    """
    errors = [
        _failed(result, each, comparison, root)
        for result in gate.results
        for each in result.of(Outcome.FAILED)
    ]
    level = "warning" if is_too_few_allowed else "error"
    undecided = [
        _command(
            each_level,
            {"title": _title(result)},
            f"{judged_text(result.judged[0])}\ntry: {result.outcome.remedy}",
        )
        for result in gate.results
        for outcome, each_level in (
            (Outcome.TOO_FEW, level),
            (Outcome.NOT_COMPARABLE, level),
            (Outcome.INCONCLUSIVE, "warning"),
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
    where = _place(judged.lines[0], comparison, root) if judged.lines else {}
    return _command("error", {**where, "title": _title(result)}, judged_text(judged))


def _place(line: PlacedLine, comparison: Comparison, root: Path) -> dict[str, str]:
    side = comparison.head if line.is_in_head else comparison.base
    name = line.subject.file or ""
    path = Path(side.paths.get(name, name))
    below = path.relative_to(root).as_posix() if path.is_relative_to(root) else name
    return {"file": below, "line": str(line.subject.line)}


def _title(result: Result) -> str:
    return f"{result.outcome.label}: {result.condition.text}"


def _command(level: str, properties: dict[str, str], message: str) -> str:
    fields = ",".join(f"{name}={_escaped(text, _PROPERTY)}" for name, text in properties.items())
    return f"::{level} {fields}::{_escaped(message, _DATA)}"


def _escaped(text: str, escapes: dict[str, str]) -> str:
    return "".join(escapes.get(each, each) for each in text)


def write_junit(gate: Gate, path: Path, *, is_too_few_allowed: bool = False) -> None:
    """Write the outcome of each condition as JUnit XML.

    With ``is_too_few_allowed``, a condition with too few steps is skipped, not failed.
    """
    with replacing(path) as file:
        file.write(junit(gate, is_too_few_allowed=is_too_few_allowed))


def junit(gate: Gate, *, is_too_few_allowed: bool = False) -> bytes:
    """Return the outcome of each condition as JUnit XML; see :func:`write_junit`."""
    suite = ElementTree.Element("testsuite", {"name": "profiler-ext diff"})
    for result in gate.results:
        _add_case(suite, result, is_too_few_allowed)
    for name, tag in (("failures", "failure"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))
    suite.attrib |= {"tests": str(len(gate.results)), "errors": "0"}
    suites = ElementTree.Element("testsuites", dict(suite.attrib))
    suites.append(suite)
    ElementTree.indent(suites)
    written: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return written


def _add_case(suite: ElementTree.Element, result: Result, is_too_few_allowed: bool) -> None:
    named = {"classname": "profiler-ext", "name": _clean(result.condition.text), "time": "0"}
    case = ElementTree.SubElement(suite, "testcase", named)
    details = _clean("\n".join(result_lines(result)))
    tag = _tag(result.outcome, is_too_few_allowed)
    if tag is None:
        ElementTree.SubElement(case, "system-out").text = f"{result.outcome.label}\n{details}"
        return
    attributes = {"message": _clean(judged_text(result.judged[0]))}
    typed = {"type": str(result.outcome)} if tag == "failure" else {}
    ElementTree.SubElement(case, tag, attributes | typed).text = details


def _tag(outcome: Outcome, is_too_few_allowed: bool) -> str | None:
    if outcome is Outcome.FAILED:
        return "failure"
    if outcome in (Outcome.TOO_FEW, Outcome.NOT_COMPARABLE):
        return "skipped" if is_too_few_allowed else "failure"
    return None


def _clean(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
