"""Idle time and stragglers as text: by cause, with the source line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from profiler_ext.exporters import tables
from profiler_ext.exporters.views import formatting
from profiler_ext.exporters.views.summary import records
from profiler_ext.printable import printable
from profiler_ext.records.analysis import Analysis, IdlePieces, Place
from profiler_ext.records.events import first_rows, numbered
from profiler_ext.records.recording import Settings
from profiler_ext.records.share_sums import sum_by, sum_by_name

_SHOWN_CAUSES = 6


@dataclass(frozen=True, slots=True)
class LineText:
    """A sentence around a source line, if any."""

    before: str
    line: str = ""  # ``model.py:12``, or ``""``
    after: str = ""

    @property
    def text(self) -> str:
        """The sentence, without terminal control codes."""
        return printable(f"{self.before}{self.line}{self.after}")


def idle_texts(analysis: Analysis, most: int) -> list[LineText]:
    """Return the main reasons for idle time, at most ``most`` and a rest, longest first."""
    named = formatting.ActivityNames(analysis.recording.graphs)
    settings = analysis.recording.settings
    sums = sum_by_name(
        (_placed(*each, settings, named), duration_ns)
        for each, duration_ns in _distinct(analysis.idle)
    )
    largest = sorted(sums.items(), key=lambda each: -each[1])
    steps = len(analysis.steps)
    shown = largest[:most]
    if rest := largest[most:]:
        left_ns = sum(duration_ns for _, duration_ns in rest)
        shown.append((LineText(f"{len(rest)} more"), left_ns))
    return [
        replace(text, before=f"idle {formatting.per_step_text(took_ns, steps)}: {text.before}")
        for text, took_ns in shown
    ]


def cause_times(table: tables.Table) -> list[tuple[str, int]]:
    """Return the causes of idle time in words, with times that sum to all of it."""
    return top_causes(sum_by_name((row["cause"], row["duration_ns"]) for row in records(table)))


def cause_sums(analyses: Iterable[Analysis], step: int | None = None) -> dict[str, int]:
    """Return the idle time by cause."""
    every: list[tuple[str, int]] = []
    for idle in (analysis.idle for analysis in analyses):
        chosen = idle.step == step if step is not None else np.ones(len(idle), np.bool_)
        causes = idle.cause.strings
        times = sum_by(idle.cause.codes[chosen], idle.duration_ns[chosen], len(causes))
        every += zip(causes, times.tolist(), strict=True)
    return sum_by_name((cause, time) for cause, time in every if time)


def top_causes(sums: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the largest causes in words, and the rest as one."""
    parts = sorted(sums.items(), key=lambda part: -part[1])
    most = len(parts) if len(parts) == _SHOWN_CAUSES + 1 else _SHOWN_CAUSES
    rest = parts[most:]
    shown = [(formatting.cause_text(cause), duration_ns) for cause, duration_ns in parts[:most]]
    more = [(f"({len(rest)} more causes)", sum(duration_ns for _, duration_ns in rest))]
    return shown + (more if rest else [])


def causes_text(analysis: Analysis) -> str:
    """Return idle time by cause on one line."""
    parts = cause_times(tables.idle_by_cause(analysis))
    total = sum(duration_ns for _, duration_ns in parts)
    shares = (
        f"{words} {formatting.percent_text(duration_ns, total)}" for words, duration_ns in parts
    )
    return printable(f"device idle {formatting.time_text(total)}: {', '.join(shares)}")


def _distinct(idle: IdlePieces) -> Iterator[tuple[tuple[str, Place, str | None], int]]:
    """Yield each cause, place and CPU activity, with its time."""
    columns = (idle.cause.codes, idle.cause_place, idle.cpu_activity.codes)
    group = numbered(columns)
    firsts = first_rows(group)
    sums = sum_by(group, idle.duration_ns, len(firsts))
    groups = zip(*(column[firsts].tolist() for column in columns), sums.tolist(), strict=True)
    for cause, place, activity, duration_ns in groups:
        cpu_activity = idle.cpu_activity.strings[activity] or None
        yield (idle.cause.strings[cause], idle.places[place], cpu_activity), duration_ns


def _placed(
    cause: str,
    place: Place,
    activity: str | None,
    settings: Settings,
    named: formatting.ActivityNames,
) -> LineText:
    words = formatting.cause_text(cause)
    if place.file is None:
        return LineText(f"{words}, the CPU in {named.short(activity)}")
    line = f"{formatting.short_path(place.file, settings)}:{place.line}"
    return LineText(f"{words} at ", line, f"  {place.code}" if place.code else "")


def straggler_lines(analyses: Sequence[Analysis]) -> Iterator[LineText]:
    """Yield a line per rank that others waited for, with its main activity then."""
    for analysis in analyses:
        rows = records(tables.skew(analysis))
        if rows:
            settings = analysis.recording.settings
            waited_ns = sum(row["duration_ns"] for row in rows)
            waited = formatting.per_step_text(waited_ns, len(analysis.steps))
            activity, line, part = _main_activity(rows, settings)
            yield LineText(
                f"rank {settings.rank} came last {_last_count(analysis)} times, others waited "
                f"{waited}: {activity}{' at ' if line else ''}",
                line,
                f" ({part})",
            )


def _last_count(analysis: Analysis) -> str:
    """Return how many of the collectives in steps a rank came last to."""
    collectives = analysis.communication
    in_steps = analysis.launches.in_steps[collectives.launch]
    late_ns = collectives.late_ns[in_steps]
    return f"{int((late_ns.filled(0) > 0).sum())} of {int(late_ns.count())}"


def _main_activity(rows: Sequence[Mapping[str, Any]], settings: Settings) -> tuple[str, str, str]:
    """Return a late rank's main activity while others waited, its line, its fraction."""
    sums: dict[tuple[str, str], int] = {}
    for row in rows:
        known = row["file"] is not None
        line = f"{formatting.short_path(row['file'], settings)}:{row['line']}" if known else ""
        activity = formatting.delay_cause_text(row), line
        sums[activity] = sums.get(activity, 0) + row["duration_ns"]
    most = max(sums, key=lambda each: sums[each])
    return *most, formatting.percent_text(sums[most], sum(sums.values()))
