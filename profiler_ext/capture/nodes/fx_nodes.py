"""Owns the turning of FX nodes into records, with what a pass lost found again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch.fx

from profiler_ext.capture.nodes.dynamo_graphs import DynamoGraph
from profiler_ext.capture.nodes.joint import JointGraph, filled_meta, main_row, wrapped_call
from profiler_ext.capture.nodes.links import Link
from profiler_ext.capture.nodes.module_paths import module_frames
from profiler_ext.capture.nodes.mutations import with_source
from profiler_ext.capture.nodes.origins import led
from profiler_ext.capture.nodes.replacements import Replaced
from profiler_ext.capture.nodes.stacks import parse_stack
from profiler_ext.records import Frame, FxNode, ModuleFrame, TensorSpec
from profiler_ext.torch_compat import fx
from profiler_ext.torch_compat.compiled_autograd import COPIED_FROM
from profiler_ext.torch_compat.names import fx_names


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a node's record needs from around its graph.

    Attributes:
        joint_of: the joint graph that a graph was cut from, if it is known.
        dynamo: the Dynamo graph of the same compile, if it is known.
        entered: names in the graph as it entered Inductor.
        replaced: for each graph what the post-grad passes' new nodes replaced.
    """

    joint_of: Callable[[torch.fx.Graph], JointGraph | None]
    dynamo: DynamoGraph | None = None
    entered: frozenset[str] = frozenset()
    replaced: Mapping[torch.fx.Graph, Replaced] = field(default_factory=dict)

    def rows(self, node: torch.fx.Node) -> tuple[tuple[str, fx.Meta], ...]:
        """Return what a node replaced, in the post-grad passes or in the joint graph's."""
        joint = self.joint_of(node.graph)
        at_joint = joint.replaced.get(node.name, ()) if joint else ()
        call = wrapped_call(node)
        if joint and call is not None and call in joint.random:
            return (joint.random[call],)
        return tuple(self.replaced.get(node.graph, {}).get(node.name, ())) or tuple(at_joint)

    def found_meta(self, node: torch.fx.Node) -> fx.Meta:
        """Return a node's metadata, with what a pass or an epilogue lost found again."""
        joint = self.joint_of(node.graph)
        meta = self._replaced_meta(node)
        if joint is None:
            return meta
        found = with_source(node, meta, joint.mutations)
        return {**found, **joint.source_of(self._traced_name(node, joint))}

    def members(self, node: torch.fx.Node) -> tuple[tuple[str, fx.Meta], ...]:
        """Return the collectives that a bucket's node serves; of a wait, their waits."""
        rows = self.replaced.get(node.graph, {}).get(node.name, ())
        if not rows or not all(fx.is_collective(meta) for _, meta in rows):
            return ()
        waits = fx.is_wait(node.meta)
        return tuple(row for row in rows if fx.is_wait(row[1]) == waits)

    def _replaced_meta(self, node: torch.fx.Node) -> fx.Meta:
        """Return a node's metadata; a bucket's node has another one's, so its collective's."""
        members = self.members(node)
        if len(members) == 1:
            return {**members[0][1], fx_names.VAL.text: fx_names.VAL.of(node.meta)}
        return filled_meta(node.meta, self.rows(node))

    def joint_name(self, node: torch.fx.Node) -> str | None:
        """Return a node's name in the joint graph."""
        joint, own = self.joint_of(node.graph), self._own_name(node)
        return joint.joint_name(own) if joint and own else None

    def region_name(self, node: torch.fx.Node) -> str | None:
        """Return the name of what a region's node was traced from, or mainly stands for."""
        joint = self.joint_of(node.graph)
        traced = self._traced_name(node, joint) if joint and joint.traced_from else None
        return joint.traced_from.get(traced) if joint and joint.traced_from and traced else None

    def _own_name(self, node: torch.fx.Node) -> str | None:
        """Return a node's name in the traced graph; a later pass may use one of its names anew."""
        joint = self.joint_of(node.graph)
        is_made_later = node.name in self.replaced.get(node.graph, {})
        return node.name if joint and node.name in joint.names and not is_made_later else None

    def forward_name(self, node: torch.fx.Node) -> str | None:
        """Return the name in the joint graph of a call's forward: of its own, if it is that."""
        link = self.link(node, ())
        return link.forward_node if link else self.joint_name(node)

    def link(self, node: torch.fx.Node, replaced: Iterable[str]) -> Link | None:
        """Return the forward node of a node, or of the first one that it replaced."""
        joint = self.joint_of(node.graph)
        if joint is None:
            return None
        own, traced = self._own_name(node), self._traced_name(node, joint)
        names = (*((traced,) if traced in joint.sources else ()), own, *replaced)
        return next((joint.links[n] for n in names if n in joint.links), None)

    def _traced_name(self, node: torch.fx.Node, joint: JointGraph) -> str | None:
        """Return the name of the traced node that a node is, or mainly stands for."""
        row = main_row(self.rows(node))
        name = row[0] if row else self._own_name(node)
        at_joint = main_row(joint.replaced.get(name, ())) if name else None
        return at_joint[0] if at_joint else name


