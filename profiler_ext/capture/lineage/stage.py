"""The input of the lineage rules: the joint graph with its findings, the compile, and the nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

import torch.fx

from profiler_ext.capture.traces.metadata import NodeSnapshot, Replaced, main_of
from profiler_ext.isolation.hook_protocols import TryRun, unguarded
from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.records.evidence import ForwardEvidence
from profiler_ext.records.lineage import Lineage
from profiler_ext.records.provenance import FxNode
from profiler_ext.torch_compat import fx
from profiler_ext.torch_compat.names import fx_names

Fingerprint = frozenset[tuple[str, int | None]]
"""The names and numbers of a graph's nodes; names alone are shared by many graphs."""

OpCall = tuple[str, tuple[str, ...]]
"""An operator, and the names of its input tensors."""

Lineages = Mapping[str, Lineage]
"""Lineages by node name."""


@dataclass(frozen=True, slots=True)
class Link:
    """A forward node, and the rule that found it."""

    forward_node: str
    evidence: ForwardEvidence


@dataclass(frozen=True, slots=True)
class JointFindings:
    """What mechanisms found in a joint graph, by node name."""

    links: Mapping[str, Link] = field(default_factory=dict)  # of backward nodes
    replaced: Replaced = field(default_factory=dict)
    mutated: Lineages = field(default_factory=dict)  # what mutated, by epilogue copy
    overwritten: Lineages = field(default_factory=dict)  # before a pass wrote another's metadata
    replayed_views: Lineages = field(default_factory=dict)  # of the original view
    hooks: Lineages = field(default_factory=dict)  # nodes made by hooks on gradients
    gradients: Mapping[str, Lineage | None] = field(default_factory=dict)
    """Of gradients taken inside the traced function; ``None`` if torch's place is right."""
    bodies: Lineages = field(default_factory=dict)  # backward bodies of higher-order ops
    random: Mapping[OpCall, NodeSnapshot] = field(default_factory=dict)  # wrapped by partitioner
    outputs: Mapping[int, NodeSnapshot] = field(default_factory=dict)  # by index in Dynamo's graph
    lost: frozenset[str] = frozenset()  # the findings whose mechanism failed

    def over(self, parent: JointFindings) -> JointFindings:
        """Return these findings merged over those of the graph that this is a part of."""
        merged = {
            f.name: {**getattr(parent, f.name), **getattr(self, f.name)}
            for f in fields(JointFindings)
            if f.name != "lost"
        }
        return JointFindings(**merged, lost=parent.lost | self.lost)


@dataclass(frozen=True, slots=True)
class TracedFrom:
    """What the nodes of a separately compiled region were traced from."""

    names: Mapping[str, str] = field(default_factory=dict)  # in the outer graph
    lineages: Lineages = field(default_factory=dict)
    parent: frozenset[str] = frozenset()  # the nodes of the outer joint graph


