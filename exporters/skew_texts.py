"""Owns how it reads for a person that ranks wait for one that comes last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from profiler_ext.exporters import tables
from profiler_ext.exporters.display_text import delay_cause_text, per_step_text, percent_text, short_path
from profiler_ext.exporters.placed_text import LineText
from profiler_ext.exporters.table_texts import records
from profiler_ext.records import Analysis, Settings


def skew_texts(analyses: Sequence[Analysis]) -> Iterator[LineText]:
    """Yield a line for each rank for which others waited, and what it did most then.

    Args:
        analyses: one for each rank, merged.
    """
    for analysis in analyses:
        rows = records(tables.skew(analysis))
        if rows:
            settings = analysis.recording.settings
            waited_ns = sum(row["duration_ns"] for row in rows)
            waited = per_step_text(waited_ns, len(analysis.steps))
            activity, line, part = _main_activity(rows, settings)
            yield LineText(
                f"rank {settings.rank} came last {_last_count(analysis)} times, others waited "
                f"{waited}: {activity}{' at ' if line else ''}",
                line,
                f" ({part})",
            )


def _last_count(analysis: Analysis) -> str:
    """Return to how many of the collectives in steps a rank came last."""
    collectives = analysis.communication
    in_steps = ~np.ma.getmaskarray(analysis.launches.step)[collectives.launch]
    late_ns = collectives.late_ns[in_steps]
    return f"{int((late_ns.filled(0) > 0).sum())} of {int(late_ns.count())}"


def _main_activity(rows: Sequence[Mapping[str, Any]], settings: Settings) -> tuple[str, str, str]:
    """Return what a late rank did for most of the time for which others waited, where, how much."""
    sums: dict[tuple[str, str], int] = {}
    for row in rows:
        known = row["file"] is not None
        line = f"{short_path(row['file'], settings)}:{row['line']}" if known else ""
        activity = delay_cause_text(row), line
        sums[activity] = sums.get(activity, 0) + row["duration_ns"]
    most = max(sums, key=lambda each: sums[each])
    return *most, percent_text(sums[most], sum(sums.values()))
