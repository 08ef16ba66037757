"""Owns the records of nodes in nested graphs, by qualified names: ``cond/true_graph_0/sin``."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import torch.fx

from profiler_ext.capture.lineage.bodies import inner_prefix
from profiler_ext.capture.lineage.order import find_lineages
from profiler_ext.capture.lineage.stage import Compilation
from profiler_ext.capture.nodes.fx_nodes import describe_node
from profiler_ext.records import FxNode, Lineage
from profiler_ext.torch_compat import fx


@dataclass(frozen=True, slots=True)
class Nested:
    """A node of a nested graph, and the node of the outermost graph that calls it."""

    node: torch.fx.Node
    caller: torch.fx.Node | None


_Body = tuple[str, torch.fx.Node | None, torch.fx.Graph]


def describe_nested(nodes: Mapping[str, Nested], compilation: Compilation) -> tuple[FxNode, ...]:
    """Return the records of nodes in nested graphs, by qualified names.

    Args:
        nodes: ``cond/true_graph_0/sin`` and the like, each with its node and its caller.
        compilation: what is known of their compile.
    """
    bodies: dict[_Body, list[torch.fx.Node]] = defaultdict(list)
    for name, nested in nodes.items():
        bodies[_body_of(name, nested)].append(nested.node)
    described = {
        body: find_lineages(inner, compilation, prefix=body[0], caller=body[1])
        for body, inner in bodies.items()
    }
    lineages = {name: described[_body_of(name, n)][n.node.name] for name, n in nodes.items()}
    return tuple(_nested(name, nodes[name], lineages[name], compilation) for name in nodes)


def _body_of(name: str, nested: Nested) -> _Body:
    return name.rpartition("/")[0], nested.caller, nested.node.graph


def nested_nodes(
    gm: torch.fx.GraphModule, prefix: str = "", caller: torch.fx.Node | None = None
) -> dict[str, Nested]:
    """Return the call nodes of the graphs nested in a graph, by qualified names.

    Args:
        gm: the graph around them.
        prefix: what qualifies the names in ``gm`` itself.
        caller: the node of the outermost graph that calls ``gm``, if that is nested.
    """
    nested: dict[str, Nested] = {}
    for outer in gm.graph.nodes:
        graphs = list(fx.nested(outer)) if outer.op == "call_function" else []
        for attribute, module in graphs:
            inside = prefix + inner_prefix(outer.name, attribute, len(graphs))
            called = (n for n in module.graph.nodes if n.op == "call_function")
            nested.update((inside + node.name, Nested(node, caller or outer)) for node in called)
            nested.update(nested_nodes(module, inside, caller or outer))
    return nested


def _nested(name: str, nested: Nested, lineage: Lineage, compilation: Compilation) -> FxNode:
    prefix = name.rpartition("/")[0]
    own = describe_node(nested.node, lineage, compilation)
    return dataclasses.replace(
        own,
        name=name,
        entry_name=name,
        inputs=tuple(f"{prefix}/{value}" for value in own.inputs),
        replaced=tuple(f"{prefix}/{replaced}" for replaced in own.replaced),
    )
