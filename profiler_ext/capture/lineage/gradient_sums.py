"""Which forward value a sum of gradients accumulates.

One that several ops use; of complex gradients several nodes are one sum.

Inductor adds their real and imaginary parts: it adds nothing to each of the two gradients, views
both as real numbers, adds those, and views the sum as complex again.

Source: ``torch/_inductor/decomposition.py``, ``add``.

Autograd adds up what an autograd node is handed before it runs, and it was made with the value
whose gradient that is. The sum stands where that value is made; where that only looks at another
one, and left no node in the graph, where that other one is. When a node has run, those of what it
hands on are added up that others handed on before: every node with a higher number has run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

from profiler_ext.capture.traces.creations import Creation, Creations
from profiler_ext.torch_compat import fx
from profiler_ext.torch_compat.autograd import ANY_INPUT, COPY_SLICES, AutogradNode, Edge

_ADD = "aten.add.Tensor"


def parts_of_sums(creations: Creations, marked: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the other nodes of each sum of complex gradients, by its first one."""
    return {
        pair[0]: (pair[1], *_until_complex(creations, marked[at + 2 :]))
        for at, pair in enumerate(pairwise(marked))
        if all(_adds_nothing(creations[name]) for name in pair)
    }


def _adds_nothing(creation: Creation) -> bool:
    return creation.target == _ADD and len(creation.inputs) == 1 and _is_complex(creation)


def _until_complex(creations: Creations, names: Sequence[str]) -> Iterator[str]:
    """Yield nodes up to the one that is complex again."""
    for name in names:
        yield name
        if _is_complex(creations[name]):
            return


def _is_complex(creation: Creation) -> bool:
    return any(tensor.is_complex() for tensor in fx.tensors(creation.meta))


_ALIAS = "AliasBackward"
CallOf = Callable[[Creation], tuple[str, ...]]
Readers = Mapping[str, set[str]]
"""By node, those that read it outside of a backward."""
FirstSenders = Mapping[Edge, int]
"""By edge, the number of the node that hands a gradient along it before all others: the highest."""


def summed_values(
    creations: Creations, sums: Collection[str], call_of: CallOf
) -> Iterator[tuple[str, str]]:
    """Pair sums of gradients with the forward node whose value's gradients they add up.

    A parameter or an input of the graph is made by no node, so its sums have none.
    Source: ``torch/csrc/autograd/engine.cpp``, ``evaluate_function`` and ``ReadyQueue``.

    Args:
        call_of: the nodes of the op with which the autograd node was made that ran at a creation.
    """
    first_senders, readers = _first_senders(creations), _readers(creations)
    for (autograd_node, _), group in groupby(
        creations, key=lambda n: (creations[n].autograd_node, creations[n].thread)
    ):
        own = [name for name in group if autograd_node is not None and name in sums]
        if own:
            for name, values, edge in _of_one(creations, own, call_of, first_senders):
                value = _value(creations, values, edge, _shape(creations[name], 0), readers)
                if value is not None:
                    yield name, value


def _of_one(
    creations: Creations, sums: list[str], call_of: CallOf, first_senders: FirstSenders
) -> Iterator[tuple[str, tuple[str, ...], Edge]]:
    """Pair the sums that were made when one node had run with nodes of ops, and their edges.

    They must be as many as the edges that were handed a gradient before, or as all that fit; of an
    input that nobody asks for, none is summed.
    """
    creation = creations[sums[0]]
    assert creation.autograd_node is not None
    shapes = {_shape(creations[name], 0) for name in sums}
    edges = creation.edges.get(creation.autograd_node, ())
    values = [_values(creation, edge, call_of) for edge in edges]
    given = [_given(creations, e, v) for e, v in zip(edges, values, strict=True)]
    fitting = [at for at in range(len(edges)) if not given[at] or given[at] & shapes]
    before = [_was_sent_before(creation.autograd_node, edge, first_senders) for edge in edges]
    sent_before = [at for at in fitting if before[at] or edges[at] in edges[:at]]
    interior = [at for at in sent_before if not edges[at].leaf]
    chosen = next((each for each in (sent_before, fitting, interior) if len(each) == len(sums)), [])
    for name, at in zip(sums, chosen, strict=False):
        if values[at]:
            yield name, values[at], edges[at]


def _values(creation: Creation, edge: Edge, call_of: CallOf) -> tuple[str, ...]:
    """Return the nodes of the op that made the value whose gradient is handed along an edge."""
    if edge.leaf:
        return ()
    values = call_of(replace(creation, autograd_node=edge.to))
    onwards = creation.edges.get(edge.to, ())
    if not values and edge.to.name.startswith(_ALIAS) and len(onwards) == 1:
        return _values(creation, onwards[0], call_of)
    return values


def _given(
    creations: Creations, edge: Edge, values: tuple[str, ...]
) -> set[tuple[str, ...] | None]:
    """Return the shapes that a value may have; none is known of the base of a mutated view."""
    is_view = edge.to.name == COPY_SLICES
    return set() if is_view else {_shape(creations[name], edge.input) for name in values}


def _value(
    creations: Creations,
    values: tuple[str, ...],
    edge: Edge,
    shape: tuple[str, ...] | None,
    readers: Readers,
) -> str | None:
    """Return the last node that has a sum's shape and that others read than those of its op.

    ``native_group_norm`` decomposes into nodes of which the last ones are its mean and deviation.
    Of an ``autograd.Function`` that yields several such values, it is not known which one it is.
    """
    same = [n for n in values if _shape(creations[n], edge.input) == shape]
    yielded = [n for n in same if not readers.get(n) or readers[n].difference(values)]
    candidates = yielded or same or list(values[-1:])
    stacks = {creations[name].lineage.stack for name in candidates}
    return candidates[-1] if len(stacks) == 1 else None


def _readers(creations: Creations) -> Readers:
    """Return the nodes outside of a backward that read each node."""
    readers: dict[str, set[str]] = defaultdict(set)
    for name, creation in creations.items():
        for value in creation.inputs if creation.autograd_node is None else ():
            readers[value].add(name)
    return readers


def _first_senders(creations: Creations) -> FirstSenders:
    """Return the number of the node that is the first to hand a gradient along each edge."""
    first_senders: dict[Edge, int] = {}
    every = next((creation.edges for creation in creations.values()), {})
    for node, edges in every.items():
        first_senders.update({edge: max(node.number, first_senders.get(edge, 0)) for edge in edges})
    return first_senders


def _was_sent_before(by: AutogradNode, edge: Edge, first_senders: FirstSenders) -> bool:
    """Tell whether a gradient was handed along an edge before: by another node, or at first."""
    same = (edge, edge._replace(input=ANY_INPUT))
    return any(first_senders.get(each, 0) > by.number for each in same)


def _shape(creation: Creation, output: int) -> tuple[str, ...] | None:
    tensors = fx.tensors(creation.meta)
    if not tensors:
        return None
    tensor = tensors[output] if output < len(tensors) else tensors[0]
    return tuple(str(size) for size in tensor.shape)
