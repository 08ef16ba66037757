"""Findings as text: time at stake, location, evidence, remedy."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from profiler_ext.exporters.views import formatting, idle
from profiler_ext.findings import (
    MIN_FRACTION,
    ON_RANKS,
    Confidence,
    Figure,
    FigureUnit,
    Finding,
    Findings,
    Location,
    SavingPer,
    training_steps,
)
from profiler_ext.printable import printable
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.recording import Settings
from profiler_ext.records.vocabulary import Scope

SHOWN = 5  # findings shown first; the rest is collapsed
MAX_ON_PAGE = 100  # also when all are asked for
_CONFIDENCE = {
    Confidence.MEASURED: "measured",
    Confidence.ESTIMATED: "estimated",
    Confidence.UPPER_BOUND: "upper bound",
}
_UNKNOWN = "saving unknown"
_BUSY = 0.95  # from here on the device sets the pace
_PART = {SavingPer.WINDOW: "window", SavingPer.PROCESS: "once"}
_MAX_CHARS = 64
_BYTES = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


_CLAUSE_ENDS = ("; ", ", ", ": ", " (")
_MORE = "…"


def findings_heading(findings: Findings) -> str:
    """Return the heading of the findings."""
    if findings.ranked:
        return f"Top recommendations: step {_step_text(findings)}"
    if not findings.rules_evaluated:
        return "No recommendation: no check applies (report --findings lists why)"
    unjudged = len({each.rule for each in findings.rules_skipped})
    if unjudged > findings.rules_evaluated:
        of_all = f"{findings.rules_evaluated} of {findings.rules_evaluated + unjudged} checks apply"
        return f"Few recommendations: {of_all} (report --findings lists why)"
    rules = f"{findings.rules_evaluated} checks applied"
    if unjudged:
        rules += f", {unjudged} did not"
    return f"No issue above {MIN_FRACTION:.0%} of step time ({rules})"


def _step_text(findings: Findings) -> str:
    recorded = formatting.time_text(findings.step_ns)
    if findings.unprofiled_step_ns is None:
        return recorded
    return f"{formatting.time_text(findings.unprofiled_step_ns)} ({recorded} while profiling)"


def verdict_text(analyses: Sequence[Analysis], findings: Findings) -> str:
    """Return the verdict on a session: its step time, how busy the device is, and why not more."""
    steps = {step.number for analysis in analyses for step in analysis.steps}
    if not steps:
        return "No step was recorded, so there is nothing to sum"
    ranks = f"{len(analyses)} ranks: " if len(analyses) > 1 else ""
    busy = fmean(formatting.busy_fraction(each, training_steps(each)) for each in analyses)
    if analyses[0].is_on_cpu:
        return f"{ranks}Step {_step_text(findings)}: CPU in operators {busy:.1%} of the time"
    breakdown = [row for analysis in analyses for row in analysis.breakdown]
    exposed_ns = sum(row.duration_ns for row in breakdown if row.scope == Scope.COMMUNICATION)
    exposed = exposed_ns / max(sum(row.duration_ns for row in breakdown), 1)
    if exposed > max(1 - busy, 1 - _BUSY):
        return f"{ranks}Step {_step_text(findings)}, exposed communication {exposed:.1%}"
    if busy >= _BUSY:
        return f"{ranks}Step {_step_text(findings)}: GPU-bound, busy {busy:.1%}"
    causes = idle.cause_sums(analyses)
    most = formatting.cause_text(max(causes, key=lambda cause: causes[cause])) if causes else ""
    return f"{ranks}Step {_step_text(findings)}, GPU busy {busy:.1%}: {most or 'unknown cause'}"


def saving_texts(finding: Finding) -> tuple[str, str]:
    """Return the time at stake, and its fraction of a step or what else it counts for."""
    if finding.saving_per is SavingPer.UNKNOWN:
        return "?", ""
    part = formatting.percent_text(finding.est_saving_ns, finding.total_ns)
    return formatting.time_text(finding.est_saving_ns), _PART.get(finding.saving_per, part)


def where_text(location: Location, settings: Settings) -> str:
    """Return a finding's location on one line, ``""`` without one."""
    line = (
        ""
        if location.file is None
        else f"{formatting.short_path(location.file, settings)}:{location.line}"
    )
    parts = (
        line,
        location.module and _module_text(location.module),
        location.kernel and kernel_name(location.kernel),
        f"compile {location.graph}" if location.graph else None,
        location.code.strip() if location.code else None,
    )
    return printable(" · ".join(filter(None, parts)))