@dataclass(frozen=True, slots=True)
class JointGraph:
    """What is kept of a joint graph, seen before partitioning, until its halves are compiled."""

    id: str  # digest of its nodes; the halves carry it
    names: frozenset[str]
    fingerprint: Fingerprint = frozenset()
    is_inference: bool = False  # it is a forward alone
    findings: JointFindings = JointFindings()
    region: TracedFrom | None = None  # if it is a separately compiled region
    made: frozenset[str] = frozenset()  # by passes after partitioning

    def joint_name(self, name: str) -> str | None:
        """Return the name of one of its nodes in the joint graph, if it has one."""
        if self.region is None:
            return None if name in self.made else name
        parent_name = self.region.names.get(name)
        return parent_name if parent_name in self.region.parent else None

    @property
    def has_other_origins(self) -> bool:
        """Whether any node has another origin than its own metadata says."""
        traced = self.region.lineages if self.region else {}
        return bool(self.findings.overwritten or self.findings.gradients or traced)

    def has_other_origin(self, name: str | None) -> bool:
        """Tell whether a node has another origin than its own metadata says."""
        traced = self.region.lineages if self.region else {}
        return (
            name in self.findings.overwritten or name in self.findings.gradients or name in traced
        )

    def replaced_by(self, node: torch.fx.Node) -> tuple[NodeSnapshot, ...]:
        """Return what a node of this name replaced in the joint passes."""
        return tuple(self.findings.replaced.get(node.name, ()))

    def is_own_replacement(self, node: torch.fx.Node) -> bool:
        """Tell whether a node is the one that this graph's passes made."""
        # A recomputed region has been through another compile's passes, which reuse names. A
        # pattern's node has the stack of what it replaced.
        stacks = {row.stack_text for row in self.replaced_by(node)}
        return not stacks or fx.text(node.meta, fx_names.STACK_TRACE) in {None, *stacks}

    def contains_graph(self, fingerprint: Fingerprint) -> bool:
        """Tell whether a graph is a part of this one, by numbers that torch did not wipe."""
        made = self.findings.replaced  # without numbers here as well
        wiped = any(number is None and name not in made for name, number in fingerprint)
        numbered = any(number is not None for _, number in fingerprint)
        return fingerprint < self.fingerprint and numbered and not wiped

    def part(self, joint: JointGraph) -> JointGraph:
        """Return a part of this graph with the findings that only the whole has.

        The body of a region is partitioned, and the joint passes run on each half once more
        (``torch/_functorch/_aot_autograd/graph_compile.py``, ``run_joint_graph_passes_on_hops``).
        """
        made = joint.findings.replaced
        known = joint.names.union(*({row.name for row in rows} for rows in made.values()))
        links = {name: link for name, link in self.findings.links.items() if name in known}
        bodies = {
            n: lineage
            for n, lineage in self.findings.bodies.items()
            if n.partition("/")[0] in known
        }
        own = replace(
            joint.findings,
            links={**joint.findings.links, **links},
            bodies={**joint.findings.bodies, **bodies},
        )
        parent = replace(self.findings, links={}, bodies={}, outputs={})
        return replace(joint, id=self.id, findings=own.over(parent), made=frozenset(made))

    def shared(self, fingerprint: Fingerprint) -> int:
        """Return how many nodes of a graph it has; by name if torch wiped the numbers."""
        if any(number is not None for _, number in fingerprint):
            return len(self.fingerprint & fingerprint)
        return sum(name in self.names for name, _ in fingerprint)


def fingerprint_of(graph: torch.fx.Graph) -> Fingerprint:
    """Return what identifies the joint graph that a graph was cut from."""
    nodes = fx.call_nodes(graph)
    return frozenset((node.name, fx.integer(node.meta, fx_names.SEQ_NR)) for node in nodes)


def op_call(target: object, args: Iterable[object]) -> OpCall:
    """Return what identifies a call: its operator and its inputs."""
    named = tuple(value.name for value in args if isinstance(value, torch.fx.Node))
    return fx.target_name(target), named


