"""Owns how times, places and the ledger read for a person, in the terminal and in HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median_low
from typing import Any

from profiler_ext.errors import UsageError
from profiler_ext.exporters.colors import PHASE_COLORS
from profiler_ext.exporters.table_kind import TableKind
from profiler_ext.kineto.names import is_graph_marker
from profiler_ext.printable import printable
from profiler_ext.records import (
    Analysis,
    CacheState,
    GapReason,
    GraphInstance,
    IdleCause,
    BreakdownCategory,
    Level,
    Phase,
    Scope,
    Settings,
    Step,
)

PHASE_STYLES = {phase: color.middle for phase, color in PHASE_COLORS.items()}
_CATEGORIES = {term.value: term.words for each in (BreakdownCategory, GapReason) for term in each}
_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000))


def require_top(top: int) -> int:
    """Return how many rows are to be shown.

    Args:
        top: what was asked for.

    Raises:
        UsageError: It is less than 1.
    """
    if top < 1:
        raise UsageError(f"cannot show the top {top} rows; ask for 1 or more")
    return top


def time_text(duration_ns: float) -> str:
    """Return a time in the unit that suits it, with three digits: ``12.3 us``."""
    for unit, size in _UNITS:
        if duration_ns >= 0.9995 * size:
            value = duration_ns / size
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"
    return f"{duration_ns:.0f} ns"


def per_step_text(duration_ns: float, steps: int) -> str:
    """Return a time that some steps have together as that of one: ``12.3 us a step``.

    Args:
        duration_ns: the time.
        steps: how many steps, of each rank, it is of.
    """
    return time_text(duration_ns) if steps < 2 else f"{time_text(duration_ns / steps)} a step"


def range_text(least_ns: float, most_ns: float) -> str:
    """Return the range of some times, with the unit once where it is one: ``132 - 135 us``.

    Args:
        least_ns: the shortest.
        most_ns: the longest.
    """
    least, most = time_text(least_ns), time_text(most_ns)
    (number, unit), (_, of_most) = least.split(), most.split()
    return f"{number if unit == of_most else least} - {most}"


def percent_text(part: float, total: float) -> str:
    """Return a part of a total in percent; nothing where there is no total.

    Args:
        part: the part.
        total: the whole, in the same unit.
    """
    return f"{100 * part / total:.1f}%" if total else ""


def with_recorded_text(unrecorded: str, recorded: str) -> str:
    """Return what is so in training, and what was recorded where that reads otherwise.

    Args:
        unrecorded: where nobody records.
        recorded: in the recording.
    """
    return unrecorded if unrecorded == recorded else f"{unrecorded} ({recorded} as recorded)"


def short_path(path: str, settings: Settings) -> str:
    """Return a path without the root that it lies under.

    Args:
        path: the path.
        settings: has the roots.
    """
    roots = (*settings.user_roots, *settings.library_roots)
    for root in sorted(roots, key=len, reverse=True):
        if path.startswith(root.rstrip("/") + "/"):
            return path[len(root.rstrip("/")) + 1 :]
    return path


def short_phase(phase: Phase) -> str:
    """Return what heads a phase's column where there is little room."""
    return "grad. acc." if phase is Phase.GRADIENT_ACCUMULATION else phase.value


def gap_text(reason: str) -> str:
    """Return a gap's reason as words; one that is not known is its own."""
    return GapReason(reason).words if reason in tuple(GapReason) else reason


def cause_text(cause: str) -> str:
    """Return a cause of idle time as words; one that is not known is its own."""
    return IdleCause(cause).words if cause in tuple(IdleCause) else cause


def delay_cause_text(row: Mapping[str, Any]) -> str:
    """Return what made a rank late: why its device idled, or that it worked."""
    return "running" if row["cause"] is None else cause_text(row["cause"])


def labels(kind: TableKind, row: Mapping[str, Any], settings: Settings) -> tuple[str, ...]:
    """Return what a row of a summing table is called, one text for each of its headings.

    Args:
        kind: which table.
        row: the row; absent values are ``None``.
        settings: whose roots shorten the paths.

    Returns:
        The texts; a row without a name says why.
    """
    first, *others = (_name(name, row, settings) for name, _ in kind.shown)
    if row[kind.shown[0][0]] is None:
        first = f"({gap_text(row['gap']) if row.get('gap') else kind.unnamed})"
    return (first, *others)