def _module_text(path: str) -> str:
    return f"module {path}" if path.replace(".", "").isdecimal() else path


def kernel_name(kernel: str) -> str:
    """Return a kernel's shortened name."""
    name = formatting.short_kernel(kernel)
    # A template's first argument tells it apart, the end of other names.
    return (formatting.start if "<" in name else formatting.middle)(name, _MAX_CHARS)


def confidence_text(finding: Finding) -> str:
    """Return how sure the time at stake is: measured, estimated, an upper bound, unknown."""
    return _UNKNOWN if finding.saving_per is SavingPer.UNKNOWN else _CONFIDENCE[finding.confidence]


def place_text(location: Location, settings: Settings) -> str:
    """Return the shortest name of a finding's location, ``""`` without one."""
    if location.file is not None:
        return printable(f"{formatting.short_path(location.file, settings)}:{location.line}")
    return printable((location.module and _module_text(location.module)) or "")


def why_text(finding: Finding) -> str:
    """Return the rule, its confidence, its figures, and overlapping rules."""
    figures = [f"{each.name}: {figure_text(each)}" for each in finding.evidence]
    shared = [f"overlaps {name}" for name in finding.overlaps_with]
    return printable(" · ".join([finding.rule, confidence_text(finding), *figures, *shared]))


def figure_text(figure: Figure) -> str:
    """Return a figure's value with its unit."""
    value = figure.value
    if isinstance(value, str):
        return " ".join(value.split())
    if figure.unit is FigureUnit.NS:
        return formatting.time_text(value)
    if figure.unit is FigureUnit.FRACTION:
        return f"{100 * value:.1f}%"
    if figure.unit is FigureUnit.TIMES:
        return f"{value:.3g}x"
    return _bytes_text(value) if figure.unit is FigureUnit.BYTES else f"{value:,.0f}"


def skipped_rules_lines(findings: Findings) -> tuple[str, ...]:
    """Return a line per reason why checks were skipped."""
    rules: dict[str, dict[str, None]] = {}
    for each in findings.rules_skipped:
        rules.setdefault(each.reason, {})[each.rule] = None
    lines = (f"not judged: {', '.join(names)}: {why}" for why, names in rules.items())
    return tuple(map(printable, lines))


def more_text(findings: Findings, how: str) -> str | None:
    """Return how many findings are left out, and how to see them; ``None`` if none."""
    left = len(findings.ranked) - SHOWN
    return f"and {left} more: {how}" if left > 0 else None


def what_text(finding: Finding) -> str:
    """Return what a finding found, prefixed with the rank where there are several."""
    ranks = next((str(each.value) for each in finding.evidence if each.name == ON_RANKS), "")
    count = len(ranks.split(", "))
    most = f"{count:,} ranks, rank {finding.rank} most: " if count > 1 else f"rank {finding.rank}: "
    rank_text = most if ranks else ""
    return printable(rank_text + finding.summary)


def _bytes_text(value: float) -> str:
    for unit, size in _BYTES:
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} bytes"


def short_remedy(remedy: str, width: int) -> str:
    """Return a remedy up to the last end of a clause that fits; all of it if there is none."""
    if len(remedy) <= width:
        return remedy
    depth, end = 0, 0
    for at, character in enumerate(remedy[: width - len(_MORE) + 1]):
        if depth == 0 and remedy.startswith(_CLAUSE_ENDS, at):
            end = at
        depth += (character in "([") - (character in ")]")
    return f"{remedy[:end]}{_MORE}" if end else remedy
