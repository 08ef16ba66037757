"""The way from a backward node of a joint graph to the forward node it differentiates.

``seq_nr`` links within one joint graph, never across, and it is not a key: nodes that
have no gradient share the number of their neighbour. Where several forward nodes carry a
number, the source function, the modules and the stack tell them apart. Where none does
(views that autograd made anew), the line does.
Source: ``torch/fx/proxy.py`` puts the number on nodes since https://github.com/pytorch/pytorch/pull/103129;
a backward whose number no forward node has is https://github.com/pytorch/torchtitan/issues/3208.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch.fx

from profiler_ext.capture.lineage.stage import Compilation, Lineages, Link, Stage
from profiler_ext.capture.traces.metadata import NodeSnapshot, Replaced, main_of
from profiler_ext.records.evidence import ForwardEvidence
from profiler_ext.records.lineage import Lineage
from profiler_ext.torch_compat import fx
from profiler_ext.torch_compat.names import fx_names

PASSTHROUGH_OPS = ("getitem", "aten.detach.default", "aten.alias.default")


def joint_graph(stage: Stage) -> Lineages:
    """Say each node's name in the joint graph, and which forward node it differentiates there."""
    joint, lineages = stage.joint, dict[str, Lineage]()
    for node in stage.nodes if joint else ():
        replaced = _names(stage.compilation.represented_nodes(node))
        link = link_of(node, stage.compilation, replaced)
        lineages[node.name] = replace(
            stage.lineages[node.name],
            joint_name=joint_name(node, stage.compilation),
            forward_node=link.forward_node if link else None,
            forward_evidence=link.evidence if link else None,
        )
    return lineages


def _names(rows: Sequence[NodeSnapshot]) -> list[str]:
    """Return the names of what a node replaced, but first of what it mainly stands for."""
    main = main_of(rows)
    return [*([main.name] if main else ()), *(row.name for row in rows)]


def link_of(
    node: torch.fx.Node, compilation: Compilation, replaced: Iterable[str] = ()
) -> Link | None:
    """Return the forward node of a node, or of the first one that it replaced."""
    joint = compilation.joint_of(node.graph)
    if joint is None:
        return None
    traced = compilation.traced_name(node) if joint.has_other_origins else None
    names = (
        *((traced,) if joint.has_other_origin(traced) else ()),
        compilation.own_name(node),
        *replaced,
    )
    links = joint.findings.links
    return next((links[name] for name in names if name in links), None)


def joint_name(node: torch.fx.Node, compilation: Compilation) -> str | None:
    """Return a node's name in the joint graph."""
    joint, own = compilation.joint_of(node.graph), compilation.own_name(node)
    return joint.joint_name(own) if joint and own else None


def forward_name(node: torch.fx.Node, compilation: Compilation) -> str | None:
    """Return the name in the joint graph of a call's forward: of its own, if it is that."""
    link = link_of(node, compilation)
    return link.forward_node if link else joint_name(node, compilation)


def is_forward(lineage: Lineage) -> bool:
    """Tell whether a node was there when the forward ended."""
    tags = (fx_names.TAG_FORWARD.text, fx_names.TAG_MUST_BE_FORWARD.text)
    return lineage.partitioner_tag in tags


def find_links(
    nodes: Iterable[torch.fx.Node], snapshots: Mapping[str, NodeSnapshot]
) -> dict[str, Link]:
    """Return the forward node of each backward node that has one.

    Args:
        snapshots: what is known of them, with what a pattern lost found again.
    """
    ordered = list(nodes)
    forward = _Forward([n for n in ordered if is_forward(snapshots[n.name].lineage)], snapshots)
    backward = [n.name for n in ordered if differentiates(n, snapshots[n.name].lineage)]
    links = {name: forward.link(snapshots[name]) for name in backward}
    return {name: link for name, link in links.items() if link is not None}


def follow_replaced(
    links: Mapping[str, Link], nodes: Iterable[torch.fx.Node], replaced: Replaced
) -> dict[str, Link]:
    """Return links, those to a node that a pattern replaced led on to what stands for it.

    Args:
        links: the forward node of each node, as it was before the passes.
        nodes: the call nodes of a joint graph after its passes, in graph order.
    """
    targets = {node.name: fx.target_name(node.target) for node in nodes}
    left: dict[str, str] = {}
    for name in targets:
        main = main_of(replaced.get(name, ()))
        if main is not None and main.name not in targets:
            replacement = left.get(main.name)
            # A node may not say its op, as a `full` that a pass made: the last one stands for it.
            is_same_op = (
                replacement is not None and targets[replacement] == main.lineage.original_aten
            )
            left[main.name] = replacement if replacement is not None and is_same_op else name
    return {
        name: replace(link, forward_node=left.get(link.forward_node, link.forward_node))
        for name, link in links.items()
    }


