"""The forward value whose gradients a sum accumulates: one that several ops use.

Source: ``torch/_inductor/decomposition.py``, ``add``.
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
    """Return the other nodes of each sum of complex gradients, by its first one.

    Inductor adds their real and imaginary parts: it adds nothing to each gradient, views both as
    real, adds those, and views the sum as complex.

    Source: ``torch/_inductor/decomposition.py``, ``add``.
    """
    return {
        pair[0]: (pair[1], *_until_complex(creations, marked[at + 2 :]))
        for at, pair in enumerate(pairwise(marked))
        if all(_adds_nothing(creations[name]) for name in pair)
    }


def _adds_nothing(creation: Creation) -> bool:
    return creation.target == _ADD and len(creation.inputs) == 1 and _is_complex(creation)


def _until_complex(creations: Creations, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        yield name
        if _is_complex(creations[name]):
            return


def _is_complex(creation: Creation) -> bool:
    return any(tensor.is_complex() for tensor in fx.tensors(creation.meta))


_ALIAS = "AliasBackward"
CallOf = Callable[[Creation], tuple[str, ...]]
Readers = Mapping[str, set[str]]
"""The readers of each node outside of a backward."""
FirstSenders = Mapping[Edge, int]
"""The number of the node that sends a gradient along each edge first: the highest."""


def summed_values(
    creations: Creations, sums: Collection[str], call_of: CallOf
) -> Iterator[tuple[str, str]]:
    """Pair sums of gradients with the forward node whose value's gradients they add.

    Autograd adds the gradients for an autograd node before that runs. The sum belongs where the
    value is made; a parameter or an input has no node.

    Source: ``torch/csrc/autograd/engine.cpp``, ``evaluate_function`` and ``ReadyQueue``.
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
    """Pair the sums made after one autograd node with the nodes of ops, and their edges."""
    # Edges that had a gradient already, all edges that fit, or those to no leaf: whichever are as
    # many as the sums. A gradient that nobody asked for is not summed.
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
    """Return the nodes of the op whose value gets its gradient along an edge."""
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
    """Return the possible shapes of a value; unknown for the base of a mutated view."""
    is_view = edge.to.name == COPY_SLICES
    return set() if is_view else {_shape(creations[name], edge.input) for name in values}


def _value(
    creations: Creations,
    values: tuple[str, ...],
    edge: Edge,
    shape: tuple[str, ...] | None,
    readers: Readers,
) -> str | None:
    """Return the last node with a sum's shape that is read outside its op."""
    # ``native_group_norm`` ends with its mean and deviation. An ``autograd.Function`` with several
    # such values is ambiguous.
    same = [n for n in values if _shape(creations[n], edge.input) == shape]
    yielded = [n for n in same if not readers.get(n) or readers[n].difference(values)]
    candidates = yielded or same or list(values[-1:])
    stacks = {creations[name].lineage.stack for name in candidates}
    return candidates[-1] if len(stacks) == 1 else None


def _readers(creations: Creations) -> Readers:
    readers: dict[str, set[str]] = defaultdict(set)
    for name, creation in creations.items():
        for value in creation.inputs if creation.autograd_node is None else ():
            readers[value].add(name)
    return readers


def _first_senders(creations: Creations) -> FirstSenders:
    first_senders: dict[Edge, int] = {}
    every = next((creation.edges for creation in creations.values()), {})
    for node, edges in every.items():
        first_senders.update({edge: max(node.number, first_senders.get(edge, 0)) for edge in edges})
    return first_senders


def _was_sent_before(by: AutogradNode, edge: Edge, first_senders: FirstSenders) -> bool:
    """Tell whether an edge had a gradient before: from an earlier node, or at the start."""
    same = (edge, edge._replace(input=ANY_INPUT))
    return any(first_senders.get(each, 0) > by.number for each in same)


def _shape(creation: Creation, output: int) -> tuple[str, ...] | None:
    tensors = fx.tensors(creation.meta)
    if not tensors:
        return None
    tensor = tensors[output] if output < len(tensors) else tensors[0]
    return tuple(str(size) for size in tensor.shape)