@dataclass(frozen=True, slots=True)
class Compilation:
    """What is known of a compile when its graphs reach Inductor."""

    joint_of: Callable[[torch.fx.Graph], JointGraph | None]
    dynamo: DynamoGraph | None = None
    entered: frozenset[str] = frozenset()  # names in the graph as it entered Inductor
    replaced: Mapping[torch.fx.Graph, Replaced] = field(default_factory=dict)  # post-grad
    backwards: Mapping[int, Mapping[str, FxNode]] = field(default_factory=dict)
    """The backward graphs that compiled autograd copies, by their number in AOTAutograd."""
    try_run: TryRun = unguarded
    lost: frozenset[str] = frozenset()  # mechanisms that failed in the post-grad passes
    _represented: dict[torch.fx.Node, tuple[NodeSnapshot, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def made_from(self, node: torch.fx.Node) -> tuple[NodeSnapshot, ...]:
        """Return what the post-grad passes made a node from, if they did."""
        return tuple(self.replaced.get(node.graph, {}).get(node.name, ()))

    def is_of_failed_pattern(self, node: torch.fx.Node) -> bool:
        """Tell whether a pass made a node, and what it replaced is unknown."""
        joint = self.joint_of(node.graph)
        at_joint = joint.findings.replaced if joint else {}
        known = (self.replaced.get(node.graph, {}), at_joint)
        return any(node.name in rows and not rows[node.name] for rows in known)

    def replaced_by(self, node: torch.fx.Node) -> tuple[NodeSnapshot, ...]:
        """Return what a node replaced, in the post-grad or the joint passes."""
        joint = self.joint_of(node.graph)
        at_joint = joint.replaced_by(node) if joint and joint.is_own_replacement(node) else ()
        return self.made_from(node) or at_joint

    def wrapped_by(self, node: torch.fx.Node) -> NodeSnapshot | None:
        """Return the random call that a node wraps, if it does."""
        joint = self.joint_of(node.graph)
        call = wrapped_call(node) if joint and joint.findings.random else None
        return joint.findings.random.get(call) if joint and call is not None else None

    def represented_nodes(self, node: torch.fx.Node) -> tuple[NodeSnapshot, ...]:
        """Return the nodes that a node stands for: the one it wraps, or those it replaced."""
        if node not in self._represented:  # asked by several rules
            wrapped = self.wrapped_by(node)
            self._represented[node] = self.replaced_by(node) if wrapped is None else (wrapped,)
        return self._represented[node]

    def own_name(self, node: torch.fx.Node) -> str | None:
        """Return a node's name in the traced graph; a later pass may reuse one of its names."""
        joint = self.joint_of(node.graph)
        is_made_later = node.name in self.replaced.get(node.graph, {})
        is_known = joint is not None and node.name in joint.names and joint.is_own_replacement(node)
        return node.name if is_known and not is_made_later else None

    def traced_name(self, node: torch.fx.Node) -> str | None:
        """Return the name of the traced node that a node is, or mainly represents."""
        joint = self.joint_of(node.graph)
        main = main_of(self.represented_nodes(node))
        name = main.name if main else self.own_name(node)
        at_joint = main_of(joint.findings.replaced.get(name, ())) if joint and name else None
        return at_joint.name if at_joint else name


def wrapped_call(node: torch.fx.Node) -> OpCall | None:
    """Return the call that a higher-order op carries, ``None`` for any other node.

    To replay random numbers the partitioner wraps an op in ``graphsafe_run_with_rng_state`` without
    metadata (``torch/_functorch/partitioners.py``, ``functionalize_rng_ops``).
    """
    carried = fx.carried_op(node)
    if carried is None:
        return None
    return op_call(carried, node.args[node.args.index(carried) + 1 :])


@dataclass(frozen=True, slots=True)
class Stage:
    """The nodes of one graph on their way to code, with the lineages found so far."""

    nodes: tuple[torch.fx.Node, ...]
    compilation: Compilation
    inputs: tuple[torch.fx.Node, ...] = ()
    lineages: Lineages = field(default_factory=dict)
    prefix: str = ""  # of a nested graph: ``cond/true_graph_0``
    caller: torch.fx.Node | None = None  # the outermost graph's node that calls a nested one

    @property
    def joint(self) -> JointGraph | None:
        """The joint graph of the nodes."""
        first = next(iter((*self.nodes[:1], *self.inputs[:1])), None)
        return self.compilation.joint_of(first.graph) if first is not None else None

    @property
    def lost(self) -> frozenset[str]:
        """The findings whose mechanism failed, in the joint graph or elsewhere."""
        lost = self.compilation.lost | (self.dynamo.lost if self.dynamo else frozenset())
        around = self.compilation.joint_of(self.caller.graph) if self.caller else None
        for joint in (self.joint, around):  # a body's nodes are found with the graph around it
            lost |= joint.findings.lost if joint else frozenset()
        return lost

    @property
    def dynamo(self) -> DynamoGraph | None:
        """The Dynamo graph of the compile."""
        return self.compilation.dynamo

    def with_lineages(self, added: Lineages) -> Stage:
        """Return this stage with a rule's lineages."""
        return replace(self, lineages={**self.lineages, **added}) if added else self
