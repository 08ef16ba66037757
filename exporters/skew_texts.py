"""Owns how it reads for a person that ranks wait for one that comes last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from profiler_ext.exporters import tables
from profiler_ext.exporters.display_text import late_text, of_step_text, percent_text, short_path
from profiler_ext.exporters.placed_text import PlacedText
from profiler_ext.exporters.table_texts import records
from profiler_ext.records import Analysis, Settings


def skew_texts(analyses: Sequence[Analysis]) -> Iterator[PlacedText]:
    """Yield a line for each rank for which others waited, and what it did most then.

    Args:
        analyses: one for each rank, merged.
    """
    for analysis in analyses:
        rows = records(tables.skew(analysis))
        if rows:
            settings = analysis.recording.settings
            waited_ns = sum(row["duration_ns"] for row in rows)
            waited = of_step_text(waited_ns, len(analysis.steps))
            doing, line, part = _doing(rows, settings)
            yield PlacedText(
                f"rank {settings.rank} came last {_times(analysis)} times, others waited "
                f"{waited}: {doing}{' at ' if line else ''}",
                line,
                f" ({part})",
            )


def _times(analysis: Analysis) -> str:
    """Return to how many of the collectives in steps a rank came last."""
    found = analysis.communication
    in_steps = ~np.ma.getmaskarray(analysis.launches.step)[found.launch]
    late_ns = found.late_ns[in_steps]
    return f"{int((late_ns.filled(0) > 0).sum())} of {int(late_ns.count())}"


def _doing(rows: Sequence[Mapping[str, Any]], settings: Settings) -> tuple[str, str, str]:
    """Return what a late rank did for most of the time for which others waited, where, how much."""
    sums: dict[tuple[str, str], int] = {}
    for row in rows:
        known = row["file"] is not None
        line = f"{short_path(row['file'], settings)}:{row['line']}" if known else ""
        did = late_text(row), line
        sums[did] = sums.get(did, 0) + row["duration_ns"]
    most = max(sums, key=lambda each: sums[each])
    return *most, percent_text(sums[most], sum(sums.values()))
