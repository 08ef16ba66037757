"""The link from a backward node of a joint graph to the forward node it differentiates.

Source: ``torch/fx/proxy.py`` puts ``seq_nr`` on nodes since
https://github.com/pytorch/pytorch/pull/103129; a backward whose number no forward node has is
https://github.com/pytorch/torchtitan/issues/3208.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """Add each node's name in the joint graph, and its forward node there."""
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
    """Return the names of the nodes that a node replaced, the main one first."""
    main = main_of(rows)
    return [*([main.name] if main else ()), *(row.name for row in rows)]


def link_of(
    node: torch.fx.Node, compilation: Compilation, replaced: Iterable[str] = ()
) -> Link | None:
    """Return the link of a node, or of the first node that it replaced."""
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
    """Return the joint graph's name of a call's forward, or of the call if it is forward."""
    link = link_of(node, compilation)
    return link.forward_node if link else joint_name(node, compilation)


def is_forward(lineage: Lineage) -> bool:
    """Tell whether a node is in the forward half."""
    tags = (fx_names.TAG_FORWARD.text, fx_names.TAG_MUST_BE_FORWARD.text)
    return lineage.partitioner_tag in tags


def find_links(
    nodes: Iterable[torch.fx.Node], snapshots: Mapping[str, NodeSnapshot]
) -> dict[str, Link]:
    """Return the forward node of each backward node that has one."""
    ordered = list(nodes)
    forward = _Forward([n for n in ordered if is_forward(snapshots[n.name].lineage)], snapshots)
    backward = [n.name for n in ordered if differentiates(n, snapshots[n.name].lineage)]
    links = {name: forward.link(snapshots[name]) for name in backward}
    return {name: link for name, link in links.items() if link is not None}


def follow_replaced(
    links: Mapping[str, Link], nodes: Iterable[torch.fx.Node], replaced: Replaced
) -> dict[str, Link]:
    """Return links with replaced forward nodes exchanged for their replacement."""
    targets = {node.name: fx.target_name(node.target) for node in nodes}
    left: dict[str, str] = {}
    for name in targets:
        main = main_of(replaced.get(name, ()))
        if main is not None and main.name not in targets:
            replacement = left.get(main.name)
            # A node may have no op, as a `full` that a pass made: then the last one counts.
            is_same_op = (
                replacement is not None and targets[replacement] == main.lineage.original_aten
            )
            left[main.name] = replacement if replacement is not None and is_same_op else name
    return {
        name: replace(link, forward_node=left.get(link.forward_node, link.forward_node))
        for name, link in links.items()
    }


def differentiates(node: torch.fx.Node, lineage: Lineage) -> bool:
    """Tell whether a node of a joint graph differentiates a forward node."""
    # The number and stack of a gradient sum or an epilogue copy are another node's.
    return not is_forward(lineage) and not lineage.is_gradient_acc and not _is_epilogue(node)


def _is_epilogue(node: torch.fx.Node) -> bool:
    """Tell whether a node writes a mutated input back."""
    return fx.target_name(node.target).startswith("aten.copy_")


class _Forward:
    """The forward nodes of a joint graph, by what their backward nodes share with them.

    ``seq_nr`` holds within one joint graph and is no key: nodes without a gradient share their
    neighbour's. Among several candidates the source function, modules and stack decide. Replayed
    views have numbers of their own, and are matched by line.
    """

    def __init__(self, nodes: list[torch.fx.Node], snapshots: Mapping[str, NodeSnapshot]) -> None:
        self._snapshots = {node.name: snapshots[node.name] for node in nodes}
        self._ops = {node.name: fx.target_name(node.target) for node in nodes}
        self._by_number: dict[int, list[str]] = defaultdict(list)
        self._by_stack: dict[str, list[str]] = defaultdict(list)
        for node in nodes:
            # A passthrough node has the number of the node that computes the value.
            if self._ops[node.name] not in PASSTHROUGH_OPS and not _is_epilogue(node):
                snapshot = snapshots[node.name]
                if (number := snapshot.lineage.seq_nr) is not None:
                    self._by_number[number].append(snapshot.name)
                if snapshot.stack_text is not None:
                    self._by_stack[snapshot.stack_text].append(snapshot.name)

    def link(self, snapshot: NodeSnapshot) -> Link | None:
        """Return the forward node of a backward node."""
        # The Python backward of an ``autograd.Function`` has no tag, and the number of the last
        # forward node.
        if snapshot.lineage.partitioner_tag is None:
            return None
        return self._of_number(snapshot) or self._of_line(snapshot)

    def _of_number(self, snapshot: NodeSnapshot) -> Link | None:
        number = snapshot.lineage.seq_nr
        candidates = [] if number is None else self._by_number.get(number, [])
        if len(candidates) <= 1:
            return Link(candidates[0], ForwardEvidence.SEQ_NR) if candidates else None
        remaining = candidates
        for key in _SOURCE_KEYS:
            kept = [name for name in remaining if key(self._snapshots[name]) == key(snapshot)]
            remaining = kept or remaining
        is_one = len(remaining) == 1
        rule = ForwardEvidence.SEQ_NR_SOURCE if is_one else ForwardEvidence.SEQ_NR_DECOMPOSED
        return Link(self._yielding(remaining), rule)

    def _yielding(self, names: Sequence[str]) -> str:
        """Return the node with an op's value: the last one, except for a padded product.

        Source: ``torch/_inductor/fx_passes/pad_mm.py``, ``pad_mm``: the padding is cut off after
        it.
        """
        op = self._snapshots[names[-1]].lineage.original_aten
        same = (name for name in names if self._snapshots[name].lineage.original_aten == op)
        undecomposed = [name for name in same if self._ops[name] == op]
        return (undecomposed or names)[-1]

    def _of_line(self, snapshot: NodeSnapshot) -> Link | None:
        """Match by line: a replayed view, or a pattern's node, within the same modules."""
        candidates = self._by_stack.get(snapshot.stack_text or "", [])
        if snapshot.lineage.modules:
            modules = snapshot.lineage.modules
            candidates = [n for n in candidates if self._snapshots[n].lineage.modules == modules]
        return Link(candidates[-1], ForwardEvidence.STACK) if candidates else None


_SOURCE_KEYS: tuple[Callable[[NodeSnapshot], object], ...] = (
    lambda node: node.lineage.source_fns,
    lambda node: node.lineage.modules,
    lambda node: node.stack_text,
)
"""What tells candidates with one number apart, in this order."""
