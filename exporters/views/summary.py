"""The summary lines of a session: heading, notes, coverage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, Unpack

from profiler_ext.exporters import table_kinds, tables
from profiler_ext.exporters.tables.selection import Filters
from profiler_ext.exporters.views.formatting import (
    gap_text,
    peak_text,
    per_step_text,
    percent_text,
    require_top,
    time_text,
)
from profiler_ext.findings import Findings
from profiler_ext.memory.over_time import highest
from profiler_ext.printable import printable
from profiler_ext.records.analysis import Analysis, BreakdownRow
from profiler_ext.records.memory import CPU
from profiler_ext.records.recording import Settings
from profiler_ext.records.vocabulary import Level, Scope

_MAX_RANKS_LISTED = 8


class SessionLike(Protocol):
    """A session, or the sessions of several ranks."""

    @property
    def analyses(self) -> tuple[Analysis, ...]:
        """The analyses, one for each rank."""

    @property
    def recommendations(self) -> Findings:
        """Top recommendations."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user."""

    def columns(self, name: str, *arguments: Any, **filters: Unpack[Filters]) -> tables.Table:
        """Return a table by its name."""


def heading(analysis: Analysis) -> str:
    """Return a one-line heading: command, torch, devices, rank, steps, launches."""
    settings = analysis.recording.settings
    rank = f"rank {settings.rank} of {settings.world_size}" if settings.world_size > 1 else ""
    return _heading(analysis, rank, analysis.launch_count)


def heading_of_ranks(analyses: Sequence[Analysis]) -> str:
    """Return a one-line heading for several ranks."""
    launches = sum(analysis.launch_count for analysis in analyses)
    return _heading(analyses[0], f"{len(analyses)} ranks", launches)


def _heading(analysis: Analysis, rank: str, launches: int) -> str:
    settings = analysis.recording.settings
    parts = [
        _command_text(settings),
        f"torch {settings.torch_version}" if settings.torch_version else "",
        ", ".join(analysis.device_names),
        rank,
        _steps_text(analysis),
        f"{launches:,} launches",
    ]
    return printable(" · ".join(filter(None, parts)))


def _steps_text(analysis: Analysis) -> str:
    count, of = len(analysis.steps), analysis.recording.settings.step_call
    calls = f" (calls of {of})" if of else ""
    return f"{count} step{'s' if count != 1 else ''}{calls}"


def _command_text(settings: Settings) -> str:
    program = settings.command[0] if settings.command else "profile"
    # A notebook's command line is the kernel's.
    return "notebook" if "ipykernel" in program else " ".join(settings.command) or program


def note_texts(analyses: Sequence[Analysis]) -> list[str]:
    """Return attribution's notes for the user, each once."""
    ranks: dict[str, list[int]] = {}
    for analysis in analyses:
        for note in analysis.notes:
            ranks.setdefault(note, []).append(analysis.recording.settings.rank)
    several = len(analyses) > 1
    lines = (f"{_ranks_text(of)}: {note}" if several else note for note, of in ranks.items())
    return list(map(printable, lines))


def _ranks_text(ranks: Sequence[int]) -> str:
    if len(ranks) > _MAX_RANKS_LISTED:
        return f"{len(ranks)} ranks, the first {ranks[0]}"
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def table_text(table: tables.Table, top: int | None, format: str) -> str:
    """Return the first rows of a table as ``csv`` or ``md``."""
    return table_kinds.printed(first_rows(table, top), format)


def first_rows(table: tables.Table, top: int | None) -> tables.Table:
    """Return the first ``top`` rows."""
    return table if top is None else table.head(require_top(top))


def records(table: tables.Table) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries, absent values as ``None``."""
    return table.records()


def attributed_texts(analyses: Sequence[Analysis]) -> dict[Scope, str]:
    """Return how much of each scope's device time is attributed to source lines."""
    breakdown = [line for analysis in analyses for line in analysis.breakdown]
    spent = {line.scope for line in breakdown if line.duration_ns}
    texts = {
        scope: f"{tables.fraction_of(breakdown, Level.LINE, scope):.1%} attributed to source"
        for scope in (Scope.COMPILED, Scope.EAGER)
        if scope in spent
    }
    eager = [line for line in breakdown if line.scope == Scope.EAGER and line.duration_ns]
    if eager and all(line.level == Level.OP for line in eager):
        longest = max(eager, key=lambda line: line.duration_ns)
        reason = f": {gap_text(longest.category)}" if longest.category != "op" else ""
        texts[Scope.EAGER] = f"ATen ops only{reason}"
    return texts


