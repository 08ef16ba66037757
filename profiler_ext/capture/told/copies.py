"""Owns the search for copies of a part of a graph: the same calls, tied by the same edges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from profiler_ext.capture.told.printed_graphs import PrintedGraph

Copy = Mapping[str, str]
"""Each node of the part, and each value that it reads, to the one in its place."""

_LIMIT = 512


def copies_of(part: Set[str], graph: PrintedGraph) -> list[Copy]:
    """Return all copies of a part of a graph, the part itself among them.

    Args:
        part: names of its nodes.
        graph: the graph around it.

    Returns:
        The copies; empty where there are more than can be looked through.
    """
    read = {value for name in part for value in graph.nodes[name].inputs}
    ends = [name for name in reversed(list(graph.nodes)) if name in part and name not in read]
    found: list[Copy] = []
    for copy in _copies(part, graph, ends, {}):
        found.append(copy)
        if len(found) > _LIMIT:
            return []
    return found


def _copies(part: Set[str], graph: PrintedGraph, ends: list[str], so_far: Copy) -> Iterator[Copy]:
    if not ends:
        yield so_far
        return
    end = graph.nodes[ends[0]]
    for name, node in graph.nodes.items():
        fits = node.call == end.call and _agrees(end.inputs, node.inputs, so_far)
        if fits and (grown := _grown(part, graph, so_far, end.name, name)) is not None:
            yield from _copies(part, graph, ends[1:], grown)


def _agrees(inputs: tuple[str, ...], others: tuple[str, ...], so_far: Copy) -> bool:
    return all(so_far.get(i, other) == other for i, other in zip(inputs, others, strict=True))


def _grown(part: Set[str], graph: PrintedGraph, so_far: Copy, end: str, other: str) -> Copy | None:
    """Lead an end and all that it is made of to another node; ``None`` where they differ."""
    copy = dict(so_far)
    taken = {value for name, value in copy.items() if name in part}
    todo = [(end, other)]
    while todo:
        one, its_copy = todo.pop()
        if one in copy or one not in part:
            if copy.setdefault(one, its_copy) != its_copy:
                return None
            continue
        here, there = graph.nodes[one], graph.nodes.get(its_copy)
        if there is None or its_copy in taken or here.call != there.call:
            return None
        copy[one] = its_copy
        taken.add(its_copy)
        todo.extend(zip(here.inputs, there.inputs, strict=True))
    return copy
