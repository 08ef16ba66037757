"""Owns the Perfetto trace of a comparison: both sides on one time axis, from their first steps on.

The first recorded steps of all runs begin at one moment, that of the run which was recorded longest
before its first one. Processes of different runs can have one number, so each run's threads are in
a group that says whose they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from profiler_ext.comparison.sides import RunOfRanks
from profiler_ext.exporters.perfetto import RankTrace, write_trace
from profiler_ext.rooflines.peaks import PEAKS, Peak

Sides = tuple[Sequence[RunOfRanks], Sequence[RunOfRanks]]


def export_sides(sides: Sides, path: Path, peaks: Mapping[str, Peak] = PEAKS) -> Path:
    """Write the runs of both sides as one Perfetto trace; each track's name begins with its side.

    Args:
        sides: the runs of the base, and of the head.
        path: where; an existing file is replaced when the new one is whole.
        peaks: what devices can do at best, by the words of their names.

    Returns:
        The file.

    Raises:
        OutputError: The file cannot be written.
        TraceError: An event starts before its trace's time zero.
    """
    named = [
        (run, name if len(runs) == 1 else f"{name} {number}")
        for name, runs in zip(("base", "head"), sides, strict=True)
        for number, run in enumerate(runs, 1)
    ]
    firsts_ns = [_first_step_ns(run) for run, _ in named]
    begin_ns = max(firsts_ns)
    shifted = [
        (analysis, begin_ns - first_ns + _shift_ns(run, place), name)
        for (run, name), first_ns in zip(named, firsts_ns, strict=True)
        for place, analysis in enumerate(run.analyses)
    ]
    drawn = [RankTrace(a, number, shift, name) for number, (a, shift, name) in enumerate(shifted)]
    first, shift_ns, _ = shifted[0]
    return write_trace(drawn, path, first.recording.trace.base_ns - shift_ns, peaks)


def _shift_ns(run: RunOfRanks, place: int) -> int:
    """Return what to add to a rank's times, so that all ranks of its run count from one moment."""
    bases_ns = [analysis.recording.trace.base_ns for analysis in run.analyses]
    return bases_ns[place] - min(bases_ns)


def _first_step_ns(run: RunOfRanks) -> int:
    return min(
        step.start_ns + _shift_ns(run, place)
        for place, analysis in enumerate(run.analyses)
        for step in analysis.steps
    )
