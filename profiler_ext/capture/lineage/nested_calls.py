"""Owns the names and links of nested graphs' nodes, which lead through the calls around them.

A region that is compiled once for several calls (``invoke_subgraph``) has a joint graph of its
own; its nodes stand in the outer one once for each call, so the calls are part of their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch.fx

from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.links import differentiates, forward_name, joint_name, link_of
from profiler_ext.capture.lineage.stage import Compilation, Stage
from profiler_ext.capture.traces.metadata import lineage_of
from profiler_ext.records import ForwardEvidence, Lineage
from profiler_ext.torch_compat import fx

Named = Callable[[torch.fx.Node, Compilation], str | None]


def called_graph(stage: Stage) -> Lineages:
    """Say the joint graph's names of a nested graph's nodes, all calls on the way included."""
    if not stage.prefix:
        return {}
    joint_path = _path_of(stage, joint_name)
    forward = _path_of(stage, forward_name)
    return {
        node.name: _linked(node, _named(node, stage, joint_path), stage, forward) for node in stage.nodes
    }


def _named(node: torch.fx.Node, stage: Stage, path: str | None) -> Lineage:
    joint = stage.compilation.joint_of(node.graph)
    is_made = node.name in stage.compilation.replaced.get(node.graph, {}) or (
        joint is not None and (node.name in joint.made or not joint.is_own_replacement(node))
    )
    name = None if path is None or is_made else f"{path}/{node.name}"
    return replace(stage.lineages[node.name], joint_name=name)


def _linked(node: torch.fx.Node, own: Lineage, stage: Stage, path: str | None) -> Lineage:
    """Return a node's lineage, its forward node named by the region's call in the forward.

    A body whose own trace tells nothing differentiates what its call does.
    """
    link = own.forward_node
    forward = None if link is None or path is None else f"{path}/{link}"
    evidence = None if forward is None else own.forward_evidence
    if forward is None and stage.caller is not None and differentiates(node, lineage_of(node.meta)):
        call = link_of(stage.caller, stage.compilation)
        forward = call.forward_node if call else None
        evidence = ForwardEvidence.OF_CALL if call else None
    return replace(own, forward_node=forward, forward_evidence=evidence)


class Innermost(NamedTuple):
    """The call of a nested graph.

    Attributes:
        call: the node that calls it.
        inside: what its nodes' names begin with in the graph that calls it.
        around: what the names in the joint graph begin with of the forward of the graph that calls
            it, empty of an outermost one; ``None`` where a call around it has none.
    """

    call: torch.fx.Node
    inside: str
    around: str | None


def innermost_call(stage: Stage) -> Innermost | None:
    """Return the call of the graph that nodes are in; ``None`` where it is not found.

    Args:
        stage: a nested graph's nodes.
    """
    if stage.caller is None:
        return None
    *outer, (call, which) = calls_to_graph(stage.prefix, stage.caller)
    path = _path(_names(outer, lambda node: forward_name(node, stage.compilation)))
    if call is None:
        return None
    inside = f"{call.name}/" if which is None else f"{call.name}/{which}/"
    return Innermost(call, inside, f"{path}/" if path else path)


def _path_of(stage: Stage, named: Named) -> str | None:
    """Return the names of the calls on the way to a graph; ``None`` where one has none there."""
    if stage.caller is None:
        return None
    call_path = calls_to_graph(stage.prefix, stage.caller)
    return _path(_names(call_path, lambda node: named(node, stage.compilation)))


def _names(
    call_path: Iterable[tuple[torch.fx.Node | None, str | None]],
    named: Callable[[torch.fx.Node], str | None],
) -> Iterator[str | None]:
    """Yield the names of the calls, and which of its graphs each calls where it has several."""
    for node, which in call_path:
        yield named(node) if node else None
        if which is not None:
            yield which


def calls_to_graph(
    prefix: str, outermost: torch.fx.Node
) -> Iterator[tuple[torch.fx.Node | None, str | None]]:
    """Yield the calls on the way to a nested graph, from the outermost one inwards.

    Args:
        prefix: what names the graph.
        outermost: the node of the outermost graph that calls it.

    Yields:
        The call, ``None`` where it is not found, and which of its graphs if it has several.
    """
    parts = iter(prefix.split("/"))
    graph: torch.fx.Graph | None = outermost.graph
    for name in parts:
        node = next((node for node in graph.nodes if node.name == name), None) if graph else None
        graphs = dict(fx.nested(node)) if node else {}
        which = next(iter(graphs), None) if len(graphs) < 2 else next(parts, None)
        graph = graphs[which].graph if which in graphs else None
        yield node if graph else None, which if len(graphs) > 1 else None


def _path(names: Iterable[str | None]) -> str | None:
    parts = list(names)
    return None if None in parts else "/".join(part for part in parts if part)