def coverage_lines(analyses: Sequence[Analysis]) -> tuple[str, ...]:
    """Return how much device time is attributed to lines, and backward time to forward ops.

    Eager work is left out if no lines were recorded.
    """
    breakdown = [line for analysis in analyses for line in analysis.breakdown]
    is_watched = any(analysis.recording.python is not None for analysis in analyses)
    scopes = (Scope.COMPILED, Scope.EAGER) if is_watched else (Scope.COMPILED,)
    spent = {line.scope for line in breakdown if line.duration_ns}
    parts = [
        f"{scope} {100 * tables.fraction_of(breakdown, Level.LINE, scope):.1f}%"
        for scope in scopes
        if scope in spent
    ]
    texts = [f"Attributed to source: {', '.join(parts)}."] if parts else []
    if (linked := tables.fraction_linked_to_forward(analyses)) is not None:
        texts.append(f"Backward matched to forward: {100 * linked:.1f}%.")
    return (*texts, *_gaps_texts(breakdown), *_communication_texts(analyses))


def _gaps_texts(breakdown: Sequence[BreakdownRow]) -> Iterator[str]:
    """Yield the gaps by the names that the documentation explains."""
    busy = sum(line.duration_ns for line in breakdown if line.scope != Scope.IDLE)
    gaps = tables.gap_times_ns((line.category, line.duration_ns) for line in breakdown)
    if gaps:
        parts = (f"{gap} {percent_text(time, busy)}" for gap, time in gaps.items())
        yield f"Unattributed, of busy time: {', '.join(parts)}."


def _communication_texts(analyses: Sequence[Analysis]) -> Iterator[str]:
    """Yield how much communication is exposed in a rank's mean step."""
    sums = dict.fromkeys(("duration_ns", "exposed_ns", "waiting_ns"), 0)
    for row in (row for analysis in analyses for row in records(tables.communication(analysis))):
        for name in sums:
            sums[name] += row[name] or 0
    steps = sum(len(analysis.steps) for analysis in analyses)
    of_step = {name: spent_ns / max(steps, 1) for name, spent_ns in sums.items()}
    total, exposed, waiting = of_step.values()
    if total:
        waits = f"; {time_text(waiting)} waiting for the last rank" if waiting else ""
        parts = f"{time_text(exposed)} exposed, {time_text(total - exposed)} overlapped{waits}"
        yield f"Communication {per_step_text(sums['duration_ns'], steps)}: {parts}."


def peak_texts(analyses: Sequence[Analysis]) -> Iterator[str]:
    """Yield a sentence on the highest peak of each GPU's memory; without one, the CPU's."""
    for analysis in analyses:
        settings = analysis.recording.settings
        of_rank = f"Rank {settings.rank}: " if len(analyses) > 1 else ""
        on_gpu = [peak for peak in highest(analysis) if peak.device != CPU]
        for peak in on_gpu or highest(analysis):
            place, device = peak.place, None if peak.device == CPU else peak.device
            at = {"at_phase": place.phase, "at_file": place.file, "at_line": place.line}
            row = {"device": device, "step": peak.step, **at}
            yield printable(of_rank + peak_text(row, peak.peak_bytes, settings))


def filters_text(filters: Filters, shown_ns: int, all_ns: int) -> str:
    """Return a table's filters and how much they leave out, ``""`` without any."""
    if not (given := [f"{name} {value}" for name, value in filters.items() if value is not None]):
        return ""
    left_ns = all_ns - shown_ns
    part = percent_text(left_ns, all_ns) or "nothing"
    left_out = f"leaves out {time_text(left_ns)} of {time_text(all_ns)}, {part}"
    return f"filter: {', '.join(given)} ({left_out}; what stands above is not filtered)"