def _activity(event: str | None) -> str | None:
    """Return what the CPU ran; of a graph's call, that it is one, and not its key."""
    return "a compiled graph" if is_graph_marker(event or "") else event


def _name(column: str, row: Mapping[str, Any], settings: Settings) -> str:
    if column == "file" and row["file"] is not None:
        return f"{short_path(row['file'], settings)}:{row['line']}"
    if column == "cpu_activity":
        return ": ".join(filter(None, (cause_text(row["cause"]), _activity(row[column]))))
    if row[column] is None:
        return ""
    if column == "cause":
        return cause_text(row["cause"])
    if column == "rank":
        return f"rank {row['rank']}: {delay_cause_text(row)}"
    return "(the model itself)" if column == "module" and not row[column] else str(row[column])


def ledger_label(row: Mapping[str, Any]) -> str:
    """Return what a row of the coverage table says, in words."""
    text: str = _CATEGORIES.get(row["category"], row["category"])
    if row["scope"] == Scope.IDLE:
        return text
    is_reason = row["level"] == Level.OP and row["category"] != BreakdownCategory.OP
    prefix = "ops only: " if is_reason else ""
    return f"{Scope(row['scope']).words}: {prefix}{text}"


def cache_bypass_text(graphs: Sequence[GraphInstance]) -> str | None:
    """Return one line that says which graphs bypassed torch's caches, why, and the cost.

    Args:
        graphs: the compiled graphs.

    Returns:
        The line; ``None`` where every graph could be cached.
    """
    bypassing = [graph for graph in graphs if graph.cache_state is CacheState.BYPASS]
    traced = [g for g in graphs if g.autograd_bypass is not None and g not in bypassing]
    cost = time_text(sum(graph.compile_ns for graph in bypassing))
    why = [graph.cache_detail or "unknown" for graph in bypassing]
    parts = [
        f"{len(bypassing)} of {len(graphs)} compiled graphs bypassed torch's cache: every process "
        f"compiles anew ({cost} here): {'; '.join(dict.fromkeys(why))}",
        f"{len(traced)} of {len(graphs)} compiled graphs bypassed AOTAutograd's cache: every "
        f"process traces anew: {'; '.join(dict.fromkeys(map(_autograd_bypass, traced)))}",
    ]
    sentences = [part for part, bypassed in zip(parts, (bypassing, traced), strict=True) if bypassed]
    return printable(". ".join(sentences)) or None


def _autograd_bypass(graph: GraphInstance) -> str:
    """Return torch's reason, and whose doing it is where torch's words are of its inside.

    DDPOptimizer runs each bucket once on fake tensors: https://github.com/pytorch/pytorch/pull/120523.
    """
    reason = str(graph.autograd_bypass)
    is_bucket = "fakify_first_call" in reason
    return f"{reason}: torch's way with each bucket that DDPOptimizer cuts" if is_bucket else reason


def step_text(analysis: Analysis, step: Step) -> str:
    """Return one line that says how long a step took, and which part the device was busy.

    Args:
        analysis: an analysis.
        step: one of its steps.
    """
    lines = [line for line in analysis.ledger if line.step == step.number]
    total = sum(line.duration_ns for line in lines)
    busy = sum(line.duration_ns for line in lines if line.scope != Scope.IDLE)
    text = f"step {step.number}: {time_text(step.wall_ns)}"
    return f"{text}, device busy {percent_text(busy, total)}" if total else text


def training_text(analysis: Analysis, steps_ns: Sequence[int]) -> str:
    """Return one line on the steps before the recording, and how busy they keep the device.

    A recording slows the CPU and not the device: what that runs for a step takes as long in both.

    Args:
        analysis: an analysis with steps.
        steps_ns: how long each of them took.
    """
    least, most = min(steps_ns), max(steps_ns)
    is_one = time_text(least) == time_text(most)
    times = time_text(least) if is_one else range_text(least, most)
    busy_ns = sum(line.duration_ns for line in analysis.ledger if line.scope != Scope.IDLE)
    devices = len({line.device for line in analysis.ledger})
    part = percent_text(busy_ns / devices / len(analysis.steps), median_low(steps_ns))
    return f"{len(steps_ns)} steps without a profiler: {times}, device busy {part}"
