"""Owns the stages at which lineage is looked for: a graph on its way to code, and its compile.

A joint graph is seen before it is cut in two; what a mechanism finds there, a rule says of the
nodes of the graphs that were cut from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch.fx

from profiler_ext.capture.lineage.joint_graph import JointGraph, Lineages, OpCall, op_call
from profiler_ext.capture.traces.metadata import NodeSnapshot, Replaced, main_of
from profiler_ext.isolation.alone import Alone, unguarded
from profiler_ext.recall.dynamo_graph import DynamoGraph
from profiler_ext.records import FxNode
from profiler_ext.torch_compat import fx


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
    alone: Alone = unguarded
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
