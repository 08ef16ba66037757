"""The description of a joint graph after its passes, before it is partitioned.

Source: ``torch/fx/experimental/proxy_tensor.py`` for values and ops,
``torch/_functorch/_aot_autograd/graph_capture_wrappers.py`` for tags.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch.fx

from profiler_ext.capture.lineage import functionalization, nested_graphs, stage
from profiler_ext.capture.lineage.gradients import Gradients, find_gradient_hooks, find_gradients
from profiler_ext.capture.lineage.links import find_links, follow_replaced
from profiler_ext.capture.traces.creations import Creations, with_overwritten
from profiler_ext.capture.traces.finders import Finders
from profiler_ext.capture.traces.metadata import NodeSnapshot, Replaced, snapshot
from profiler_ext.records.evidence import ForwardEvidence
from profiler_ext.torch_compat import fx, inputs, ops
from profiler_ext.torch_compat.fx import has_tangents
from profiler_ext.torch_compat.names import fx_names

_ON_SOME_NODE = (fx_names.VAL, fx_names.ORIGINAL_ATEN, fx_names.PARTITIONER_TAG)


def check_metadata_keys(graph: torch.fx.Graph) -> None:
    """Raise PrivateNameError if no node of a joint graph has a key that torch puts on them."""
    # One node may lack a key; not all. Compiled autograd's copies have none of them.
    calls = fx.call_nodes(graph)
    if not calls or not has_tangents(graph):
        return
    ops = [node for node in calls if fx_names.OP_OVERLOAD.is_type_of(node.target)]
    for key in _ON_SOME_NODE:
        # A graph of regions alone has no op of its own.
        nodes = ops if key is fx_names.ORIGINAL_ATEN else calls
        if nodes and not any(key.text in node.meta for node in nodes):
            key.refuse(f"none of {len(nodes)} traced nodes has {key.name!r}")


def describe_joint(
    gm: torch.fx.GraphModule,
    replaced: Replaced,
    mutated: stage.Lineages | None = None,
    creations: Creations | None = None,
    overwritten: Mapping[str, NodeSnapshot] | None = None,
    finders: Finders | None = None,
) -> stage.JointGraph:
    """Describe a joint graph after its passes and before it is partitioned."""
    check_metadata_keys(gm.graph)
    nodes = fx.call_nodes(gm.graph)
    finders = finders or Finders()
    findings = _findings(gm.graph, nodes, replaced, creations or {}, overwritten or {}, finders)
    return stage.JointGraph(
        id=_digest(nodes),
        names=frozenset(node.name for node in nodes),
        fingerprint=stage.fingerprint_of(gm.graph),
        findings=replace(findings, mutated=mutated or {}, lost=finders.lost),
    )


def _findings(
    graph: torch.fx.Graph,
    nodes: Sequence[torch.fx.Node],
    replaced: Replaced,
    creations: Creations,
    overwritten: Mapping[str, NodeSnapshot],
    finders: Finders,
) -> stage.JointFindings:
    find = finders.find
    lineages = {name: before.lineage for name, before in overwritten.items()}
    creations = find("creations", with_overwritten, creations, lineages) or {}
    replayed = find("replayed_views", functionalization.find_replayed_views, creations) or {}
    snapshots = {
        n.name: _snapshot(n, overwritten, replayed).filled_by(replaced.get(n.name, ()))
        for n in nodes
    }
    none = Gradients({}, {}, lambda _: None)
    gradients = find("gradients", find_gradients, creations) or none
    return stage.JointFindings(
        links=find("links", _links, nodes, snapshots, creations, gradients, replaced) or {},
        replaced=replaced,
        overwritten=lineages,
        replayed_views=replayed,
        hooks=find("hooks", find_gradient_hooks, creations) or {},
        gradients=gradients.places,
        random=find("random", _random, nodes) or {},
        outputs=find("outputs", _outputs, graph, snapshots) or {},
    )


def _links(
    nodes: Sequence[torch.fx.Node],
    snapshots: Mapping[str, NodeSnapshot],
    creations: Creations,
    gradients: Gradients,
    replaced: Replaced,
) -> dict[str, stage.Link]:
    links = {} if nested_graphs.is_retraced(creations) else find_links(nodes, snapshots)
    made = gradients.made
    # The nodes left with that number are neighbours without a gradient, at other lines.
    apart = {name for name, link in links.items() if _are_apart(name, link, snapshots)}
    numbers = {snapshots[name].lineage.seq_nr for name in apart}
    removed_numbers = {
        ran.number
        for name, creation in creations.items()
        if (ran := creation.autograd_node) is not None and ran.number in numbers
        if (node := made(name)) is not None and node not in snapshots
    }
    neighbours = {name for name in apart if snapshots[name].lineage.seq_nr in removed_numbers}
    links = {name: link for name, link in links.items() if name not in neighbours}
    every = {**links, **_by_autograd(links, gradients.made), **gradients.links}
    return follow_replaced(every, nodes, replaced)


def _are_apart(name: str, link: stage.Link, snapshots: Mapping[str, NodeSnapshot]) -> bool:
    lines = {snapshots[name].stack_text, snapshots[link.forward_node].stack_text}
    return len(lines - {None}) > 1


def _random(nodes: Sequence[torch.fx.Node]) -> dict[stage.OpCall, NodeSnapshot]:
    drawing = filter(ops.is_random, nodes)
    return {
        stage.op_call(node.target, node.args): snapshot(node.name, node.meta) for node in drawing
    }


def _outputs(
    graph: torch.fx.Graph, snapshots: Mapping[str, NodeSnapshot]
) -> dict[int, NodeSnapshot]:
    """Return the nodes that a graph returns, by output index."""
    yielded = inputs.outputs(graph).items()
    return {at: snapshots[node.name] for at, node in yielded if node.name in snapshots}


def _snapshot(
    node: torch.fx.Node, was: Mapping[str, NodeSnapshot], replayed: stage.Lineages
) -> NodeSnapshot:
    own = snapshot(node.name, node.meta)
    if (before := was.get(node.name)) is not None:
        lineage = own.lineage.traced_from(before.lineage)
        own = replace(own, lineage=lineage, stack_text=before.stack_text)
    first = replayed.get(node.name)
    if first is None:
        return own
    # Torch gives a whole chain of replayed views the number of its last one.
    return replace(own, lineage=replace(own.lineage.with_place_of(first), seq_nr=first.seq_nr))


def _by_autograd(
    links: Mapping[str, stage.Link], made: Callable[[str], str | None]
) -> dict[str, stage.Link]:
    """Replace links by line alone with the autograd node's: the line may be a loop's."""
    by_line = (name for name, link in links.items() if link.evidence is ForwardEvidence.STACK)
    forward = {name: made(name) for name in by_line}
    rule = ForwardEvidence.AUTOGRAD_NODE
    return {name: stage.Link(node, rule) for name, node in forward.items() if node is not None}


def _digest(nodes: list[torch.fx.Node]) -> str:
    text = "\n".join(f"{node.name} {fx.target_name(node.target)}" for node in nodes)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
