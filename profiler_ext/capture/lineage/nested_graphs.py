"""Lineage of nodes in the bodies of higher-order ops, through the calls around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple

import torch.fx

from profiler_ext.capture.lineage import autograd_nodes, gradient_sums, node_rules
from profiler_ext.capture.lineage.links import (
    PASSTHROUGH_OPS,
    differentiates,
    forward_name,
    joint_name,
    link_of,
)
from profiler_ext.capture.lineage.stage import Compilation, Lineages, Link, Stage
from profiler_ext.capture.traces.creations import Creations
from profiler_ext.capture.traces.metadata import lineage_of, main_of
from profiler_ext.recall.dynamo_graph import DynamoGraph, Run, Source, common_source
from profiler_ext.records.evidence import ForwardEvidence, Mechanism
from profiler_ext.records.lineage import Lineage
from profiler_ext.torch_compat import fx

Named = Callable[[torch.fx.Node, Compilation], str | None]


def called_graph(stage: Stage) -> Lineages:
    """Name a nested graph's nodes in the joint graph, with all calls on the way."""
    # ``invoke_subgraph`` compiles a region once for several calls, so the calls are in the names.
    if not stage.prefix:
        return {}
    joint_path = _path_of(stage, joint_name)
    forward = _path_of(stage, forward_name)
    return {
        node.name: _linked(node, _named(node, stage, joint_path), stage, forward)
        for node in stage.nodes
    }


def _named(node: torch.fx.Node, stage: Stage, path: str | None) -> Lineage:
    joint = stage.compilation.joint_of(node.graph)
    is_made = node.name in stage.compilation.replaced.get(node.graph, {}) or (
        joint is not None and (node.name in joint.made or not joint.is_own_replacement(node))
    )
    name = None if path is None or is_made else f"{path}/{node.name}"
    return replace(stage.lineages[node.name], joint_name=name)


def _linked(node: torch.fx.Node, own: Lineage, stage: Stage, path: str | None) -> Lineage:
    """Return a node's lineage, with its forward node named by the region's forward call."""
    # A body whose own trace has no link differentiates what its call does.
    link = own.forward_node
    forward = None if link is None or path is None else f"{path}/{link}"
    evidence = None if forward is None else own.forward_evidence
    if forward is None and stage.caller is not None and differentiates(node, lineage_of(node.meta)):
        call = link_of(stage.caller, stage.compilation)
        forward = call.forward_node if call else None
        evidence = ForwardEvidence.OF_CALL if call else None
    return replace(own, forward_node=forward, forward_evidence=evidence)


class Innermost(NamedTuple):
    """The call of a nested graph."""

    call: torch.fx.Node
    inside: str  # the prefix of its nodes' names in the calling graph
    around: str | None  # of the calling graph's forward in the joint graph; ``None`` if unknown


def innermost_call(stage: Stage) -> Innermost | None:
    """Return the call of the graph that nodes are in; ``None`` if it is not found."""
    if stage.caller is None:
        return None
    *outer, (call, which) = calls_to_graph(stage.prefix, stage.caller)
    path = _path(_names(outer, lambda node: forward_name(node, stage.compilation)))
    if call is None:
        return None
    inside = f"{call.name}/" if which is None else f"{call.name}/{which}/"
    return Innermost(call, inside, f"{path}/" if path else path)


def _path_of(stage: Stage, named: Named) -> str | None:
    """Return the joined names of the calls on the way to a graph; ``None`` if one has none."""
    if stage.caller is None:
        return None
    call_path = calls_to_graph(stage.prefix, stage.caller)
    return _path(_names(call_path, lambda node: named(node, stage.compilation)))


def _names(
    call_path: Iterable[tuple[torch.fx.Node | None, str | None]],
    named: Callable[[torch.fx.Node], str | None],
) -> Iterator[str | None]:
    """Yield the names of the calls, and of their graph if they have several."""
    for node, which in call_path:
        yield named(node) if node else None
        if which is not None:
            yield which


def calls_to_graph(
    prefix: str, outermost: torch.fx.Node
) -> Iterator[tuple[torch.fx.Node | None, str | None]]:
    """Yield the calls on the way to a nested graph, outermost first, ``None`` if not found.

    With each, the name of the graph called if it has several.
    """
    parts = iter(prefix.split("/"))
    graph: torch.fx.Graph | None = outermost.graph
    for name in parts:
        node = next((node for node in graph.nodes if node.name == name), None) if graph else None
        graphs = dict(fx.nested(node)) if node else {}
        which = next(iter(graphs), None) if len(graphs) < 2 else next(parts, None)
        graph = graphs[which].graph if which in graphs else None
        yield node if graph else None, which if len(graphs) > 1 else None


def _path(names: Iterable[str | None]) -> str | None:
    parts = list(names)
    return None if None in parts else "/".join(part for part in parts if part)


