"""Owns which node a library call of a generated wrapper is, where that is certain.

Where an op has as many calls as nodes, and each of the nodes is made of the one before, they are
one another in order. Else a call is one of the nodes that read the inputs of the graph which it is
given, by the same rule: one call of one node is the least of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import pairwise

from profiler_ext.recall.printed_graphs import PrintedGraph, PrintedNode
from profiler_ext.recall.views import is_view_op
from profiler_ext.recall.wrapper_calls import WrapperCall, generated_kind
from profiler_ext.records import SiteKind

_CALLED_AS = {"aten.bias_addmm": "aten.addmm"}
_CallInputs = Mapping[int, Set[str]]
"""The inputs of the graph that each call is given, by its place; what is mutated left out."""


def library_nodes(
    graph: PrintedGraph, calls: Sequence[WrapperCall], *, is_backward: bool
) -> dict[int, str]:
    """Return the nodes of those library calls that can be of one node only.

    Args:
        graph: the graph.
        calls: the launches of its wrapper, in program order.
        is_backward: it is a backward graph. There only what gradients flow into is led: what
            else it computes may be the forward's, which the text does not tell.

    Returns:
        The node's name by the position of the call.
    """
    node_of = dict(_pairs(graph, calls))
    times = Counter(node_of.values())
    sure = {name for name, count in times.items() if count == 1}
    if is_backward:
        tangents = {name for name in graph.inputs if name.startswith("tangents_")}
        sure = {name for name in sure & _made_of(tangents, graph) if not _may_sum(name, graph)}
    return {at: name for at, name in node_of.items() if name in sure}


def _pairs(graph: PrintedGraph, calls: Sequence[WrapperCall]) -> Iterator[tuple[int, str]]:
    fixed = graph.inputs - _mutated(graph)
    call_inputs = {at: fixed & set(filter(None, call.arguments)) for at, call in enumerate(calls)}
    for op, positions in _by_op(calls).items():
        names = tuple(n.name for n in graph.nodes.values() if f"{n.target}.".startswith(f"{op}."))
        is_complete = not _has_templates(calls) and _are_one(positions, names, call_inputs, graph)
        alike = {names: positions} if is_complete else _by_inputs(positions, names, call_inputs, graph)
        for own, their in alike.items():
            if _are_one(their, own, call_inputs, graph):
                yield from zip(their, own, strict=True)


def _by_op(calls: Sequence[WrapperCall]) -> Mapping[str, list[int]]:
    """The places of library calls, by the op that a node would be of."""
    calls_by_op = defaultdict[str, list[int]](list)
    for at, call in enumerate(calls):
        if not (call.generated or call.partial):
            op = call.callee.removeprefix("torch.ops.").replace("extern_kernels.", "aten.")
            calls_by_op[_CALLED_AS.get(op, op)].append(at)
    return calls_by_op


def _by_inputs(
    positions: Iterable[int], names: Sequence[str], call_inputs: _CallInputs, graph: PrintedGraph
) -> Mapping[tuple[str, ...], list[int]]:
    """The places of calls that are given an input, by the nodes that read all that they are."""
    calls_by_inputs = defaultdict[tuple[str, ...], list[int]](list)
    for at in positions:
        if call_inputs[at]:
            calls_by_inputs[tuple(n for n in names if _reads(n, call_inputs[at], graph))].append(at)
    return calls_by_inputs


def _are_one(
    positions: Sequence[int], names: Sequence[str], call_inputs: _CallInputs, graph: PrintedGraph
) -> bool:
    """Tell whether calls are nodes, in order: each node is made of the one before."""
    if len(positions) != len(names):
        return False
    fits = all(_reads(n, call_inputs[at], graph) for at, n in zip(positions, names, strict=True))
    return fits and all(later in _made_of({earlier}, graph) for earlier, later in pairwise(names))


def _reads(name: str, values: Set[str], graph: PrintedGraph) -> bool:
    return values <= _read(graph.nodes[name].inputs, graph)


def _read(names: Iterable[str], graph: PrintedGraph) -> Set[str]:
    """Some values, and those that they are views or parts of."""
    values = set(names)
    for name in names:
        node = graph.nodes.get(name)
        if node is not None and (is_view_op(node.target) or node.target == "getitem"):
            values |= _read(node.inputs[:1], graph)
    return values


def _mutated(graph: PrintedGraph) -> Set[str]:
    """The inputs that a node writes to: what is read of them depends on when."""
    return {name for node in graph.nodes.values() if _writes(node) for name in node.inputs}


def _writes(node: PrintedNode) -> bool:
    return any(part.endswith(("_", "_mutation")) for part in node.target.split("."))


def _may_sum(name: str, graph: PrintedGraph) -> bool:
    """Tell whether a node may sum gradients, which is work of another phase."""
    return graph.nodes[name].target == "aten.add.Tensor"


def _has_templates(calls: Sequence[WrapperCall]) -> bool:
    """Tell whether a template may stand for a node, so that calls and nodes cannot be counted."""
    kinds = (generated_kind(call.callee) for call in calls if call.generated)
    return any(kind is SiteKind.TRITON_TEMPLATE for kind in kinds)


def _made_of(values: Set[str], graph: PrintedGraph) -> Set[str]:
    """The nodes that some values flow into."""
    made = set(values)
    for node in graph.nodes.values():
        if not made.isdisjoint(node.inputs):
            made.add(node.name)
    return made & graph.nodes.keys()