def describe_nodes(nodes: Iterable[torch.fx.Node], around: Surroundings) -> tuple[FxNode, ...]:
    """Return the records of a graph's call nodes, in graph order."""
    return tuple(describe_node(node, around) for node in nodes if node.op == "call_function")


def printed_frames(nodes: Iterable[torch.fx.Node]) -> dict[str, tuple[Frame, ...]]:
    """Return the frame that torch prints above each node, if its own metadata has one."""
    return {node.name: parse_stack(fx.text(node.meta, fx_names.STACK_TRACE))[-1:] for node in nodes}


def modules_of(meta: fx.Meta, dynamo: DynamoGraph | None) -> tuple[ModuleFrame, ...]:
    """Return the modules that torch notes of a node, by their paths from the user's model."""
    roots, own = (dynamo.roots, dynamo.own) if dynamo else ((), None)
    return module_frames(fx.module_stack(meta), roots, own)


def describe_node(node: torch.fx.Node, around: Surroundings) -> FxNode:
    """Return the record of one FX node."""
    replaced = around.rows(node)
    meta = around.found_meta(node)
    link = around.link(node, (name for name, _ in replaced))
    dynamo = around.dynamo
    described = FxNode(
        name=node.name,
        target=fx.target_name(node.target),
        original_aten=fx.original_aten(meta),
        seq_nr=fx.integer(meta, fx_names.SEQ_NR),
        stack=parse_stack(fx.text(meta, fx_names.STACK_TRACE)),
        modules=modules_of(meta, dynamo),
        source_fns=fx.source_fns(meta),
        partitioner_tag=fx.text(meta, fx_names.PARTITIONER_TAG),
        autograd_backward=fx.autograd_backward(meta),
        is_gradient_acc=bool(fx_names.IS_GRADIENT_ACC.of(meta)),
        recompute=fx.text(meta, fx_names.RECOMPUTE),
        annotation=fx.annotation(meta),
        inputs=tuple(value.name for value in node.all_input_nodes),
        entry_name=node.name if node.name in around.entered else None,
        joint_name=around.joint_name(node),
        forward_node=link.forward_node if link else None,
        forward_evidence=link.evidence if link else None,
        replaced=tuple(name for name, _ in replaced),
        copied_from=_copied_from(around, meta, replaced) or around.region_name(node),
        outputs=tuple(tensor_spec(value) for value in fx.tensors(meta)),
        is_random=fx.draws(node),
    )
    return led(described, dynamo.origins) if dynamo else described


def _copied_from(
    around: Surroundings, own: fx.Meta, replaced: Iterable[tuple[str, fx.Meta]]
) -> str | None:
    """Return the node of compiled autograd's graph that a node, or what it stands for, is of.

    A matrix product that a pattern merged with a sum of gradients stands for the product.
    """
    rows = (own, *reversed([meta for _, meta in replaced]))
    names = [str(meta[COPIED_FROM]) for meta in rows if COPIED_FROM in meta]
    origins = around.dynamo.origins if around.dynamo else {}
    work = (name for name in names if not (name in origins and origins[name][0].is_gradient_acc))
    return next(work, names[0] if names else None)


def tensor_spec(value: torch.Tensor) -> TensorSpec:
    """Return what is recorded of a tensor."""
    return TensorSpec(
        dtype=str(value.dtype).removeprefix("torch."),
        size=tuple(_dimension(size) for size in value.shape),
        stride=_stride(value),
        device=str(value.device),
    )


def _stride(value: torch.Tensor) -> tuple[int | str, ...]:
    if value.layout is not torch.strided:
        return ()
    return tuple(_dimension(stride) for stride in value.stride())


def _dimension(size: object) -> int | str:
    return size if isinstance(size, int) else str(size)
