"""Owns the native Perfetto trace: CPU threads, streams, what each launch computed, and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler_ext.errors import TraceError
from profiler_ext.exporters.perfetto.compiles import draw_compiles
from profiler_ext.exporters.perfetto.device import draw_devices
from profiler_ext.exporters.perfetto.flows import Flows
from profiler_ext.exporters.perfetto.host import draw_host
from profiler_ext.exporters.perfetto.packets import PacketWriter
from profiler_ext.exporters.perfetto.places import draw_places
from profiler_ext.exporters.perfetto.queries import queries
from profiler_ext.exporters.perfetto.rates import Rates
from profiler_ext.exporters.perfetto.step_rooflines import RooflineTotals, draw_rooflines
from profiler_ext.exporters.perfetto.tracks import Tracks
from profiler_ext.files.writing import replacing
from profiler_ext.records import Analysis, Events
from profiler_ext.rooflines.peaks import PEAKS, Peak

__all__ = ["Drawn", "export_perfetto", "export_ranks", "queries", "write_trace"]


def export_perfetto(analysis: Analysis, path: Path, peaks: Mapping[str, Peak] = PEAKS) -> Path:
    """Write an analysis as a Perfetto trace (``.pftrace``) for ui.perfetto.dev.

    Args:
        analysis: what to write.
        path: where; an existing file is replaced when the new one is whole.
        peaks: what devices can do at best, by the words of their names.

    Returns:
        The file.

    Raises:
        OutputError: The file cannot be written.
        TraceError: An event starts before the trace's time zero.
    """
    return export_ranks([analysis], path, peaks)


def export_ranks(
    analyses: Sequence[Analysis], path: Path, peaks: Mapping[str, Peak] = PEAKS
) -> Path:
    """Write the analyses of several ranks as one Perfetto trace; each rank has its own groups.

    Files of single ranks can be joined by hand too: their bytes one after the other.

    Args:
        analyses: one for each rank.
        path: where; an existing file is replaced when the new one is whole.
        peaks: what devices can do at best, by the words of their names.

    Returns:
        The file.

    Raises:
        OutputError: The file cannot be written.
        TraceError: An event starts before the trace's time zero.
    """
    zero_ns = min((analysis.recording.trace.base_ns for analysis in analyses), default=0)
    drawn = [
        RankTrace(each, each.recording.settings.rank, each.recording.trace.base_ns - zero_ns)
        for each in analyses
    ]
    return write_trace(drawn, path, zero_ns, peaks)


@dataclass(frozen=True, slots=True)
class RankTrace:
    """What is drawn of one rank of a run.

    Attributes:
        analysis: what was found.
        number: tells it from all others of the trace.
        shift_ns: what to add to its times, so that all count from one moment.
        side: begins the names of its tracks, where runs are compared.
    """

    analysis: Analysis
    number: int
    shift_ns: int
    side: str = ""


def write_trace(
    every: Sequence[RankTrace], path: Path, zero_ns: int, peaks: Mapping[str, Peak] = PEAKS
) -> Path:
    """Write what was found as one Perfetto trace.

    Args:
        every: what to draw.
        path: where; an existing file is replaced when the new one is whole.
        zero_ns: the moment from which times are counted, in nanoseconds since 1970.
        peaks: what devices can do at best, by the words of their names.

    Returns:
        The file.

    Raises:
        OutputError: The file cannot be written.
        TraceError: An event starts before the trace's time zero.
    """
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
