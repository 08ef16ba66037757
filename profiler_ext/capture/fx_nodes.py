"""Owns the turning of FX nodes into records, with what a pass lost found again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch.fx

from profiler_ext.capture.dynamo_graphs import DynamoGraph
from profiler_ext.capture.joint import JointGraph, Link, filled_meta
from profiler_ext.capture.module_paths import module_frames
from profiler_ext.capture.stacks import parse_stack
from profiler_ext.records import FxNode, TensorSpec
from profiler_ext.torch_compat import fx

_FOREIGN = Link("", "")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a node's record needs from around its graph.

    Attributes:
        joint: the joint graph that the graph was cut from, if it is known.
        dynamo: the Dynamo graph of the same compile, if it is known.
        entered: names in the graph as it entered Inductor.
        replaced: what the post-grad passes' new nodes replaced.
    """

    joint: JointGraph | None = None
    dynamo: DynamoGraph | None = None
    entered: frozenset[str] = frozenset()
    replaced: Mapping[str, tuple[tuple[str, fx.Meta], ...]] = field(default_factory=dict)

    def rows(self, name: str) -> tuple[tuple[str, fx.Meta], ...]:
        """Return what a node replaced, in the post-grad passes or in the joint graph's."""
        at_joint = self.joint.replaced.get(name, ()) if self.joint else ()
        return tuple(self.replaced.get(name, ())) or tuple(at_joint)

    def link(self, name: str, replaced: Iterable[str]) -> Link:
        """Return the forward node of a node, or of the first one that it replaced."""
        links = self.joint.links if self.joint else {}
        found = (links[n] for n in (name, *replaced) if n in links)
        return next(found, _FOREIGN)


def describe_nodes(nodes: Iterable[torch.fx.Node], around: Surroundings) -> tuple[FxNode, ...]:
    """Return the records of a graph's call nodes, in graph order."""
    return tuple(describe_node(node, around) for node in nodes if node.op == "call_function")


def describe_node(node: torch.fx.Node, around: Surroundings) -> FxNode:
    """Return the record of one FX node."""
    replaced = around.rows(node.name)
    meta = filled_meta(node.meta, replaced)
    link = around.link(node.name, (name for name, _ in replaced))
    dynamo = around.dynamo
    return FxNode(
        name=node.name,
        target=fx.target_name(node.target),
        original_aten=fx.original_aten(meta),
        seq_nr=fx.integer(meta, "seq_nr"),
        stack=parse_stack(fx.text(meta, "stack_trace")),
        modules=module_frames(
            fx.module_stack(meta), dynamo.roots if dynamo else (), dynamo.own if dynamo else None
        ),
        source_fns=fx.source_fns(meta),
        partitioner_tag=fx.text(meta, "partitioner_tag"),
        autograd_backward=fx.autograd_backward(meta),
        is_gradient_acc=bool(meta.get("is_gradient_acc", False)),
        recompute=fx.text(meta, "recompute"),
        annotation=fx.annotation(meta),
        inputs=tuple(value.name for value in node.all_input_nodes),
        entry_name=node.name if node.name in around.entered else None,
        joint_name=node.name if around.joint and node.name in around.joint.names else None,
        forward_node=link.forward_node or None,
        forward_evidence=link.evidence or None,
        replaced=tuple(name for name, _ in replaced),
        outputs=tuple(_spec(value) for value in fx.tensors(meta)),
    )


def _spec(value: torch.Tensor) -> TensorSpec:
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
