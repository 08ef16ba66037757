"""The compile track: compilations within the trace, by phase."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from profiler_ext.exporters.compiled import lookups_text
from profiler_ext.exporters.perfetto.annotations import Argument
from profiler_ext.exporters.perfetto.packets import PacketWriter, listed
from profiler_ext.exporters.perfetto.tracks import Tracks, profiler_group
from profiler_ext.exporters.views.compiles import name_text
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.compiles import Compilation, CompileSpan

COMPILE = "compile"
_TRACK, _RANK = "compiling", 1


def draw_compiles(writer: PacketWriter, tracks: Tracks, analysis: Analysis) -> None:
    """Draw the phases of each compilation within the recorded time."""
    events = analysis.recording.trace.events
    start_ns = int(events.start_ns.min()) if len(events) else 0
    end_ns = int(events.end_ns.max()) if len(events) else -1
    spans = [
        span
        for each in analysis.recording.compiles
        for span in _spans(writer, analysis, each)
        if start_ns <= span[0] and span[1] <= end_ns
    ]
    if spans:
        group = profiler_group(tracks, analysis.recording.settings)
        tracks.draw(_TRACK, group, _RANK, listed(spans), nesting=True)


def _spans(
    writer: PacketWriter, analysis: Analysis, compiled: Compilation
) -> Iterator[tuple[int, int, bytes]]:
    settings = analysis.recording.settings
    row = {
        "compile_kind": compiled.kind,
        "compile_id": compiled.compile_id,
        "function": compiled.function,
        "file": compiled.file,
        "line": compiled.line,
        "resumed": compiled.is_resumed,
    }
    name, arguments = f"compile {name_text(row, settings)}", _arguments(compiled)
    for each in compiled.spans:
        if each.depth:
            yield _span(writer, f"{each.phase.label}: {each.name}", each, {})
        else:
            yield _span(writer, name, each, arguments)


def _span(
    writer: PacketWriter, name: str, span: CompileSpan, arguments: Mapping[str, Argument]
) -> tuple[int, int, bytes]:
    constant = writer.constant(name, COMPILE, {"compile_phase": span.phase.value, **arguments})
    return span.started_ns, span.started_ns + span.duration_ns, constant


def _arguments(compiled: Compilation) -> dict[str, Argument]:
    lists: dict[str, list[str]] = {
        "recompiled_as": [f"{each.compile_id}: {each.guard}" for each in compiled.recompiles],
        "graph_breaks": [each.reason for each in compiled.breaks],
        "caches": [each] if (each := lookups_text(compiled.lookups)) else [],
        "failure": [] if compiled.failure is None else [compiled.failure.reason],
    }
    return {name: texts for name, texts in lists.items() if texts}
