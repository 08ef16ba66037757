"""Owns the spans in which a device ran nothing: named by what the CPU did, in few words."""

from __future__ import annotations

from collections.abc import Iterator

from profiler_ext.exporters.perfetto.lanes import Span, span_with
from profiler_ext.exporters.perfetto.packets import PacketWriter
from profiler_ext.kineto.names import graph_key
from profiler_ext.records import Analysis, GraphInstance, IdleSpan

PYTHON = "Python outside of any op"
_MOST_LETTERS = 48


def idle_spans(writer: PacketWriter, analysis: Analysis, device: int) -> Iterator[Span]:
    """Return the idle spans of a device.

    Args:
        writer: encodes the slices.
        analysis: the idle spans and the graphs.
        device: the device.

    Returns:
        One span for each.
    """
    graphs = {graph.key: graph for graph in analysis.recording.graphs if graph.key is not None}
    return (_span(writer, idle, graphs) for idle in analysis.idle if idle.device == device)


def _span(writer: PacketWriter, idle: IdleSpan, graphs: dict[str, GraphInstance]) -> Span:
    did = idle.cpu_activity
    return span_with(
        idle.start_ns,
        idle.start_ns + idle.duration_ns,
        writer.constant(
            PYTHON if did is None else _short(did, graphs), "idle", {"cpu_activity": did or PYTHON}
        ),
        {"step": idle.step, "idle_ns": idle.duration_ns},
    )


def _short(did: str, graphs: dict[str, GraphInstance]) -> str:
    graph = graphs.get(graph_key(did) or "")
    if graph is not None:
        part = "backward" if graph.runs_backward else "forward"
        return f"compiled graph {graph.compile_id or '?'} {part}"
    return did if len(did) <= _MOST_LETTERS else f"{did[: _MOST_LETTERS - 1]}…"
