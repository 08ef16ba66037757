"""Owns which FX nodes of a kernel are of a subject: its part of the generated code."""

from __future__ import annotations

import numpy as np

from profiler_ext.exporters.answers.explained import NodeFacts
from profiler_ext.exporters.explain.chosen import Chosen
from profiler_ext.records import FxNode, Ints, TensorSpec


def nodes_of_kernel(each: Chosen, kernel: str) -> tuple[list[NodeFacts], int]:
    """Return the nodes of a subject in the first launch of a kernel, and how many are of others.

    Args:
        each: what was chosen on a rank.
        kernel: Inductor's name of the kernel.
    """
    launches = each.analysis.launches
    of_kernel = each.launches[launches.kernel.where(kernel)[each.launches]]
    if not len(of_kernel):
        return [], 0
    first = int(of_kernel[0])
    graph = launches.graph[first]
    known = {} if graph is np.ma.masked else _by_name(each, int(graph))
    own, others = (_names(each, rows, first) for rows in (each.own, each.others))
    return [_node(name, known.get(name)) for name in own], len(others)


def _by_name(each: Chosen, graph: int) -> dict[str, FxNode]:
    return {node.name: node for node in each.analysis.recording.graphs[graph].nodes}


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