def differentiates(node: torch.fx.Node, lineage: Lineage) -> bool:
    """Tell whether a node of a joint graph differentiates a forward node.

    A gradient sum's and an epilogue copy's number and stack tell of some other node.
    """
    return not is_forward(lineage) and not lineage.is_gradient_acc and not _is_epilogue(node)


def _is_epilogue(node: torch.fx.Node) -> bool:
    """Tell whether a node writes a mutated input back: its number is that of some other node."""
    return fx.target_name(node.target).startswith("aten.copy_")


class _Forward:
    """The forward nodes of a joint graph, by what a backward node can know of them."""

    def __init__(self, nodes: list[torch.fx.Node], snapshots: Mapping[str, NodeSnapshot]) -> None:
        self._snapshots = {node.name: snapshots[node.name] for node in nodes}
        self._ops = {node.name: fx.target_name(node.target) for node in nodes}
        self._by_number: dict[int, list[str]] = defaultdict(list)
        self._by_stack: dict[str, list[str]] = defaultdict(list)
        for node in nodes:
            # What only hands a value on has the number of the node that computes it.
            if self._ops[node.name] not in PASSTHROUGH_OPS and not _is_epilogue(node):
                self._add(snapshots[node.name])

    def _add(self, snapshot: NodeSnapshot) -> None:
        if (number := snapshot.lineage.seq_nr) is not None:
            self._by_number[number].append(snapshot.name)
        if snapshot.stack_text is not None:
            self._by_stack[snapshot.stack_text].append(snapshot.name)

    def link(self, snapshot: NodeSnapshot) -> Link | None:
        """Return the forward node of a backward node.

        What autograd made outside a node of its own (the Python backward of an
        ``autograd.Function``) has no tag, and the number of the last forward node.
        """
        if snapshot.lineage.partitioner_tag is None:
            return None
        return self._of_number(snapshot) or self._of_line(snapshot)

    def _of_number(self, snapshot: NodeSnapshot) -> Link | None:
        number = snapshot.lineage.seq_nr
        candidates = [] if number is None else self._by_number.get(number, [])
        if len(candidates) <= 1:
            return Link(candidates[0], ForwardEvidence.SEQ_NR) if candidates else None
        remaining = candidates
        for same in (_same_source, _same_modules, _same_stack):
            kept = [name for name in remaining if same(snapshot, self._snapshots[name])]
            remaining = kept or remaining
        is_one = len(remaining) == 1
        rule = ForwardEvidence.SEQ_NR_SOURCE if is_one else ForwardEvidence.SEQ_NR_DECOMPOSED
        return Link(self._yielding(remaining), rule)

    def _yielding(self, names: Sequence[str]) -> str:
        """Return which of one op's nodes yields its value: the last one, but for a padded product.

        There the product is still the op itself, and what follows cuts the padding off.
        Source: ``torch/_inductor/fx_passes/pad_mm.py``, ``pad_mm``.
        """
        op = self._snapshots[names[-1]].lineage.original_aten
        same = (name for name in names if self._snapshots[name].lineage.original_aten == op)
        undecomposed = [name for name in same if self._ops[name] == op]
        return (undecomposed or names)[-1]

    def _of_line(self, snapshot: NodeSnapshot) -> Link | None:
        """A view that autograd makes anew has a number of its own, and the mutation's line.

        So has what a pattern made. Several layers run one line: another layer's node is none.
        """
        candidates = self._by_stack.get(snapshot.stack_text or "", [])
        if snapshot.lineage.modules:
            candidates = [n for n in candidates if _same_modules(snapshot, self._snapshots[n])]
        return Link(candidates[-1], ForwardEvidence.STACK) if candidates else None


def _same_source(backward: NodeSnapshot, forward: NodeSnapshot) -> bool:
    return backward.lineage.source_fns == forward.lineage.source_fns


def _same_modules(backward: NodeSnapshot, forward: NodeSnapshot) -> bool:
    return backward.lineage.modules == forward.lineage.modules


def _same_stack(backward: NodeSnapshot, forward: NodeSnapshot) -> bool:
    return backward.stack_text == forward.stack_text
