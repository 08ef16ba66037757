"""Owns the native Perfetto trace: CPU threads, streams, what each launch computed, and steps."""

from __future__ import annotations

from pathlib import Path

from exporters.perfetto.device import draw_devices
from exporters.perfetto.flows import Flows
from exporters.perfetto.host import draw_host, rows_of_threads
from exporters.perfetto.lanes import Span
from exporters.perfetto.packets import PacketWriter
from exporters.perfetto.tracks import Tracks
from profiler_ext.errors import TraceError
from profiler_ext.records import Analysis, Events
from profiler_ext.writing import replacing

__all__ = ["export_perfetto"]


def export_perfetto(analysis: Analysis, path: Path) -> None:
    """Write an analysis as a Perfetto trace (``.pftrace``) for ui.perfetto.dev.

    Args:
        analysis: what to write.
        path: where; an existing file is replaced when the new one is whole.

    Raises:
        OutputError: The file cannot be written.
        TraceError: An event starts before the trace's time zero.
    """
    with replacing(path) as file:
        writer = PacketWriter(file)
        _draw(writer, analysis)
        writer.flush()


def _draw(writer: PacketWriter, analysis: Analysis) -> None:
    trace = analysis.recording.trace
    events = trace.events
    start_ns = _start_ns(events)
    writer.clock(start_ns, trace.base_ns + start_ns)
    tracks = Tracks(writer)
    flows = Flows(analysis)
    _draw_steps(writer, tracks, analysis)
    draw_devices(writer, tracks, analysis, flows)
    rows = rows_of_threads(events, flows.host_rows)
    draw_host(writer, tracks, events, analysis.recording.settings, rows, flows.from_host)


def _start_ns(events: Events) -> int:
    start_ns = int(events.start_ns.min()) if len(events) else 0
    if start_ns < 0:
        raise TraceError(
            f"the trace has an event at {start_ns} ns, but Perfetto's times start at zero; "
            "record it again"
        )
    return start_ns


def _draw_steps(writer: PacketWriter, tracks: Tracks, analysis: Analysis) -> None:
    spans = [
        Span(
            step.start_ns,
            step.end_ns,
            writer.constant(f"step {step.number}", "step", {"step": step.number}),
            {"wall_ns": step.wall_ns},
        )
        for step in analysis.steps
    ]
    tracks.draw("steps", None, 0, spans)
