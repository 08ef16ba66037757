"""Owns what is kept of a joint graph until its halves, or its regions, are compiled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

import torch.fx

from profiler_ext.capture.traces.metadata import NodeSnapshot, Replaced
from profiler_ext.records import ForwardEvidence, Lineage
from profiler_ext.torch_compat import fx
from profiler_ext.torch_compat.names import fx_names

Fingerprint = frozenset[tuple[str, int | None]]
"""A graph's nodes by their names and numbers; names alone are those of many graphs."""

OpCall = tuple[str, tuple[str, ...]]
"""An operator, and the names of the tensors it is called with."""

Lineages = Mapping[str, Lineage]
"""Where nodes come from, by their names."""


@dataclass(frozen=True, slots=True)
class Link:
    """A forward node, and the rule that found it."""

    forward_node: str
    evidence: ForwardEvidence


@dataclass(frozen=True, slots=True)
class JointFindings:
    """What mechanisms found in a joint graph, each by the names of its nodes.

    Attributes:
        links: the forward node that each backward node differentiates.
        replaced: nodes that a pattern made, with what they replaced.
        mutated: epilogue copies, with what mutated.
        overwritten: nodes that a pass wrote another's origin on, as they were before.
        made_anew: views that functionalization made anew, with where they were made first.
        hooks: what hooks on gradients made, without a place.
        gradients: nodes of gradients that are taken inside the traced function, with the node
            whose place is theirs; ``None`` where torch gave them the right one.
        bodies: nodes of the backward bodies of higher-order ops, by qualified names.
        random: the random calls, by operator and inputs; the partitioner wraps them anew.
        outputs: the nodes that yield the outputs of Dynamo's graph, by their places.
        lost: those of the others that are not known, as the mechanism failed that finds them.
    """

    links: Mapping[str, Link] = field(default_factory=dict)
    replaced: Replaced = field(default_factory=dict)
    mutated: Lineages = field(default_factory=dict)
    overwritten: Lineages = field(default_factory=dict)
    made_anew: Lineages = field(default_factory=dict)
    hooks: Lineages = field(default_factory=dict)
    gradients: Mapping[str, Lineage | None] = field(default_factory=dict)
    bodies: Lineages = field(default_factory=dict)
    random: Mapping[OpCall, NodeSnapshot] = field(default_factory=dict)
    outputs: Mapping[int, NodeSnapshot] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()

    def over(self, parent: JointFindings) -> JointFindings:
        """Return what was found in a graph or else in the whole that it is a part of."""
        merged = {
            f.name: {**getattr(parent, f.name), **getattr(self, f.name)}
            for f in fields(JointFindings)
            if f.name != "lost"
        }
        return JointFindings(**merged, lost=parent.lost | self.lost)


@dataclass(frozen=True, slots=True)
class TracedFrom:
    """What the nodes of a region, which is compiled by itself, were traced from.

    Attributes:
        names: the node of the graph around the region.
        lineages: where that comes from.
        whole: the nodes of the joint graph that the region was cut from.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    lineages: Lineages = field(default_factory=dict)
    parent: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class JointGraph:
    """What is kept of a joint graph until its halves are compiled.

    Attributes:
        id: digest of its nodes; the halves carry it.
        names: its nodes.
        fingerprint: what tells a graph that was cut from it.
        is_inference: no gradient was asked for, so it is the forward alone.
        findings: what mechanisms found in it.
        region: of a region that is compiled by itself; ``None`` of any other graph.
        made: nodes that passes made after it was cut, which it has not itself.
    """

    id: str
    names: frozenset[str]
    fingerprint: Fingerprint = frozenset()
    is_inference: bool = False
    findings: JointFindings = JointFindings()
    region: TracedFrom | None = None
    made: frozenset[str] = frozenset()

    def joint_name(self, name: str) -> str | None:
        """Return the name that a node of this graph has in the joint graph, if it has one."""
        if self.region is None:
            return None if name in self.made else name
        parent_name = self.region.names.get(name)
        return parent_name if parent_name in self.region.parent else None

    @property
    def has_other_origins(self) -> bool:
        """Whether any node comes from elsewhere than its own metadata says."""
        traced = self.region.lineages if self.region else {}
        return bool(self.findings.overwritten or self.findings.gradients or traced)

    def has_other_origin(self, name: str | None) -> bool:
        """Tell whether a node comes from elsewhere than its own metadata says."""
        traced = self.region.lineages if self.region else {}
        return (
            name in self.findings.overwritten or name in self.findings.gradients or name in traced
        )

    def replaced_by(self, node: torch.fx.Node) -> tuple[NodeSnapshot, ...]:
        """Return what its passes had a node of this name take the place of."""
        return tuple(self.findings.replaced.get(node.name, ()))

    def is_own_replacement(self, node: torch.fx.Node) -> bool:
        """Tell whether a node that passes made is the one that its own passes made.

        A region that a checkpoint runs again has been through another compile's passes by then,
        which use the names of others. What a pattern makes has the stack of what it replaced.
        """
        stacks = {row.stack_text for row in self.replaced_by(node)}
        return not stacks or fx.text(node.meta, fx_names.STACK_TRACE) in {None, *stacks}

    def contains_graph(self, fingerprint: Fingerprint) -> bool:
        """Tell whether a graph is a part of this one, by numbers that torch did not wipe.

        What a pass made has none, neither here nor there.
        """
        made = self.findings.replaced
        wiped = any(number is None and name not in made for name, number in fingerprint)
        numbered = any(number is not None for _, number in fingerprint)
        return fingerprint < self.fingerprint and numbered and not wiped

    def part(self, joint: JointGraph) -> JointGraph:
        """Return a part of this graph with what only the whole tells.

        The body of a region is cut in halves, and the passes for joint graphs run on each of them
        once more (``torch/_functorch/_aot_autograd/graph_compile.py``,
        ``run_joint_graph_passes_on_hops``). The whole knows better what is differentiated.
        """
        made = joint.findings.replaced
        known = joint.names.union(*({row.name for row in rows} for rows in made.values()))
        links = {name: link for name, link in self.findings.links.items() if name in known}
        bodies = {n: lineage for n, lineage in self.findings.bodies.items() if _call_of(n) in known}
        own = replace(
            joint.findings,
            links={**joint.findings.links, **links},
            bodies={**joint.findings.bodies, **bodies},
        )
        parent = replace(self.findings, links={}, bodies={}, outputs={})
        return replace(joint, id=self.id, findings=own.over(parent), made=frozenset(made))

    def shared(self, fingerprint: Fingerprint) -> int:
        """Tell how many nodes of a graph are its own; where torch wiped the numbers, by name."""
        if any(number is not None for _, number in fingerprint):
            return len(self.fingerprint & fingerprint)
        return sum(name in self.names for name, _ in fingerprint)


def _call_of(qualified: str) -> str:
    """Return the call of a nested graph's node."""
    return qualified.partition("/")[0]


def fingerprint_of(graph: torch.fx.Graph) -> Fingerprint:
    """Return what tells which joint graph a graph was cut from."""
    nodes = (node for node in graph.nodes if node.op == "call_function")
    return frozenset((node.name, fx.integer(node.meta, fx_names.SEQ_NR)) for node in nodes)


def op_call(target: object, args: Iterable[object]) -> OpCall:
    """Return what tells a call from others: its operator and its inputs.

    Args:
        target: what is called.
        args: what it is called with.
    """
    named = tuple(value.name for value in args if isinstance(value, torch.fx.Node))
    return fx.target_name(target), named
