"""Regions of a graph that ``regional_inductor`` compiles separately; the rest runs eagerly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch.fx

from profiler_ext.capture.graphs.fx_nodes import describe_nodes
from profiler_ext.capture.lineage import order, stage
from profiler_ext.capture.lineage.links import link_of
from profiler_ext.capture.traces.metadata import Replaced
from profiler_ext.isolation.hook_protocols import TryRun, unguarded
from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.records.provenance import FxNode
from profiler_ext.torch_compat import fx
from profiler_ext.torch_compat.names import fx_names


@dataclass(frozen=True, slots=True)
class OuterGraph:
    """A graph whose regions are being compiled: a forward, a backward, or an inference graph."""

    number: int | None  # in this process; ``None`` if it does not call each region once
    is_backward: bool
    joint: stage.JointGraph | None  # that it was cut from


@dataclass(slots=True)
class Region:
    """A region that is being compiled."""

    outer_graph: OuterGraph
    nodes: tuple[FxNode, ...]
    lineages: stage.Lineages  # modules in Dynamo's spelling
    links: Mapping[str, stage.Link]  # of backward nodes
    stacks: Mapping[str, str | None]  # of the nodes, as they are traced again
    graph: stage.JointGraph = field(
        init=False
    )  # its own, empty until it is traced and for op bodies
    body: stage.JointGraph = field(init=False)
    _is_traced: bool = False

    def __post_init__(self) -> None:
        self.body = self.graph = self._described(frozenset(), stage.JointFindings(), {})

    @property
    def is_differentiated(self) -> bool:
        """Whether its outer graph is differentiated."""
        joint = self.outer_graph.joint
        return self.outer_graph.is_backward or (joint is not None and not joint.is_inference)

    def traced_from(self, gm: torch.fx.GraphModule) -> dict[str, str] | None:
        """Return the node that each node was traced from; ``None`` for the body of an op."""
        if self._is_traced:
            return None
        self._is_traced = True
        traced_from: dict[str, str] = {}
        for node in fx.call_nodes(gm.graph):
            name = fx.traced_from(node)
            if name is None or name not in self.lineages:
                continue
            if self.stacks[name] == fx.text(node.meta, fx_names.STACK_TRACE):
                traced_from[node.name] = name
        return traced_from

    def keep(
        self,
        gm: torch.fx.GraphModule,
        traced_from: Mapping[str, str],
        replaced: Replaced,
        lost: frozenset[str] = frozenset(),
    ) -> None:
        """Keep its graph as the joint passes left it."""
        names = frozenset(n.name for n in fx.call_nodes(gm.graph))
        links = {n: self.links[name] for n, name in traced_from.items() if name in self.links}
        self.graph = self._described(
            names, stage.JointFindings(links=links, replaced=replaced, lost=lost), traced_from
        )

    def _described(
        self, names: frozenset[str], findings: stage.JointFindings, traced_from: Mapping[str, str]
    ) -> stage.JointGraph:
        joint = self.outer_graph.joint
        lineages = {node: self.lineages[name] for node, name in traced_from.items()}
        region = stage.TracedFrom(traced_from, lineages, joint.names if joint else frozenset())
        return stage.JointGraph(joint.id if joint else "", names, findings=findings, region=region)


def fingerprint_of_outer_graph(gm: torch.fx.GraphModule) -> stage.Fingerprint:
    """Return the fingerprint of a graph together with its regions."""
    return frozenset().union(
        *(stage.fingerprint_of(module.graph) for module in fx.graph_modules(gm))
    )


def describe_region(
    outer_graph: OuterGraph,
    gm: torch.fx.GraphModule,
    dynamo: DynamoGraph | None,
    try_run: TryRun = unguarded,
) -> Region:
    """Describe a region before it is compiled."""
    compilation = stage.Compilation(lambda _: outer_graph.joint, dynamo, try_run=try_run)
    calls = fx.call_nodes(gm.graph)
    links = {node.name: link_of(node, compilation) for node in calls}
    return Region(
        outer_graph=outer_graph,
        nodes=describe_nodes(calls, compilation),
        lineages=order.find_lineages(calls, compilation, order.TRACED),
        links={name: link for name, link in links.items() if link is not None},
        stacks={node.name: fx.text(node.meta, fx_names.STACK_TRACE) for node in calls},
    )
