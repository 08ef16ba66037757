"""The native Perfetto trace: of a session, of several ranks, of both sides of a comparison.

Compared runs are aligned at their first recorded step. Different runs can share a process number,
so each run's threads are in a group that names the run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from profiler_ext.comparison.sides import RunOfRanks
from profiler_ext.errors import TraceError
from profiler_ext.exporters.perfetto import window
from profiler_ext.exporters.perfetto.compiles import draw_compiles
from profiler_ext.exporters.perfetto.device import draw_devices
from profiler_ext.exporters.perfetto.flows import Flows
from profiler_ext.exporters.perfetto.host import draw_host
from profiler_ext.exporters.perfetto.memory import draw_memory
from profiler_ext.exporters.perfetto.packets import PacketWriter
from profiler_ext.exporters.perfetto.queries import (
    RooflineTotals,
    draw_places,
    draw_rooflines,
    queries,
)
from profiler_ext.exporters.perfetto.rates import Rates
from profiler_ext.exporters.perfetto.tracks import Tracks
from profiler_ext.file_io import replacing
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Events
from profiler_ext.rooflines.peaks import PEAKS, Peak

__all__ = ["Drawn", "export_perfetto", "export_ranks", "queries", "write_trace"]


def export_perfetto(analysis: Analysis, path: Path, peaks: Mapping[str, Peak] = PEAKS) -> Path:
    """Write an analysis as a Perfetto trace (``.pftrace``) for ui.perfetto.dev."""
    return export_ranks([analysis], path, peaks)


def export_ranks(
    analyses: Sequence[Analysis], path: Path, peaks: Mapping[str, Peak] = PEAKS
) -> Path:
    """Write several ranks as one Perfetto trace; each rank has its own groups.

    Traces of single ranks can also be joined by concatenating their files.
    """
    zero_ns = min((analysis.recording.trace.base_ns for analysis in analyses), default=0)
    drawn = [
        RankTrace(each, each.recording.settings.rank, each.recording.trace.base_ns - zero_ns)
        for each in analyses
    ]
    return write_trace(drawn, path, zero_ns, peaks)


@dataclass(frozen=True, slots=True)
class RankTrace:
    """One rank of a run, to draw."""

    analysis: Analysis
    number: int  # unique in the trace
    shift_ns: int  # aligns the ranks' clocks
    side: str = ""  # prefix of track names in comparisons


def write_trace(
    every: Sequence[RankTrace], path: Path, zero_ns: int, peaks: Mapping[str, Peak] = PEAKS
) -> Path:
    """Write ranks as one Perfetto trace."""
    starts_ns = [_start_ns(each.analysis.recording.trace.events) for each in every]
    # The trace processor wants clock snapshots in time order, so all state the first time.
    first_ns = min(
        (start + each.shift_ns for start, each in zip(starts_ns, every, strict=True)), default=0
    )
    last_ns = max((_end_ns(each.analysis) + each.shift_ns for each in every), default=0)
    with replacing(path) as file:
        for each in every:
            writer = PacketWriter(file, each.number, each.shift_ns)
            writer.clock(first_ns, zero_ns + first_ns)
            tracks = Tracks(writer, each.side)
            analysis = each.analysis
            flows, of_steps = Flows(analysis), RooflineTotals(analysis, peaks)
            draw_devices(writer, tracks, analysis, flows, Rates(analysis, peaks), of_steps)
            draw_host(writer, tracks, analysis.recording, flows)
            draw_compiles(writer, tracks, analysis)
            draw_memory(writer, tracks, analysis)
            draw_places(writer, tracks, analysis, last_ns - each.shift_ns)
            draw_rooflines(writer, tracks, analysis, of_steps, last_ns - each.shift_ns)
            writer.flush()
    return path


def _start_ns(events: Events) -> int:
    start_ns = int(events.start_ns.min()) if len(events) else 0
    if start_ns < 0:
        raise TraceError(
            f"the trace has an event at {start_ns} ns, but Perfetto's times start at zero; "
            "record it again"
        )
    return start_ns


def _end_ns(analysis: Analysis) -> int:
    """Return the end of what is drawn."""
    ends_ns = (step.end_ns for step in analysis.steps)
    return max([window.end_ns(analysis.recording.trace.events), *ends_ns])


Sides = tuple[Sequence[RunOfRanks], Sequence[RunOfRanks]]


def export_sides(sides: Sides, path: Path) -> Path:
    """Write both sides of a comparison as one Perfetto trace; tracks are prefixed with the side."""
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
    return write_trace(drawn, path, first.recording.trace.base_ns - shift_ns)


def _shift_ns(run: RunOfRanks, place: int) -> int:
    """Return the offset of a rank's clock from its run's earliest."""
    bases_ns = [analysis.recording.trace.base_ns for analysis in run.analyses]
    return bases_ns[place] - min(bases_ns)


def _first_step_ns(run: RunOfRanks) -> int:
    return min(
        step.start_ns + _shift_ns(run, place)
        for place, analysis in enumerate(run.analyses)
        for step in analysis.steps
    )


_GROUPS = "^((rank [0-9]+|base|head): )*(GPU|CPU compute)"
_UNFOLD = json.dumps(
    [{"id": "dev.perfetto.ExpandTracksByRegex", "args": [_GROUPS]}], separators=(",", ":")
)
VIEWER = f"https://ui.perfetto.dev/#!/?startupCommands={quote(_UNFOLD, safe='')}"


def how_to_view(trace: Path) -> tuple[str, ...]:
    """Return where to open a trace."""
    return (f"open {trace.name} at {VIEWER} which unfolds the GPU; it stays on this machine",)
