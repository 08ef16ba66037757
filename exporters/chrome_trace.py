"""Owns the Kineto trace with our data added, which every reader of such traces still opens.

Only arguments are added, under keys that begin with ``compile.``, and ``stack`` as torch's own
``inductor_trace_handler`` writes it: a list of printed stacks. Nothing else changes, since
other tools count events, streams and correlations.
"""

from __future__ import annotations

from pathlib import Path

from profiler_ext.exporters.launch_places import (
    Part,
    distinct,
    line_text,
    module_text,
    node_text,
    parts_of_launches,
    stack_text,
)
from profiler_ext.kineto.recording import write_recording
from profiler_ext.records import Analysis, GraphInstance, Interned


def export_chrome_trace(analysis: Analysis, path: Path) -> Path:
    """Write the trace with what is known of each launch in its event's arguments.

    Args:
        analysis: what to write.
        path: the file; compressed when its name ends with ``.gz``. It loads back as a session.

    Returns:
        The file.

    Raises:
        OutputError: The file cannot be written.
    """
    write_recording(path, analysis.recording, arguments(analysis))
    return path


def arguments(analysis: Analysis) -> dict[int, dict[str, object]]:
    """Say what is known of each launch, as arguments of its event.

    Args:
        analysis: what to say it of.

    Returns:
        For each launch the arguments to add, by the event's position in the file. Absent is
        left out; lists name the largest part first, ``compile.shares_ns`` goes along with
        ``compile.nodes``.
    """
    positions = analysis.recording.trace.events.position[analysis.launches.event].tolist()
    launch_parts = parts_of_launches(analysis)
    columns = _launch_columns(analysis)
    known: dict[tuple[int, ...], dict[str, object]] = {}
    arguments = {}
    for row, (position, parts) in enumerate(zip(positions, launch_parts, strict=True)):
        key = tuple(part.place for part in parts)
        # A kernel runs often with the same places; their texts are made once and shared.
        places = known[key] if key in known else known.setdefault(key, _of_places(analysis, key))
        values = {name: column[row] for name, column in columns.items()}
        arguments[position] = _present(values | _shares(parts)) | places
    return arguments


def _launch_columns(analysis: Analysis) -> dict[str, list[object]]:
    launches = analysis.launches
    graphs = [_of_graph(analysis, number) for number in launches.graph.tolist()]
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


def _of_graph(analysis: Analysis, number: int | None) -> GraphInstance | None:
    return None if number is None else analysis.recording.graphs[number]


def _of_places(analysis: Analysis, numbers: tuple[int, ...]) -> dict[str, object]:
    places = [analysis.places[number] for number in numbers]
    return _present(
        {
            "compile.nodes": [node_text(place) for place in places],
            "compile.ops": distinct(places, lambda place: place.aten_op),
            "compile.lines": distinct(places, line_text),
            "compile.modules": distinct(places, module_text),
            "stack": distinct(places, stack_text),
        }
    )


def _shares(parts: tuple[Part, ...]) -> dict[str, object]:
    return {"compile.shares_ns": [part.duration_ns for part in parts]}


def _present(values: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in values.items() if value not in (None, "", [])}