Graph = tuple[str, torch.fx.GraphModule]
"""The caller's attribute for a nested graph, and the graph."""


def body_of_call(stage: Stage) -> Lineages:
    """Give a backward body's node the place of its forward body's node."""
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
        modules=node_rules.user_modules(body.modules, stage.dynamo),
        is_gradient_acc=own.is_gradient_acc or body.is_gradient_acc,
    ).by(Mechanism.BODY)
    if around is None:
        return matched
    forward = None if body.forward_node is None else around + body.forward_node
    return replace(matched, forward_node=forward, forward_evidence=body.forward_evidence)


def inner_prefix(outer: str, attribute: str, graphs: int) -> str:
    """Return the prefix of a nested graph's names: its caller, and which one of several."""
    return f"{outer}/{attribute}/" if graphs > 1 else f"{outer}/"


def is_retraced(creations: Creations) -> bool:
    """Tell whether a whole graph was made while one autograd node ran, so is not differentiated."""
    ran = {creation.autograd_node for creation in creations.values()}
    has_new_numbers = any(made.until > made.since for made in list(creations.values())[1:])
    return len(ran) == 1 and None not in ran and not has_new_numbers


def find_bodies(
    gm: torch.fx.GraphModule,
    links: Mapping[str, Link],
    creations_of: Callable[[torch.fx.Graph], Creations],
    traced: Iterable[Creations],
) -> Lineages:
    """Return the lineage of the nodes of a joint graph's backward bodies, by qualified name."""
    # The backward of a ``torch.cond`` branch is traced while autograd runs, with the branch's
    # forward in it once more, then traced again on the line of the call. The first trace has the
    # autograd nodes, the forward's body has the lines; they are matched op by op.
    if not any(isinstance(child, torch.fx.GraphModule) for child in gm.children()):
        return {}
    calls = {node.name: tuple(fx.nested(node)) for node in gm.graph.nodes}
    lineages: dict[str, Lineage] = {}
    for name, graphs in calls.items():
        forward = links[name].forward_node if name in links else ""
        if not graphs or len(graphs) != len(calls.get(forward, ())):
            lineages.update(_recomputed_bodies(forward, calls.get(forward, ()), name, graphs))
            continue
        for (inner, forward_side), (attribute, backward_side) in zip(
            calls[forward], graphs, strict=True
        ):
            forward_prefix = inner_prefix(forward, inner, len(graphs))
            backward_prefix = inner_prefix(name, attribute, len(graphs))
            matched = _match_body(
                creations_of(forward_side.graph),
                creations_of(backward_side.graph),
                traced,
                forward_prefix,
            )
            lineages.update((backward_prefix + node, where) for node, where in matched)
    return lineages


def _recomputed_bodies(
    forward: str, forward_side: Sequence[Graph], backward: str, backward_side: Sequence[Graph]
) -> Iterator[tuple[str, Lineage]]:
    """Match bodies that a backward runs once more: FlexAttention recomputes its scores."""
    for attribute, body in backward_side:
        same = [
            (inner, graph) for inner, graph in forward_side if _targets(graph) == _targets(body)
        ]
        for inner, graph in same if len(same) == 1 else ():
            backward_prefix = inner_prefix(backward, attribute, len(backward_side))
            forward_prefix = inner_prefix(forward, inner, len(forward_side))
            pairs = zip(fx.call_nodes(body.graph), fx.call_nodes(graph.graph), strict=True)
            for own, original in pairs:
                link = Link(forward_prefix + original.name, ForwardEvidence.RECOMPUTED)
                yield backward_prefix + own.name, _with_link(lineage_of(own.meta), link)


def _with_link(lineage: Lineage, link: Link) -> Lineage:
    return replace(lineage, forward_node=link.forward_node, forward_evidence=link.evidence)


def _targets(graph: torch.fx.GraphModule) -> list[object]:
    return [node.target for node in fx.call_nodes(graph.graph)]


def _match_body(
    forward: Creations, body: Creations, traced: Iterable[Creations], prefix: str
) -> Iterator[tuple[str, Lineage]]:
    first = _first_trace(body, traced) if is_retraced(body) else None
    if first is None:
        return
    made = autograd_nodes.forward_node_of(first)
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
    """Mark a node as a sum; for a value given to the body, the line is that of a use."""
    summing = replace(own, is_gradient_acc=True)
    rule = ForwardEvidence.GRADIENT_SUM
    return summing if value is None else _with_link(summing, replace(link, evidence=rule))


def _summed(first: Creations) -> dict[str, str | None]:
    """Return the sums of gradients, with the node that made the value; ``None`` for an input."""
    sums = frozenset(n for n, creation in first.items() if creation.lineage.is_gradient_acc)
    return dict.fromkeys(sums) | dict(
        gradient_sums.summed_values(first, sums, autograd_nodes.AutogradNodeIndex(first).call_of)
    )


