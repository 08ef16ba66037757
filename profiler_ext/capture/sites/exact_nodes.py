"""Owns the exact node set of a kernel: what it computes, not what it merely reads.

Inductor's ``origins`` are a superset. The exact set is ``origins`` cut by the backward
slice from the node whose value the buffer holds, stopping at values read from buffers.
Upstream: https://github.com/pytorch/pytorch/issues/95022 (origins are of other kernels),
https://github.com/pytorch/pytorch/issues/189270 (the ops of each kernel are asked for).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import TypeVar

Node = TypeVar("Node")


def exact_nodes(
    origins: Set[Node],
    written: Node | None,
    read: Set[Node],
    inputs: Callable[[Node], Iterable[Node]],
) -> set[Node]:
    """Return the nodes that one scheduler node computes.

    Args:
        origins: what Inductor lists for it.
        written: the node whose value its buffer holds; ``None`` when it cannot be told.
        read: the nodes whose values it reads as buffers.
        inputs: the edges of the graph.

    Returns:
        The exact set; all of ``origins`` where ``written`` is unknown. The second stage of
        a split reduction reads and writes the value of one node and is that node alone. Of a
        buffer that is filled to be written into, Inductor lists the later writer alone: what
        fills it is ``written``.
    """
    if written is None:
        return set(origins)
    if written in read:
        return {written} & set(origins)
    computed: set[Node] = set()
    todo = [written]
    while todo:
        node = todo.pop()
        if node in computed or node in read:
            continue
        computed.add(node)
        todo.extend(inputs(node))
    return computed & set(origins) or {written}
