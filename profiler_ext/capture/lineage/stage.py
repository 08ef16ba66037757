"""What the lineage rules are given.

The joint graph with its findings, the compilation, and nodes on their way to code.

A joint graph is seen before it is cut in two; what a mechanism finds there, a rule says of the
nodes of the graphs that were cut from it.
"""

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
        replayed_views: views that functionalization made anew, with where they were made first.
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
    replayed_views: Lineages = field(default_factory=dict)
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
        """Tell how many nodes of a graph are its own; where torch wiped the numbers, by name."""
        if any(number is not None for _, number in fingerprint):
            return len(self.fingerprint & fingerprint)
        return sum(name in self.names for name, _ in fingerprint)


def fingerprint_of(graph: torch.fx.Graph) -> Fingerprint:
    """Return what tells which joint graph a graph was cut from."""
    nodes = (node for node in graph.nodes if node.op == "call_function")
    return frozenset((node.name, fx.integer(node.meta, fx_names.SEQ_NR)) for node in nodes)


def op_call(target: object, args: Iterable[object]) -> OpCall:
    """Return what tells a call from others: its operator and its inputs."""
    named = tuple(value.name for value in args if isinstance(value, torch.fx.Node))
    return fx.target_name(target), named


@dataclass(frozen=True, slots=True)
class Compilation:
    """What is known of a compile when its graphs reach Inductor.

    Attributes:
        joint_of: the joint graph that a graph was cut from, if it is known.
        dynamo: the Dynamo graph of the same compile, if it is known.
        entered: names in the graph as it entered Inductor.
        replaced: for each graph what the post-grad passes' new nodes replaced.
        backwards: for a graph of compiled autograd's the nodes of the backward graphs that it
            copies, by the number of the compile in AOTAutograd, and by their names.
        alone: runs mechanisms, each of which may fail alone.
        lost: what was not found of the post-grad passes, as the mechanism failed.
    """

    joint_of: Callable[[torch.fx.Graph], JointGraph | None]
    dynamo: DynamoGraph | None = None
    entered: frozenset[str] = frozenset()
    replaced: Mapping[torch.fx.Graph, Replaced] = field(default_factory=dict)
    backwards: Mapping[int, Mapping[str, FxNode]] = field(default_factory=dict)
    try_run: TryRun = unguarded
    lost: frozenset[str] = frozenset()
    _represented: dict[torch.fx.Node, tuple[NodeSnapshot, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def made_from(self, node: torch.fx.Node) -> tuple[NodeSnapshot, ...]:
        """Return what the post-grad passes made a node of; empty of any other node."""
        return tuple(self.replaced.get(node.graph, {}).get(node.name, ()))

    def is_of_failed_pattern(self, node: torch.fx.Node) -> bool:
        """Tell whether a pass made a node of which it was not found out what it replaced."""
        joint = self.joint_of(node.graph)
        at_joint = joint.findings.replaced if joint else {}
        known = (self.replaced.get(node.graph, {}), at_joint)
        return any(node.name in rows and not rows[node.name] for rows in known)

    def replaced_by(self, node: torch.fx.Node) -> tuple[NodeSnapshot, ...]:
        """Return what a node replaced, in the post-grad passes or in the joint graph's."""
        joint = self.joint_of(node.graph)
        at_joint = joint.replaced_by(node) if joint and joint.is_own_replacement(node) else ()
        return self.made_from(node) or at_joint

    def wrapped_by(self, node: torch.fx.Node) -> NodeSnapshot | None:
        """Return the random call that a node wraps, if it does."""
        joint = self.joint_of(node.graph)
        call = wrapped_call(node) if joint and joint.findings.random else None
        return joint.findings.random.get(call) if joint and call is not None else None

    def represented_nodes(self, node: torch.fx.Node) -> tuple[NodeSnapshot, ...]:
        """Return the nodes that a node stands for: the one that it wraps, or what it replaced."""
        if node not in self._represented:  # asked by several rules
            wrapped = self.wrapped_by(node)
            self._represented[node] = self.replaced_by(node) if wrapped is None else (wrapped,)
        return self._represented[node]

    def own_name(self, node: torch.fx.Node) -> str | None:
        """Return a node's name in the traced graph; a later pass may use one of its names anew."""
        joint = self.joint_of(node.graph)
        is_made_later = node.name in self.replaced.get(node.graph, {})
        is_known = joint is not None and node.name in joint.names and joint.is_own_replacement(node)
        return node.name if is_known and not is_made_later else None

    def traced_name(self, node: torch.fx.Node) -> str | None:
        """Return the name of the traced node that a node is, or mainly stands for."""
        joint = self.joint_of(node.graph)
        main = main_of(self.represented_nodes(node))
        name = main.name if main else self.own_name(node)
        at_joint = main_of(joint.findings.replaced.get(name, ())) if joint and name else None
        return at_joint.name if at_joint else name


def wrapped_call(node: torch.fx.Node) -> OpCall | None:
    """Return the call that a higher-order op carries, ``None`` for any other node.

    To replay random numbers the partitioner puts an op into ``graphsafe_run_with_rng_state``
    and copies no metadata (``torch/_functorch/partitioners.py``, ``functionalize_rng_ops``).
    """
    carried = fx.carried_op(node)
    if carried is None:
        return None
    return op_call(carried, node.args[node.args.index(carried) + 1 :])


@dataclass(frozen=True, slots=True)
class Stage:
    """Nodes of one graph on their way to code, and what is known of them so far.

    Attributes:
        nodes: the nodes.
        compilation: what is known of their compile.
        inputs: inputs of the graph; they have no metadata that any other rule reads.
        lineages: where they come from, as far as earlier rules know.
        prefix: what names a nested graph, ``cond/true_graph_0``; ``""`` of the outermost one.
        caller: the node of the outermost graph that calls a nested one.
    """

    nodes: tuple[torch.fx.Node, ...]
    compilation: Compilation
    inputs: tuple[torch.fx.Node, ...] = ()
    lineages: Lineages = field(default_factory=dict)
    prefix: str = ""
    caller: torch.fx.Node | None = None

    @property
    def joint(self) -> JointGraph | None:
        """The joint graph that theirs was cut from."""
        first = next(iter((*self.nodes[:1], *self.inputs[:1])), None)
        return self.compilation.joint_of(first.graph) if first is not None else None

    @property
    def lost(self) -> frozenset[str]:
        """What was not found, in the joint graph or elsewhere, as its mechanism failed."""
        lost = self.compilation.lost | (self.dynamo.lost if self.dynamo else frozenset())
        around = self.compilation.joint_of(self.caller.graph) if self.caller else None
        for joint in (self.joint, around):  # a body's nodes are found with the graph around it
            lost |= joint.findings.lost if joint else frozenset()
        return lost

    @property
    def dynamo(self) -> DynamoGraph | None:
        """The Dynamo graph of the same compile."""
        return self.compilation.dynamo

    def with_lineages(self, added: Lineages) -> Stage:
        """Return this stage with what one more rule found."""
        return replace(self, lineages={**self.lineages, **added}) if added else self