def _first_trace(body: Creations, traced: Iterable[Creations]) -> Creations | None:
    """Return the trace in which autograd made a body: the same ops with the same inputs."""
    same = (t for t in traced if t.keys() == body.keys() and _shape(t) == _shape(body))
    traces = [
        creations
        for creations in same
        if len({creation.autograd_node for creation in creations.values()}) > 1
    ]
    made = [autograd_nodes.forward_node_of(creations) for creations in traces]
    return traces[0] if traces and all(links == made[0] for links in made) else None


def _shape(creations: Creations) -> list[tuple[str, tuple[str, ...]]]:
    return [(creation.target, creation.inputs) for creation in creations.values()]


def _ops(creations: Creations) -> list[str]:
    return [name for name, creation in creations.items() if creation.target not in PASSTHROUGH_OPS]


_NO_SOURCE = Source((), ())


def graph_of_call(stage: Stage) -> Lineages:
    """Give the nodes of a ``score_mod`` their place in Dynamo's graph; retracing lost it."""
    # A call that a pass made carries other graphs.
    dynamo, caller = stage.dynamo, stage.caller
    if dynamo is None or caller is None or stage.compilation.represented_nodes(caller):
        return {}
    call = fx.source_fns(caller.meta)
    lineages: dict[str, Lineage] = {}
    for node in stage.nodes if call in dynamo.inlined else ():
        own = stage.lineages[node.name]
        if own.source_fns == call:
            source = _source(node, caller, dynamo, call)
            lineages[node.name] = replace(own, stack=source.stack).by(Mechanism.CARRIED)
    return lineages


def _source(
    node: torch.fx.Node, caller: torch.fx.Node, dynamo: DynamoGraph, call: tuple[str, ...]
) -> Source:
    """Return where a node of a carried graph was called."""
    # The derivative of a ``score_mod`` has other ops: it has a line if the ``score_mod`` is on one.
    inner = fx.call_nodes(node.graph)
    ops = tuple(fx.op_name(each) for each in inner)
    graphs = [module.graph for _, module in fx.nested(caller)]
    is_mask = len(graphs) > 1 and node.graph is graphs[-1]
    same = dynamo.inlined_source(call, ops, inner.index(node))
    return same or dynamo.only_source(call, int(is_mask)) or _NO_SOURCE


def place_of_run(stage: Stage) -> Lineages:
    """Give the nodes of a region traced for another call the lines and modules of this one."""
    dynamo, caller = stage.dynamo, stage.caller
    if dynamo is None or not dynamo.runs.of_call:
        return {}
    if caller is None:
        return _in_place_of_calls(stage, dynamo)
    call_path = [call for call, _ in calls_to_graph(stage.prefix, caller) if call is not None]
    if not (runs := _runs_on(call_path, dynamo)):
        return {}
    return {name: _lineage_of_runs(own, runs) for name, own in stage.lineages.items()}


def _in_place_of_calls(stage: Stage, dynamo: DynamoGraph) -> Lineages:
    """Do the same for a region whose graph a pass inlined at its calls."""
    of_node, lineages = dynamo.runs.of_node, stage.lineages.items()
    matching = {name: of_node.get((own.source_fns, own.stack)) for name, own in lineages}
    return {
        name: _lineage_of_runs(stage.lineages[name], runs)
        for name, runs in matching.items()
        if runs
    }


def _runs_on(call_path: Sequence[torch.fx.Node], dynamo: DynamoGraph) -> Sequence[Run]:
    """Return the runs for a path of calls."""
    names = [fx.source_fns(call.meta) for call in call_path]
    while names and names[-1] not in dynamo.runs.of_call:
        names.pop()  # a pass made that call
    if not names:
        return ()
    own_lineage = lineage_of(call_path[len(names) - 1].meta)
    modules = node_rules.user_modules(own_lineage.modules, dynamo) if own_lineage.modules else ()
    on_path = [run for run in dynamo.runs.of_call[names[-1]] if run.is_on(names)]
    matching = _matching_or_all(
        on_path, lambda run: bool(own_lineage.stack) and run.call.stack == own_lineage.stack
    )
    return _matching_or_all(matching, lambda run: bool(modules) and run.call.modules == modules)


def _matching_or_all(runs: Sequence[Run], predicate: Callable[[Run], bool]) -> Sequence[Run]:
    return [run for run in runs if predicate(run)] or runs


def _lineage_of_runs(own: Lineage, runs: Sequence[Run]) -> Lineage:
    traced_place = Source(own.stack, own.modules)
    place = common_source([run.place(traced_place, own.source_fns) for run in runs])
    return replace(own, stack=place.stack, modules=place.modules)
