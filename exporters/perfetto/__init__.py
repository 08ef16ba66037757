"""The native Perfetto trace: of a session, of several ranks, of both sides of a comparison.

The first recorded steps of all runs begin at one moment, that of the run which was recorded longest
before its first one. Processes of different runs can have one number, so each run's threads are in
a group that says whose they are.

A trace cannot say which groups are open (https://github.com/google/perfetto/issues/1342); the
viewer's address can, by its commands for automation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from profiler_ext.comparison.sides import RunOfRanks
from profiler_ext.errors import TraceError
from profiler_ext.exporters.perfetto.compiles import draw_compiles
from profiler_ext.exporters.perfetto.device import draw_devices
from profiler_ext.exporters.perfetto.flows import Flows
from profiler_ext.exporters.perfetto.host import draw_host
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
    """Write the analyses of several ranks as one Perfetto trace; each rank has its own groups.

    Files of single ranks can be joined by hand too: their bytes one after the other.
    """
    zero_ns = min((analysis.recording.trace.base_ns for analysis in analyses), default=0)
    drawn = [
        RankTrace(each, each.recording.settings.rank, each.recording.trace.base_ns - zero_ns)
        for each in analyses
    ]
    return write_trace(drawn, path, zero_ns, peaks)


@dataclass(frozen=True, slots=True)
class RankTrace:
    """What is drawn of one rank of a run."""

    analysis: Analysis  # what was found
    number: int  # tells it from all others of the trace
    shift_ns: int  # what to add to its times, so that all count from one moment
    side: str = ""  # begins the names of its tracks, where runs are compared


def write_trace(
    every: Sequence[RankTrace], path: Path, zero_ns: int, peaks: Mapping[str, Peak] = PEAKS
) -> Path:
    """Write what was found as one Perfetto trace."""
    starts_ns = [_start_ns(each.analysis.recording.trace.events) for each in every]
    # The trace processor wants the clock's word to come in order of time: all say the first.
    first_ns = min(
        (start + each.shift_ns for start, each in zip(starts_ns, every, strict=True)), default=0
    )
    with replacing(path) as file:
        for each in every:
            writer = PacketWriter(file, each.number, each.shift_ns)
            writer.clock(first_ns, zero_ns + first_ns)
            _draw(writer, Tracks(writer, each.side), each.analysis, peaks)
    return path


def _draw(
    writer: PacketWriter, tracks: Tracks, analysis: Analysis, peaks: Mapping[str, Peak]
) -> None:
    events = analysis.recording.trace.events
    flows, of_steps = Flows(analysis), RooflineTotals(analysis, peaks)
    draw_devices(writer, tracks, analysis, flows, Rates(analysis, peaks), of_steps)
    draw_host(writer, tracks, analysis.recording, flows.host_rows, flows.from_host)
    draw_compiles(writer, tracks, analysis)
    draw_places(writer, tracks, analysis, _start_ns(events))
    draw_rooflines(writer, tracks, analysis, of_steps, _start_ns(events))
    writer.flush()


def _start_ns(events: Events) -> int:
    start_ns = int(events.start_ns.min()) if len(events) else 0
    if start_ns < 0:
        raise TraceError(
            f"the trace has an event at {start_ns} ns, but Perfetto's times start at zero; "
            "record it again"
        )
    return start_ns


Sides = tuple[Sequence[RunOfRanks], Sequence[RunOfRanks]]


def export_sides(sides: Sides, path: Path) -> Path:
    """Write the runs of both sides as one Perfetto trace; each track's name begins with its side."""
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
    """Return what to add to a rank's times, so that all ranks of its run count from one moment."""
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
    """Return where a trace can be opened."""
    return (f"open {trace.name} at {VIEWER} which unfolds the GPU; it stays on this machine",)
