"""Owns the bodies of calls that a pass made of other calls: a ``scan``'s loop, a ``map``'s.

Inductor traces such a body anew, in the body of a ``while_loop``, and drops where its nodes
stand. What was the body before stands in it node by node; all else is the work of the call.
Source: ``torch/_inductor/fx_passes/post_grad.py``, ``decompose_scan_to_while_loop``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch.fx

from profiler_ext.capture.replacements import Replaced
from profiler_ext.torch_compat import fx

Carried = Mapping[str, tuple[torch.fx.Graph, ...]]


def carried_graphs(gm: torch.fx.GraphModule) -> Carried:
    """Return the graphs that the nodes of a graph call, by the nodes' names."""
    found = {n.name: tuple(module.graph for _, module in fx.nested(n)) for n in gm.graph.nodes}
    return {name: graphs for name, graphs in found.items() if graphs}


def retraced(
    gm: torch.fx.GraphModule, replaced: Replaced, before: Carried
) -> dict[torch.fx.Graph, Replaced]:
    """Return what the nodes of bodies that the passes made were traced from.

    Args:
        gm: the graph after the passes.
        replaced: what its new nodes replaced.
        before: the graphs that its nodes called before the passes.
    """
    found: dict[torch.fx.Graph, Replaced] = {}
    for call in gm.graph.nodes:
        rows = [row for row in replaced.get(call.name, ()) if row[0] in before]
        if call.op == "call_function" and len(rows) == 1:
            bodies = before[rows[0][0]]
            for _, module in fx.nested(call):
                found[module.graph] = _rows(module.graph, bodies, rows[0])
    return found


def _rows(
    graph: torch.fx.Graph, bodies: Sequence[torch.fx.Graph], call: tuple[str, fx.Meta]
) -> Replaced:
    nodes = _calls(graph)
    copies = [copy for body in bodies for copy in _copies(_calls(body), nodes)]
    own = copies[0] if len(copies) == 1 else {}
    return {node.name: (own.get(node.name, call),) for node in nodes}


def _copies(
    body: Sequence[torch.fx.Node], nodes: Sequence[torch.fx.Node]
) -> list[dict[str, tuple[str, fx.Meta]]]:
    """Find each run of nodes that are the body's: of the same ops, with the same edges."""
    shape = _shape(body)
    runs = [nodes[at : at + len(body)] for at in range(len(nodes) - len(body) + 1)]
    return [
        {new.name: (old.name, dict(old.meta)) for new, old in zip(run, body, strict=True)}
        for run in runs
        if body and _shape(run) == shape
    ]


def _shape(nodes: Sequence[torch.fx.Node]) -> list[tuple[object, list[int | None]]]:
    place = {node: at for at, node in enumerate(nodes)}
    return [(node.target, [place.get(i) for i in node.all_input_nodes]) for node in nodes]


def _calls(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function"]
