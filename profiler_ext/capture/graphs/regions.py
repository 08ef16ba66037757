"""Regions of a graph that ``regional_inductor`` compiles by themselves.

While the rest runs eagerly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch.fx

from profiler_ext.capture.graphs.fx_nodes import describe_nodes
from profiler_ext.capture.lineage.links import link_of
from profiler_ext.capture.lineage.order import TRACED, find_lineages
from profiler_ext.capture.lineage.stage import (
    Compilation,
    Fingerprint,
    JointFindings,
    JointGraph,
    Lineages,
    Link,
    TracedFrom,
    fingerprint_of,
)
from profiler_ext.capture.traces.metadata import Replaced
from profiler_ext.isolation.hook_protocols import TryRun, unguarded
from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.records.provenance import FxNode
from profiler_ext.torch_compat import fx
from profiler_ext.torch_compat.names import fx_names


@dataclass(frozen=True, slots=True)
class OuterGraph:
    """A graph whose regions are being compiled: a forward, a backward, or one without gradient.

    Attributes:
        number: its number in this process; ``None`` where it does not call each region once.
        is_backward: it is the backward half of its joint graph.
        joint: the joint graph that it was cut from, if that is known.
    """

    number: int | None
    is_backward: bool
    joint: JointGraph | None


@dataclass(slots=True)
class Region:
    """A region that is being compiled.

    Attributes:
        outer_graph: the graph that it is a part of.
        nodes: the records of its nodes, as they are in that graph.
        lineages: where they come from; modules are spelled as Dynamo does.
        links: backward node to forward node.
        stacks: the nodes' stacks, as they are traced anew.
        graph: its own graph; of one that was not traced yet, or of a body, nothing is known.
    """

    outer_graph: OuterGraph
    nodes: tuple[FxNode, ...]
    lineages: Lineages
    links: Mapping[str, Link]
    stacks: Mapping[str, str | None]
    graph: JointGraph = field(init=False)
    body: JointGraph = field(init=False)
    _is_traced: bool = False

    def __post_init__(self) -> None:
        self.body = self.graph = self._described(frozenset(), JointFindings(), {})

    @property
    def is_differentiated(self) -> bool:
        """Whether a gradient was asked for of the graph that it is a part of."""
        joint = self.outer_graph.joint
        return self.outer_graph.is_backward or (joint is not None and not joint.is_inference)

    def traced_from(self, gm: torch.fx.GraphModule) -> dict[str, str] | None:
        """Return what each node of its graph was traced from; ``None`` of the body of an op."""
        if self._is_traced:
            return None
        self._is_traced = True
        calls = (node for node in gm.graph.nodes if node.op == "call_function")
        traced = ((node, fx.traced_from(node)) for node in calls)
        return {
            n.name: name
            for n, name in traced
            if name is not None
            and (
                name in self.lineages and self.stacks[name] == fx.text(n.meta, fx_names.STACK_TRACE)
            )
        }

    def keep(
        self,
        gm: torch.fx.GraphModule,
        traced_from: Mapping[str, str],
        replaced: Replaced,
        lost: frozenset[str] = frozenset(),
    ) -> None:
        """Take down its graph after the joint passes."""
        names = frozenset(n.name for n in gm.graph.nodes if n.op == "call_function")
        links = {n: self.links[name] for n, name in traced_from.items() if name in self.links}
        self.graph = self._described(
            names, JointFindings(links=links, replaced=replaced, lost=lost), traced_from
        )

    def _described(
        self, names: frozenset[str], findings: JointFindings, traced_from: Mapping[str, str]
    ) -> JointGraph:
        joint = self.outer_graph.joint
        lineages = {node: self.lineages[name] for node, name in traced_from.items()}
        region = TracedFrom(traced_from, lineages, joint.names if joint else frozenset())
        return JointGraph(joint.id if joint else "", names, findings=findings, region=region)


def fingerprint_of_outer_graph(gm: torch.fx.GraphModule) -> Fingerprint:
    """Return what tells which joint graph a graph was cut from whose regions are scooped out."""
    return frozenset().union(*(fingerprint_of(module.graph) for module in fx.graph_modules(gm)))


def describe_region(
    outer_graph: OuterGraph,
    gm: torch.fx.GraphModule,
    dynamo: DynamoGraph | None,
    try_run: TryRun = unguarded,
) -> Region:
    """Describe a region before it is compiled."""
    compilation = Compilation(lambda _: outer_graph.joint, dynamo, try_run=try_run)
    calls = [node for node in gm.graph.nodes if node.op == "call_function"]
    links = {node.name: link_of(node, compilation) for node in calls}
    return Region(
        outer_graph=outer_graph,
        nodes=describe_nodes(calls, compilation),
        lineages=find_lineages(calls, compilation, TRACED),
        links={name: link for name, link in links.items() if link is not None},
        stacks={node.name: fx.text(node.meta, fx_names.STACK_TRACE) for node in calls},
    )
