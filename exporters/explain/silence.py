"""Owns why a line has no device time: its ops launch nothing, other lines have the time, or none.

What is told rests on the compiled graphs and the stacks of what ran; where neither names the line,
nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profiler_ext.exporters.display_text import short_path, time_text
from profiler_ext.exporters.explain.subjects import Kind, Subject, subject_label
from profiler_ext.records import Analysis, FxNode, GraphInstance

_MAX_TARGETS = 4


def silence(
    subject: Subject, analyses: Sequence[Analysis], called_ns: float, idle_ns: float
) -> str:
    """Return why a subject has no device time in the profiled steps.

    Args:
        subject: what has none.
        analyses: one for each rank.
        called_ns: device time of lines that it calls, in a step.
        idle_ns: time in which a device waited while the CPU was there, in a step.
    """
    if subject.kind is not Kind.LINE:
        return f"the {subject.kind} has no launch in the profiled steps"
    if called_ns:
        spent = time_text(called_ns)
        return f"it launches nothing itself: it calls lines that do, which took {spent} a step"
    nodes = [pair for each in analyses for pair in _nodes(each, subject)]
    if nodes:
        return _nodes_text(nodes)
    if idle_ns:
        return (
            "it launches nothing: while the CPU was there the device waited for "
            f"{time_text(idle_ns)} a step"
        )
    return _nearest_lines_text(subject, analyses[0])


def _nodes(analysis: Analysis, subject: Subject) -> Iterator[tuple[GraphInstance, FxNode]]:
    for graph in analysis.recording.graphs:
        for node in graph.nodes:
            stack = node.lineage.stack
            if any((frame.file, frame.line) == (subject.name, subject.line) for frame in stack):
                yield graph, node


def _nodes_text(nodes: Sequence[tuple[GraphInstance, FxNode]]) -> str:
    """Tell nodes that no call site computes from those whose call site was not launched."""
    computed = {name for graph, _ in nodes for site in graph.call_sites for name in site.nodes}
    targets = dict.fromkeys(node.target for _, node in nodes)
    listed = ", ".join(list(targets)[:_MAX_TARGETS]) + (", ..." if len(targets) > _MAX_TARGETS else "")
    if any(node.name in computed for _, node in nodes):
        return f"its ops ({listed}) are in compiled kernels that no profiled step launched"
    return (
        f"no kernel computes its ops ({listed}): they only change how memory is seen, or the "
        "compiler took them away"
    )


def _nearest_lines_text(subject: Subject, analysis: Analysis) -> str:
    lines = sorted(
        {
            place.line
            for place in analysis.places
            if place.file == subject.name and place.line is not None
        },
        key=lambda line: (abs(line - subject.line), line),
    )
    file = short_path(subject.name, analysis.recording.settings)
    nearest = [subject_label(Subject(Kind.LINE, subject.name, line), analysis) for line in lines[:3]]
    return (
        f"nothing that ran in the profiled steps names it: it launched nothing, or did not run; "
        f"the nearest lines of {file} with time are {', '.join(nearest)}"
    )
