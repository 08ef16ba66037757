"""Owns which nodes of a printed graph mutate its inputs: epilogue copies, and foreach in place."""

from __future__ import annotations

import re
from collections.abc import Set

from profiler_ext.capture.told.commented_nodes import COPY
from profiler_ext.capture.told.printed_graphs import PrintedGraph, PrintedNode

_IN_PLACE = re.compile(r"aten\._foreach_\w+_\.")


def mutating(names: Set[str], graph: PrintedGraph) -> dict[str, str]:
    """Return the node that last mutates each of some inputs, where there is one."""
    return {
        name: node.name for node in graph.nodes.values() for name in names & set(_mutated(node))
    }


def made_since(held: Set[str], ends: Set[str], graph: PrintedGraph) -> Set[str]:
    """Return the nodes that some mutations are made of, from the values held before.

    Args:
        held: what the arguments hold: inputs, or nodes that mutated them before.
        ends: the mutations.
        graph: the graph.
    """
    before = [graph.nodes[name] for name in held if name in graph.nodes]
    stop = held | {value for node in before if node.target == COPY for value in node.inputs[1:]}
    found, todo = set[str](), list(ends)
    while todo:
        name = todo.pop()
        if name in graph.nodes and name not in found | stop:
            found.add(name)
            todo.extend(graph.nodes[name].inputs)
    return {name for name in found if graph.nodes[name].target != "getitem"}


def _mutated(node: PrintedNode) -> tuple[str, ...]:
    if node.target == COPY:
        return node.inputs[:1]
    if _IN_PLACE.match(node.target) is None:
        return ()
    first_list = node.call.partition("[")[2].partition("]")[0]
    return node.inputs[: first_list.count("_")]
