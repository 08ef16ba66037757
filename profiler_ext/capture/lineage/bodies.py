"""Owns the backward bodies of higher-order ops: their nodes lead to the forward body's lines.

The backward of a branch (``torch.cond``) is traced while autograd runs, with the branch's forward
work in it once more; that graph is then traced again to become the body, and torch gives all of
it the line of the call. The first trace has the autograd nodes, and the forward's own body has
the lines; bodies that are not the same op by op are left as torch has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

import torch.fx

from profiler_ext.capture.lineage.autograd_nodes import AutogradNodeIndex, forward_node_of
from profiler_ext.capture.lineage.joint_graph import Lineages, Link
from profiler_ext.capture.lineage.links import PASSTHROUGH_OPS
from profiler_ext.capture.lineage.nested_calls import innermost_call
from profiler_ext.capture.lineage.own import user_modules
from profiler_ext.capture.lineage.stage import Stage
from profiler_ext.capture.lineage.sums import summed_values
from profiler_ext.capture.traces.creations import Creations
from profiler_ext.capture.traces.metadata import lineage_of, main_of
from profiler_ext.records import ForwardEvidence, Lineage, Mechanism
from profiler_ext.torch_compat import fx

Graph = tuple[str, torch.fx.GraphModule]
"""A nested graph, and the attribute of its caller that names it."""


def body_of_call(stage: Stage) -> Lineages:
    """Say of a backward body's node that it stands where the forward body's does."""
    nested = innermost_call(stage)
    joint = stage.compilation.joint_of(nested.call.graph) if nested else None
    if nested is None or joint is None:
        return {}
    lineages: dict[str, Lineage] = {}
    for node in stage.nodes if joint.findings.bodies else ():
        main = main_of(stage.compilation.represented_nodes(node))
        body = joint.findings.bodies.get(nested.inside + (main.name if main else node.name))
        if body is not None:
            own = stage.lineages[node.name]
            lineages[node.name] = _body_lineage(stage, own, body, nested.around)
    return lineages


def _body_lineage(stage: Stage, own: Lineage, body: Lineage, around: str | None) -> Lineage:
    matched = replace(
        own,
        stack=body.stack,
        source_fns=body.source_fns,
        modules=user_modules(body.modules, stage.dynamo),
        is_gradient_acc=own.is_gradient_acc or body.is_gradient_acc,
    ).by(Mechanism.BODY)
    if around is None:
        return matched
    forward = None if body.forward_node is None else around + body.forward_node
    return replace(matched, forward_node=forward, forward_evidence=body.forward_evidence)


def inner_prefix(outer: str, attribute: str, graphs: int) -> str:
    """Return what names a nested graph: its caller, and which one where there are several.

    Args:
        outer: the caller's name.
        attribute: the attribute of the caller's module that holds the graph.
        graphs: how many graphs the caller has.
    """
    return f"{outer}/{attribute}/" if graphs > 1 else f"{outer}/"


def is_retraced(creations: Creations) -> bool:
    """Tell whether a whole graph was made while one autograd node ran: its numbers are that one's.

    No number was given between its nodes, so none of them was differentiated there.
    """
    ran = {creation.autograd_node for creation in creations.values()}
    return len(ran) == 1 and None not in ran and not _numbers_given(creations)


def _numbers_given(creations: Creations) -> bool:
    ordered = list(creations.values())
    return any(creation.until > creation.since for creation in ordered[1:])


def find_bodies(
    gm: torch.fx.GraphModule,
    links: Mapping[str, Link],
    creations_of: Callable[[torch.fx.Graph], Creations],
    traced: Iterable[Creations],
) -> Lineages:
    """Lead the nodes of a joint graph's backward bodies, by qualified names.

    Args:
        gm: the joint graph.
        links: its backward nodes, calls of higher-order ops included, to their forward nodes.
        creations_of: how the nodes of a nested graph were made.
        traced: how those of the graphs were made that were traced lately.

    Returns:
        Where those nodes come from; what nothing leads is absent.
    """
    if not any(isinstance(child, torch.fx.GraphModule) for child in gm.children()):
        return {}
    calls = {node.name: tuple(fx.nested(node)) for node in gm.graph.nodes}
    lineages: dict[str, Lineage] = {}
    for name, graphs in calls.items():
        forward = links[name].forward_node if name in links else ""
        if not graphs or len(graphs) != len(calls.get(forward, ())):
            lineages.update(_recomputed_bodies(forward, calls.get(forward, ()), name, graphs))
            continue
        for (inner, forward_side), (attribute, backward_side) in zip(calls[forward], graphs, strict=True):
            forward_prefix = inner_prefix(forward, inner, len(graphs))
            backward_prefix = inner_prefix(name, attribute, len(graphs))
            matched = _match_body(creations_of(forward_side.graph), creations_of(backward_side.graph), traced, forward_prefix)
            lineages.update((backward_prefix + node, where) for node, where in matched)
    return lineages


def _recomputed_bodies(
    forward: str, forward_side: Sequence[Graph], backward: str, backward_side: Sequence[Graph]
) -> Iterator[tuple[str, Lineage]]:
    """Lead bodies that a backward runs once more: FlexAttention makes its scores again."""
    for attribute, body in backward_side:
        same = [(inner, graph) for inner, graph in forward_side if _targets(graph) == _targets(body)]
        for inner, graph in same if len(same) == 1 else ():
            backward_prefix = inner_prefix(backward, attribute, len(backward_side))
            forward_prefix = inner_prefix(forward, inner, len(forward_side))
            for own, original in zip(_calls(body), _calls(graph), strict=True):
                link = Link(forward_prefix + original.name, ForwardEvidence.RECOMPUTED)
                yield backward_prefix + own.name, _with_link(lineage_of(own.meta), link)


def _with_link(lineage: Lineage, link: Link) -> Lineage:
    return replace(lineage, forward_node=link.forward_node, forward_evidence=link.evidence)


def _targets(graph: torch.fx.GraphModule) -> list[object]:
    return [node.target for node in _calls(graph)]


def _calls(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [node for node in graph.graph.nodes if node.op == "call_function"]


def _match_body(
    forward: Creations, body: Creations, traced: Iterable[Creations], prefix: str
) -> Iterator[tuple[str, Lineage]]:
    first = _first_trace(body, traced) if is_retraced(body) else None
    if first is None:
        return
    made = forward_node_of(first)
    around = next(iter(first.values())).autograd_node
    recomputed = list(takewhile(lambda name: first[name].autograd_node == around, _ops(first)))
    originals = _ops(forward)
    if [first[n].target for n in recomputed] != [forward[n].target for n in originals]:
        return
    original = dict(zip(recomputed, originals, strict=True))
    for node, same in original.items():
        link = Link(prefix + same, ForwardEvidence.RECOMPUTED)
        yield node, _with_link(forward[same].lineage, link)
    values = _summed(first)
    for node, differentiated in made.items():
        matched = original.get(values.get(node) or differentiated)
        if node in original or matched is None:
            continue
        link = Link(prefix + matched, ForwardEvidence.AUTOGRAD_NODE_OF_BODY)
        own = forward[matched].lineage
        yield node, _summing(own, link, values[node]) if node in values else _with_link(own, link)


def _summing(own: Lineage, link: Link, value: str | None) -> Lineage:
    """Say that a node sums; of a value that the body is given the line is that of a use."""
    summing = replace(own, is_gradient_acc=True)
    rule = ForwardEvidence.GRADIENT_SUM
    return summing if value is None else _with_link(summing, replace(link, evidence=rule))


def _summed(first: Creations) -> dict[str, str | None]:
    """Return the sums of gradients, with the node that made the value; ``None`` of an input."""
    sums = frozenset(n for n, creation in first.items() if creation.lineage.is_gradient_acc)
    return dict.fromkeys(sums) | dict(summed_values(first, sums, AutogradNodeIndex(first).call_of))


def _first_trace(body: Creations, traced: Iterable[Creations]) -> Creations | None:
    """Return the trace in which autograd made a body, of the same ops with the same inputs."""
    same = (t for t in traced if t.keys() == body.keys() and _shape(t) == _shape(body))
    traces = [
        creations
        for creations in same
        if len({creation.autograd_node for creation in creations.values()}) > 1
    ]
    made = [forward_node_of(creations) for creations in traces]
    return traces[0] if traces and all(links == made[0] for links in made) else None


def _shape(creations: Creations) -> list[tuple[str, tuple[str, ...]]]:
    return [(creation.target, creation.inputs) for creation in creations.values()]


def _ops(creations: Creations) -> list[str]:
    """The nodes that do more than hand a value on."""
    return [name for name, creation in creations.items() if creation.target not in PASSTHROUGH_OPS]
