"""Owns the exact nodes of a Triton kernel's first call site, by the comment above the kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Set

from profiler_ext.capture.sites.exact_nodes import exact_nodes
from profiler_ext.capture.told.kernel_comments import KernelComment
from profiler_ext.capture.told.printed_graphs import PrintedGraph, PrintedNode

COPY = "aten.copy_.default"
_CONCATENATION = "aten.cat.default"


def resolved(
    comment: KernelComment, graph: PrintedGraph, written: Set[str], partial: dict[str, str]
) -> KernelComment | None:
    """Return a comment with FX nodes for buffers; ``None`` where that cannot be told.

    A buffer that bears no node's name holds a partial value of the node that leaves the kernel,
    or a mutated input; to read what is copied to an input is to read the input. What the
    kernel keeps for itself is left out.

    Args:
        comment: what stands above the kernel.
        graph: the graph.
        written: values that earlier launches wrote.
        partial: the nodes of which buffers hold partial values; added to.
    """
    known = {*graph.nodes, *graph.inputs}
    own = (comment.reads.keys() & set(comment.writes)) - known
    reads = {
        _mutated(name, graph, written): spec
        for name, spec in comment.reads.items()
        if name not in own
    }
    unnamed = [name for name in comment.writes if name not in known | own]
    left = _left(comment, graph) if unnamed else frozenset()
    if unnamed and (len(left) not in (1, len(unnamed)) or left & reads.keys()):
        return None
    if any(graph.nodes[name].target == _CONCATENATION for name in left):
        return None  # each part of it may be a kernel of its own
    if len(left) == 1:
        partial.update(dict.fromkeys(unnamed, next(iter(left))))
    reads = {partial.get(name, name): spec for name, spec in reads.items()}
    if not reads.keys() <= known:
        return None
    writes = (*(name for name in comment.writes if name in known), *sorted(left))
    return dataclasses.replace(comment, reads=reads, writes=writes)


def _mutated(name: str, graph: PrintedGraph, written: Set[str]) -> str:
    """What a kernel reads of an input that is mutated: comments name it after the mutation.

    Before the mutation that is the input, after it the value which was copied there.
    """
    node = graph.nodes.get(name)
    if node is None or node.target != COPY or node.inputs[0] not in graph.inputs:
        return name
    return node.inputs[1] if name in written else node.inputs[0]


def _left(comment: KernelComment, graph: PrintedGraph) -> Set[str]:
    """The nodes that a kernel's other nodes do not read, and that it does not write by name."""
    origins = frozenset(comment.origins) & graph.nodes.keys()
    read = {value for name in origins for value in graph.nodes[name].inputs}
    return origins - read - set(comment.writes)


def computed(
    comment: KernelComment, graph: PrintedGraph, written: Set[str], parts: Set[str]
) -> Set[str]:
    """Return what the first call site computes, by the rule of :mod:`.exact_nodes`.

    Args:
        comment: what stands above the kernel, its buffers resolved.
        graph: the graph.
        written: values that earlier launches wrote.
        parts: nodes of which it reads partial values: it finishes them and knows no inputs.
    """
    origins = frozenset(comment.origins) & graph.nodes.keys()

    def inputs(name: str) -> Sequence[str]:
        return () if name in parts or name not in graph.nodes else graph.nodes[name].inputs

    found: set[str] = set()
    for end in comment.writes:
        stop = comment.reads.keys() - parts
        stop = stop if end in written and end not in parts else stop - {end}
        found |= exact_nodes(origins, end, stop, inputs)
    given = found | comment.reads.keys()
    told = all(value in given for n in found - parts for value in _read(graph.nodes[n]))
    return found if told else frozenset()


def _read(node: PrintedNode) -> tuple[str, ...]:
    """What a node's kernel must be given; what a copy overwrites need not be read."""
    return node.inputs[1:] if node.target == COPY else node.inputs
