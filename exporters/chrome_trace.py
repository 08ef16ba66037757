"""The Kineto trace with our data added, which every reader of such traces still opens.

Only arguments are added: keys that begin with ``compile.``, and ``stack`` as torch's
``inductor_trace_handler`` writes it. Other tools count events, streams and correlations, so these
stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from profiler_ext.exporters import launch_parts
from profiler_ext.kineto.recording import write_recording
from profiler_ext.records.analysis import Analysis
from profiler_ext.records.events import Interned


def export_chrome_trace(analysis: Analysis, path: Path) -> Path:
    """Write the trace with attribution in the launches' arguments; ``.gz`` paths are compressed."""
    write_recording(path, analysis.recording, arguments(analysis))
    return path


def arguments(analysis: Analysis) -> Mapping[int, dict[str, object]]:
    """Return the arguments to add to each launch, by its event's position in the file, made lazily.

    Absent values are left out. Lists name the largest part first; ``compile.shares_ns`` is parallel
    to ``compile.nodes``.
    """
    return _Arguments(analysis)


class _Arguments(Mapping[int, dict[str, object]]):
    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._parts = launch_parts.PartColumns(analysis)
        self._keys = self._parts.keys()
        self._columns = _launch_columns(analysis)
        self._known: dict[bytes, dict[str, object]] = {}
        positions = analysis.recording.trace.events.position[analysis.launches.event].tolist()
        self._rows = {position: row for row, position in enumerate(positions)}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __contains__(self, position: object) -> bool:
        return position in self._rows

    def __getitem__(self, position: int) -> dict[str, object]:
        row = self._rows[position]
        values = {name: column[row] for name, column in self._columns.items()}
        shares = {"compile.shares_ns": self._parts.durations_ns(row)}
        return _present(values | shares) | self._of_places(row)

    def _of_places(self, row: int) -> dict[str, object]:
        # A kernel runs often with the same places; their texts are made once and shared.
        known = self._known.get(self._keys[row])
        if known is None:
            known = self._known[self._keys[row]] = _of_places(self._analysis, self._parts.of(row))
        return known


def _launch_columns(analysis: Analysis) -> dict[str, list[object]]:
    launches = analysis.launches
    graphs = [
        (None if number is None else analysis.recording.graphs[number])
        for number in launches.graph.tolist()
    ]
    return {
        "compile.scope": _texts(launches.scope),
        "compile.phase": _texts(launches.phase),
        "compile.evidence": _texts(launches.evidence),
        "compile.mechanism": _texts(launches.mechanism),
        "compile.gap": _texts(launches.gap),
        "compile.step": launches.step.tolist(),
        "compile.call_site": launches.call_site.tolist(),
        "compile.graph": [graph and graph.key for graph in graphs],
        "compile.compile_id": [graph and graph.compile_id for graph in graphs],
        "compile.source_module": [graph and graph.output_module for graph in graphs],
    }


def _texts(column: Interned) -> list[object]:
    return [column.strings[code] for code in column.codes.tolist()]


def _of_places(analysis: Analysis, numbers: Iterable[int]) -> dict[str, object]:
    places = [analysis.places[number] for number in numbers]
    return _present(
        {
            "compile.nodes": [launch_parts.node_text(place) for place in places],
            "compile.ops": launch_parts.distinct(places, lambda place: place.aten_op),
            "compile.lines": launch_parts.distinct(places, launch_parts.line_text),
            "compile.modules": launch_parts.distinct(places, launch_parts.module_text),
            "stack": launch_parts.distinct(places, launch_parts.stack_text),
        }
    )


def _present(values: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in values.items() if value not in (None, "", [])}
