"""Owns how the outcome of a gate reads for a person: its conditions and what each came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from profiler_ext.comparison.words import Verdict
from profiler_ext.exporters.comparison_texts import signed
from profiler_ext.exporters.console import print_line
from profiler_ext.exporters.display_text import time_text
from profiler_ext.exporters.rich_parts import Console, Padding, Text
from profiler_ext.gate.chosen import PlacedLine
from profiler_ext.gate.conditions import Unit
from profiler_ext.gate.records import Gate, Evaluation, Result
from profiler_ext.gate.words import Outcome
from profiler_ext.printable import printable

SHOWN = 10
"""So many of the things that a condition was held against are shown, of those that failed."""
_STYLES = {
    Outcome.PASSED: "green",
    Outcome.UNCLEAR: "yellow",
    Outcome.TOO_FEW: "bold yellow",
    Outcome.NOT_COMPARABLE: "bold yellow",
    Outcome.FAILED: "bold red",
}
_WIDTH = max(len(outcome.words) for outcome in Outcome)
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "KB"))


def print_gate(gate: Gate, console: Console) -> None:
    """Print what came of each condition, and of what failed where.

    Args:
        gate: what came of all conditions.
        console: where to; what is long is cut at its width.
    """
    print_line(console, printable(f"gate: {gate_text(gate)}"), _STYLES[gate.outcome])
    for result in gate.results:
        line = f"{result.outcome.words:<{_WIDTH}}  {result.condition.text}"
        print_line(console, printable(line), _STYLES[result.outcome])
        for text in result_lines(result):
            console.print(Padding(Text(printable(text)), (0, 0, 0, _WIDTH + 2)))
    console.print()


def gate_text(gate: Gate) -> str:
    """Return what came of all conditions, in one line."""
    occurrences = Counter(result.outcome for result in gate.results)
    counts = [f"{occurrences[outcome]} {outcome.words}" for outcome in reversed(Outcome) if occurrences[outcome]]
    of = f" of {len(gate.results)} conditions" if len(gate.results) > 1 else ""
    return f"{', '.join(counts)}{of}"


def result_lines(result: Result) -> Iterator[str]:
    """Yield what a condition was held against, a line each, and where what failed is.

    Args:
        result: the condition.
    """
    shown = shown_of(result)
    for each in shown:
        yield judged_text(each)
        for line in each.lines:
            yield f"  {line_text(line)}  {signed(line.delta_ns)}"
    if left := len(result.judged) - len(shown):
        yield f"and {left} more: {_counts(result.judged[len(shown) :])}"
    if result.outcome in (Outcome.UNCLEAR, Outcome.TOO_FEW, Outcome.NOT_COMPARABLE):
        yield f"try: {result.outcome.remedy}"


def shown_of(result: Result) -> tuple[Evaluation, ...]:
    """Return what is shown of a condition: all that failed up to a bound, else what is worst.

    Args:
        result: the condition.
    """
    failed = result.of(Outcome.FAILED)
    return failed[:SHOWN] or result.judged[:1]


def judged_text(judged: Evaluation) -> str:
    """Return what something takes on both sides, by how much that differs, and how sure it is.

    Args:
        judged: what a condition was held against.
    """
    times = f"{amount_text(judged, judged.base)} -> {amount_text(judged, judged.head)}"
    named = f"{judged.name}  {times}" if judged.name else times
    if judged.verdict is Verdict.EQUAL or not judged.delta:
        return f"{named}, equal"
    percent = f" ({judged.fraction:+.1%})" if judged.fraction is not None else " (from nothing)"
    verdict = f": {judged.verdict.words}" if judged.verdict is not None else ""
    return f"{named}, {_signed(judged, judged.delta)}{percent}{_interval(judged)}{verdict}"


def amount_text(judged: Evaluation, amount: float) -> str:
    """Return a time, or a size.

    Args:
        judged: has the unit.
        amount: in that unit.
    """
    if judged.unit is Unit.NS:
        return f"-{time_text(-amount)}" if amount < 0 else time_text(amount)
    for factor, unit in _UNITS:
        if abs(amount) >= factor:
            return f"{amount / factor:.4g} {unit}"
    return f"{amount:.0f} B"


def line_text(line: PlacedLine) -> str:
    """Return a line with its text.

    Args:
        line: the line, of the head if it is there.
    """
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
    return ", ".join(f"{occurrences[o]} {o.words}" for o in reversed(Outcome) if occurrences[o])
