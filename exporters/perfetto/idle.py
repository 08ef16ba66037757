"""Owns the spans in which a device ran nothing: named by what the CPU did, in few words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from profiler_ext.exporters.launch_places import line_text, position_text
from profiler_ext.exporters.perfetto.arguments import path_text
from profiler_ext.exporters.perfetto.lanes import Span, span_with
from profiler_ext.exporters.perfetto.packets import Argument, Constant, PacketWriter
from profiler_ext.kineto.names import graph_key
from profiler_ext.records import Analysis, GraphInstance, IdleSpan, Place

PYTHON = "Python outside of any op"
_MOST_LETTERS = 48


class IdleSpans:
    """Makes the spans in which the devices ran nothing."""

    def __init__(self, writer: PacketWriter, analysis: Analysis) -> None:
        """Sort the idle spans by device.

        Args:
            writer: encodes the slices.
            analysis: the idle spans and the graphs.
        """
        self._writer = writer
        graphs = analysis.recording.graphs
        self._graphs = {graph.key: graph for graph in graphs if graph.key is not None}
        self._constants: dict[tuple[object, ...], Constant] = {}
        self._by_device: dict[int, list[IdleSpan]] = defaultdict(list)
        for idle in analysis.idle:
            self._by_device[idle.device].append(idle)

    def of(self, device: int) -> Iterator[Span]:
        """Return the idle spans of a device, one span for each."""
        return map(self._span, self._by_device[device])

    def _span(self, idle: IdleSpan) -> Span:
        return span_with(
            idle.start_ns,
            idle.start_ns + idle.duration_ns,
            self._constant(idle),
            {"step": idle.step, "idle_ns": idle.duration_ns},
        )

    def _constant(self, idle: IdleSpan) -> Constant:
        key = (idle.cpu_activity, idle.file, idle.line, idle.code)
        if key not in self._constants:
            name, arguments = _told(idle, self._graphs)
            self._constants[key] = self._writer.constant(name, "idle", arguments)
        return self._constants[key]


def _told(idle: IdleSpan, graphs: dict[str, GraphInstance]) -> tuple[str, dict[str, Argument]]:
    """Return the name and the arguments of spans in which the CPU did the same."""
    did = idle.cpu_activity
    name = PYTHON if did is None else _short(did, graphs)
    arguments: dict[str, Argument] = {"cpu_activity": did or PYTHON}
    place = Place(file=idle.file, line=idle.line, code=idle.code)
    if (at := position_text(place)) is not None:
        name = f"waiting at {at}: {name}"
        arguments["source_lines"] = [line_text(place) or at]
        arguments["source_paths"] = [path_text(place) or at]
    return name, arguments


def _short(did: str, graphs: dict[str, GraphInstance]) -> str:
    graph = graphs.get(graph_key(did) or "")
    if graph is not None:
        part = "backward" if graph.runs_backward else "forward"
        return f"compiled graph {graph.compile_id or '?'} {part}"
    return did if len(did) <= _MOST_LETTERS else f"{did[: _MOST_LETTERS - 1]}…"
