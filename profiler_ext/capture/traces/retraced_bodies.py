"""Owns the bodies of calls that a pass made of other calls: a ``scan``'s loop, a ``map``'s.

Inductor traces such a body anew, in the body of a ``while_loop``, and drops where its nodes
stand. What was the body before stands in it node by node; all else is the work of the call.
Source: ``torch/_inductor/fx_passes/post_grad.py``, ``decompose_scan_to_while_loop``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch.fx

from profiler_ext.capture.traces.metadata import NodeSnapshot, Replaced, snapshot_with_outputs
from profiler_ext.torch_compat import fx

Carried = Mapping[str, tuple[torch.fx.Graph, ...]]


def carried_graphs(gm: torch.fx.GraphModule) -> Carried:
    """Return the graphs that the nodes of a graph call, by the nodes' names."""
    return {node.name: graphs for node in gm.graph.nodes if (graphs := _graphs(node))}


def _graphs(call: torch.fx.Node) -> tuple[torch.fx.Graph, ...]:
    return tuple(module.graph for _, module in fx.nested(call))


def retraced(
    gm: torch.fx.GraphModule, replaced: Replaced, before: Carried
) -> dict[torch.fx.Graph, Replaced]:
    """Return what the nodes of bodies that the passes made were traced from.

    Args:
        gm: the graph after the passes.
        replaced: what its new nodes replaced.
        before: the graphs that its nodes called before the passes.
    """
    of_bodies: dict[torch.fx.Graph, Replaced] = {}
    for call in gm.graph.nodes:
        rows = [row for row in replaced.get(call.name, ()) if row.name in before]
        if call.op == "call_function" and len(rows) == 1:
            of_bodies.update(_inside(call, before[rows[0].name], rows[0]))
    return of_bodies


def _inside(
    call: torch.fx.Node, before: Sequence[torch.fx.Graph], row: NodeSnapshot
) -> dict[torch.fx.Graph, Replaced]:
    """Return the same of all graphs in a call, which did stand in a call of other graphs."""
    graphs = _graphs(call)
    is_alike = len(graphs) == len(before)  # the branches of a ``cond`` keep their order
    replaced: dict[torch.fx.Graph, Replaced] = {}
    for at, graph in enumerate(graphs):
        nodes = _calls(graph)
        own = _only_copy(
            [_calls(body) for body in (before[at : at + 1] if is_alike else before)], nodes
        )
        rows = {
            n: snapshot_with_outputs(own[n].name, own[n].meta) if n in own else row for n in nodes
        }
        replaced[graph] = {node.name: (rows[node],) for node in nodes}
        for node in nodes:
            replaced.update(_inside(node, _graphs(own[node]) if node in own else (), rows[node]))
    return replaced


def _only_copy(
    bodies: Sequence[Sequence[torch.fx.Node]], nodes: Sequence[torch.fx.Node]
) -> Mapping[torch.fx.Node, torch.fx.Node]:
    """Lead nodes to a body's, where just one run of them has a body's ops and edges."""
    copies = [
        dict(zip(run, body, strict=True))
        for body in bodies
        for run in (nodes[at : at + len(body)] for at in range(len(nodes) - len(body) + 1))
        if body and _shape(run) == _shape(body)
    ]
    return copies[0] if len(copies) == 1 else {}


def _shape(nodes: Sequence[torch.fx.Node]) -> list[tuple[object, list[int | None]]]:
    place = {node: at for at, node in enumerate(nodes)}
    return [(node.target, [place.get(i) for i in node.all_input_nodes]) for node in nodes]


def _calls(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function"]
