"""Owns what autograd tells while it works: its nodes' names and numbers.

Source: ``torch/csrc/autograd/function.h`` (``Node``), ``torch/csrc/autograd/init.cpp``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch.autograd.graph

from profiler_ext.torch_compat.names import running_names


class AutogradNode(NamedTuple):
    """A node of autograd: ``MulBackward0``, and the number that it was given when it was made."""

    name: str
    number: int


COPY_SLICES = "torch::autograd::CopySlices"
"""What differentiates an op that mutates a view; it is made with the op, and reaches the base."""

_LEAF_SEQUENCE_NR = 2**64 - 1
"""The number of all nodes that accumulate gradients of parameters and inputs."""

_INPUT_NODE = "torch::autograd::Error"
"""What torch puts in front of each input of a graph that it traces; it would raise if it ran."""

_GRAPH_ROOT = AutogradNode("torch::autograd::GraphRoot", _LEAF_SEQUENCE_NR - 1)
"""What hands a backward its first gradients; torch makes it after all other nodes."""

ANY_INPUT = -1
"""Stands for an input of a node that is handed a first gradient: which one is not known."""


class Edge(NamedTuple):
    """Where an autograd node hands a gradient: another node, and which of its inputs.

    Of those of parameters and inputs also the node itself: they may share a name and a number.
    """

    to: AutogradNode
    input: int
    leaf: object = None


Edges = Mapping[AutogradNode, tuple[Edge, ...]]
"""Where each autograd node hands its gradients, in the order in which it does."""


def current_autograd_node() -> AutogradNode | None:
    """Return the autograd node that runs in this thread."""
    node = _current()
    return None if node is None else _named(node)


def feeds_twice() -> bool:
    """Tell whether the node that runs hands two gradients to one input of another node."""
    node = _current()
    edges = Counter(node.next_functions) if node is not None else Counter()
    return any(count > 1 for (to, _), count in edges.items() if to is not None)


def note_edges(known: dict[AutogradNode, tuple[Edge, ...]]) -> None:
    """Add the edges of the node that runs, and of all that it leads to, to those known."""
    first = _current()
    _add_edges(known, () if first is None else (first,))


def edges_of_backward(
    roots: Iterable[torch.autograd.graph.Node],
) -> dict[AutogradNode, tuple[Edge, ...]]:
    """Return the edges of a whole backward, and along which its first gradients are handed in.

    Args:
        roots: the nodes of the values that it begins with.
    """
    first = tuple(roots)
    known = {_GRAPH_ROOT: tuple(Edge(_named(node), ANY_INPUT) for node in first)}
    _add_edges(known, first)
    return known


def _add_edges(
    known: dict[AutogradNode, tuple[Edge, ...]], first: Iterable[torch.autograd.graph.Node]
) -> None:
    todo = [(_named(node), node) for node in first]
    while todo:
        key, node = todo.pop()
        if key in known or _is_leaf(key):
            continue
        edges = [(_named(to), to, at) for to, at in node.next_functions if to is not None]
        known[key] = tuple([_edge(named, to, at) for named, to, at in edges])
        todo += [(named, to) for named, to, _ in edges]


def _is_leaf(node: AutogradNode) -> bool:
    """Tell whether a node is handed the gradient of a value that no op made."""
    return node.number == _LEAF_SEQUENCE_NR or node.name == _INPUT_NODE


def _named(node: torch.autograd.graph.Node) -> AutogradNode:
    return AutogradNode(node.name(), int(running_names.NODE_SEQUENCE_NR.of(node)()))


def _edge(named: AutogradNode, to: torch.autograd.graph.Node, at: int) -> Edge:
    return Edge(named, at, to if _is_leaf(named) else None)


def last_sequence_nr() -> int:
    """Return the number of the autograd node that this thread made last."""
    return int(running_names.LAST_SEQUENCE_NR.kept()()) - 1


def _current() -> torch.autograd.graph.Node | None:
    node: torch.autograd.graph.Node | None = running_names.CURRENT_NODE.kept()()
    return node
