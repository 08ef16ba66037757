"""Owns which FX nodes of a kernel are of a subject: its part of the generated code."""

from __future__ import annotations

import numpy as np

from profiler_ext.exporters.answers.explained import NodeFacts
from profiler_ext.exporters.explain.chosen import Chosen
from profiler_ext.records import FxNode, GraphInstance, Ints, TensorSpec


def kernel_nodes(each: Chosen, kernel: str) -> tuple[list[NodeFacts], int]:
    """Return the nodes of a subject in the first launch of a kernel, and how many are of others.

    Args:
        each: what was chosen on a rank.
        kernel: Inductor's name of the kernel.
    """
    first = _first_launch(each, kernel)
    if first is None:
        return [], 0
    graph = _graph(each, first)
    known = {} if graph is None else {node.name: node for node in graph.nodes}
    own, others = (_names(each, rows, first) for rows in (each.own, each.others))
    return [_node(name, known.get(name)) for name in own], len(others)


def kernel_module(each: Chosen, kernel: str) -> str | None:
    """Return the path of the generated module that the first launch of a kernel is of.

    Args:
        each: what was chosen on a rank.
        kernel: Inductor's name of the kernel.
    """
    first = _first_launch(each, kernel)
    graph = None if first is None else _graph(each, first)
    return None if graph is None else graph.output_module


def _first_launch(each: Chosen, kernel: str) -> int | None:
    of_kernel = each.analysis.launches.kernel.where(kernel)[each.launches]
    rows = each.launches[of_kernel]
    return int(rows[0]) if len(rows) else None


def _graph(each: Chosen, launch: int) -> GraphInstance | None:
    graph = each.analysis.launches.graph[launch]
    return None if graph is np.ma.masked else each.analysis.recording.graphs[int(graph)]


def _names(each: Chosen, rows: Ints, launch: int) -> list[str]:
    places = each.place_of(rows[each.launch_of(rows) == launch]).tolist()
    names = (each.analysis.places[place].node for place in places)
    return [name for name in dict.fromkeys(names) if name is not None]


def _node(name: str, known: FxNode | None) -> NodeFacts:
    if known is None:
        return NodeFacts(name=name, target="", outputs=[])
    outputs = [_tensor(spec) for spec in known.outputs]
    return NodeFacts(name=name, target=known.target, outputs=outputs)


def _tensor(spec: TensorSpec) -> str:
    sizes = ", ".join(map(str, spec.size))
    return f"{spec.dtype.removeprefix('torch.')}[{sizes}]"
