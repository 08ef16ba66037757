"""Owns which forward value a sum of gradients is of: one that several ops use.

Autograd adds up what an autograd node is handed before it runs, and it was made with the value
whose gradient that is. The sum stands where that value is made; where that only looks at another
one, and left no node in the graph, where that other one is. When a node has run, those of what it
hands on are added up that others handed on before: every node with a higher number has run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import groupby

from profiler_ext.capture.traces.creations import Creation, Creations
from profiler_ext.torch_compat import fx
from profiler_ext.torch_compat.autograd import COPY_SLICES, Edge

_ALIAS = "AliasBackward"
MadeWith = Callable[[Creation], str | None]


def summed_values(
    creations: Creations, sums: Collection[str], made_with: MadeWith
) -> Iterator[tuple[str, str]]:
    """Pair sums of gradients with the forward node whose value's gradients they add up.

    A parameter or an input of the graph is made by no node, so its sums have none.
    Source: ``torch/csrc/autograd/engine.cpp``, ``evaluate_function`` and ``ReadyQueue``.

    Args:
        creations: how the nodes of a graph were made, in order.
        sums: the sums of gradients among them.
        made_with: the node with which the autograd node was made that ran at a creation.
    """
    for (autograd_node, _), group in groupby(
        creations, key=lambda n: (creations[n].autograd_node, creations[n].thread)
    ):
        own = [name for name in group if autograd_node is not None and name in sums]
        if own:
            yield from _of_one(creations, own, made_with)


def _of_one(
    creations: Creations, sums: list[str], made_with: MadeWith
) -> Iterator[tuple[str, str]]:
    """Pair the sums that were made when one node had run, in the order of its edges.

    They must be as many as the edges that were handed a gradient before, or as all that fit; of an
    input that nobody asks for, none is summed.
    """
    creation = creations[sums[0]]
    assert creation.autograd_node is not None
    shapes = {_shape(creations[name], 0) for name in sums}
    edges = creation.edges.get(creation.autograd_node, ())
    values = [_value(creation, edge, made_with) for edge in edges]
    given = [_given(creations, e, v) for e, v in zip(edges, values, strict=True)]
    fitting = [at for at in range(len(edges)) if given[at] is None or given[at] in shapes]
    again = [at for at in fitting if _was_handed(creation, edges[at]) or edges[at] in edges[:at]]
    asked = [at for at in again if not edges[at].leaf]
    chosen = next((each for each in (again, fitting, asked) if len(each) == len(sums)), [])
    for name, at in zip(sums, chosen, strict=False):
        value = values[at]
        if value is not None:
            yield name, value


def _value(creation: Creation, edge: Edge, made_with: MadeWith) -> str | None:
    """Return the node of the value whose gradient is handed along an edge."""
    if edge.leaf:
        return None
    value = made_with(replace(creation, autograd_node=edge.to))
    onwards = creation.edges.get(edge.to, ())
    if value is None and edge.to.name.startswith(_ALIAS) and len(onwards) == 1:
        return _value(creation, onwards[0], made_with)
    return value


def _given(creations: Creations, edge: Edge, value: str | None) -> tuple[str, ...] | None:
    """Return a value's shape, ``None`` where it is not known: a mutated view's base has its own."""
    is_view = edge.to.name == COPY_SLICES
    return None if is_view else _shape(creations.get(value or ""), edge.input)


def _was_handed(creation: Creation, edge: Edge) -> bool:
    """Tell whether a node that ran before hands a gradient where another does."""
    now = creation.autograd_node.number if creation.autograd_node else 0
    return any(edge in edges for node, edges in creation.edges.items() if node.number > now)


def _shape(creation: Creation | None, output: int) -> tuple[str, ...] | None:
    tensors = () if creation is None else fx.tensors(creation.meta)
    if not tensors:
        return None
    tensor = tensors[output] if output < len(tensors) else tensors[0]
    return tuple(str(size) for size in tensor.shape)
