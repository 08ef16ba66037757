"""Owns the native Perfetto trace: CPU threads, streams, what each launch computed, and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from profiler_ext.errors import TraceError
from profiler_ext.exporters.perfetto.compiles import draw_compiles
from profiler_ext.exporters.perfetto.device import draw_devices
from profiler_ext.exporters.perfetto.flows import Flows
from profiler_ext.exporters.perfetto.host import draw_host, rows_of_threads
from profiler_ext.exporters.perfetto.packets import PacketWriter
from profiler_ext.exporters.perfetto.places import draw_places
from profiler_ext.exporters.perfetto.queries import queries
from profiler_ext.exporters.perfetto.rates import Rates
from profiler_ext.exporters.perfetto.tracks import Tracks
from profiler_ext.files.writing import replacing
from profiler_ext.records import Analysis, Events
from profiler_ext.rooflines.peaks import PEAKS, Peak

__all__ = ["export_perfetto", "export_ranks", "queries"]


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
    shifts_ns = [analysis.recording.trace.base_ns - zero_ns for analysis in analyses]
    starts_ns = [_start_ns(analysis.recording.trace.events) for analysis in analyses]
    # The trace processor wants the clock's word to come in order of time: all say the first.
    first_ns = min(map(sum, zip(starts_ns, shifts_ns, strict=True)), default=0)
    with replacing(path) as file:
        for analysis, shift_ns in zip(analyses, shifts_ns, strict=True):
            writer = PacketWriter(file, analysis.recording.settings.rank, shift_ns)
            writer.clock(first_ns, zero_ns + first_ns)
            _draw(writer, analysis, peaks)
    return path


def _draw(writer: PacketWriter, analysis: Analysis, peaks: Mapping[str, Peak]) -> None:
    events = analysis.recording.trace.events
    tracks = Tracks(writer)
    flows = Flows(analysis)
    draw_devices(writer, tracks, analysis, flows, Rates(analysis, peaks))
    rows = rows_of_threads(events, flows.host_rows)
    draw_host(writer, tracks, analysis.recording, rows, flows.from_host)
    draw_compiles(writer, tracks, analysis)
    draw_places(writer, tracks, analysis, _start_ns(events))
    writer.flush()


def _start_ns(events: Events) -> int:
    start_ns = int(events.start_ns.min()) if len(events) else 0
    if start_ns < 0:
        raise TraceError(
            f"the trace has an event at {start_ns} ns, but Perfetto's times start at zero; "
            "record it again"
        )
    return start_ns
