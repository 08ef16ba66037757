"""Owns how idle time reads for a person: by cause, and where the CPU was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from profiler_ext.exporters import tables
from profiler_ext.exporters.activity_names import ActivityNames
from profiler_ext.exporters.display_text import (
    cause_text,
    per_step_text,
    percent_text,
    short_path,
    time_text,
)
from profiler_ext.exporters.placed_text import LineText
from profiler_ext.exporters.table_texts import records
from profiler_ext.printable import printable
from profiler_ext.records import Analysis, IdlePieces, Place, Settings, first_rows, numbered

_SHOWN_CAUSES = 6


def idle_texts(analysis: Analysis, most: int) -> list[LineText]:
    """Return lines that say why devices ran nothing for most of their idle time, largest first.

    Args:
        analysis: what attribution found.
        most: so many lines at most, besides one that says how much is left.
    """
    named = ActivityNames(analysis.recording.graphs)
    sums: dict[LineText, int] = {}
    for (cause, place, activity), duration_ns in _distinct(analysis.idle):
        text = _placed(cause, place, activity, analysis.recording.settings, named)
        sums[text] = sums.get(text, 0) + duration_ns
    largest = sorted(sums.items(), key=lambda each: -each[1])
    steps = len(analysis.steps)
    shown = largest[:most]
    if rest := largest[most:]:
        left_ns = sum(duration_ns for _, duration_ns in rest)
        shown.append((LineText(f"{len(rest)} more causes and lines"), left_ns))
    return [
        replace(text, before=f"idle {per_step_text(took_ns, steps)}: {text.before}")
        for text, took_ns in shown
    ]


def cause_times(table: tables.DataFrame) -> list[tuple[str, int]]:
    """Return the causes of idle time in words, each with its time; together they are all of it.

    Args:
        table: a table of idle time.
    """
    sums: dict[str, int] = {}
    for row in records(table):
        sums[row["cause"]] = sums.get(row["cause"], 0) + row["duration_ns"]
    return top_causes(sums)


def cause_sums(analyses: Iterable[Analysis], step: int | None = None) -> dict[str, int]:
    """Return the idle time of each cause.

    Args:
        analyses: one for each rank.
        step: only this step.
    """
    sums: dict[str, int] = {}
    for idle in (analysis.idle for analysis in analyses):
        chosen = idle.step == step if step is not None else np.ones(len(idle), np.bool_)
        times = np.zeros(len(idle.cause.strings), np.int64)
        np.add.at(times, idle.cause.codes[chosen], idle.duration_ns[chosen])
        for cause, time in zip(idle.cause.strings, times.tolist(), strict=True):
            if time:
                sums[cause] = sums.get(cause, 0) + time
    return sums


def top_causes(sums: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the largest causes of idle time in words, and what all others are together.

    Args:
        sums: cause to its time.
    """
    parts = sorted(sums.items(), key=lambda part: -part[1])
    most = len(parts) if len(parts) == _SHOWN_CAUSES + 1 else _SHOWN_CAUSES
    rest = parts[most:]
    shown = [(cause_text(cause), duration_ns) for cause, duration_ns in parts[:most]]
    more = [(f"({len(rest)} more causes)", sum(duration_ns for _, duration_ns in rest))]
    return shown + (more if rest else [])


def causes_text(analysis: Analysis) -> str:
    """Return one line that says how much of the idle time each cause has."""
    parts = cause_times(tables.idle_by_cause(analysis))
    total = sum(duration_ns for _, duration_ns in parts)
    shares = (f"{words} {percent_text(duration_ns, total)}" for words, duration_ns in parts)
    return printable(f"device idle {time_text(total)}: {', '.join(shares)}")


def _distinct(idle: IdlePieces) -> Iterator[tuple[tuple[str, Place, str | None], int]]:
    """Yield each cause with its place and what the CPU did, and how long that was."""
    columns = (idle.cause.codes, idle.cause_place, idle.cpu_activity.codes)
    group = numbered(columns)
    firsts = first_rows(group)
    sums = np.zeros(len(firsts), dtype=np.int64)
    np.add.at(sums, group, idle.duration_ns)
    groups = zip(*(column[firsts].tolist() for column in columns), sums.tolist(), strict=True)
    for cause, place, activity, duration_ns in groups:
        shares = (idle.cause.strings[cause], idle.places[place], idle.cpu_activity.strings[activity])
        yield (shares[0], shares[1], shares[2] or None), duration_ns


def _placed(
    cause: str, place: Place, activity: str | None, settings: Settings, named: ActivityNames
) -> LineText:
    words = cause_text(cause)
    if place.file is None:
        return LineText(f"{words}, the CPU in {named.short(activity)}")
    line = f"{short_path(place.file, settings)}:{place.line}"
    return LineText(f"{words} at ", line, f"  {place.code}" if place.code else "")
