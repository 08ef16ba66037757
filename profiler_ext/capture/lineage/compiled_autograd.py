"""Lineage in compiled autograd's graph: copies of backward nodes, hooks, and sums of copies.

AOTAutograd drops the copies' stacks: https://github.com/pytorch/pytorch/issues/133567.

Source: ``torch/_dynamo/compiled_autograd.py``, ``AutogradCompilerInstance``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch.fx

from profiler_ext.capture.lineage.stage import Lineages, Stage
from profiler_ext.capture.traces import metadata, stack_traces
from profiler_ext.recall.dynamo_graph import CopySources
from profiler_ext.records.evidence import LineEvidence, Mechanism
from profiler_ext.records.lineage import Lineage
from profiler_ext.records.provenance import FxNode
from profiler_ext.torch_compat import compiled_autograd, fx
from profiler_ext.torch_compat.compiled_autograd import CopiedNode
from profiler_ext.torch_compat.names import fx_names


def copied_by_autograd(stage: Stage) -> Lineages:
    """Give a copy the lineage of the backward node that it copies."""
    copy_sources = stage.dynamo.copy_sources if stage.dynamo else {}
    lineages: dict[str, Lineage] = {}
    for node in stage.nodes:
        own, replaced = stage.lineages[node.name], stage.compilation.represented_nodes(node)
        if not replaced and own.copied_from is None:
            continue
        copy = _copied_from(own, replaced, copy_sources)
        if copy is not None:
            lineages[node.name] = _copied_lineage(
                dataclasses.replace(own, copied_from=copy), copy_sources
            )
    return lineages


def all_with_copied_lineage(
    nodes: Iterable[FxNode], copy_sources: CopySources
) -> tuple[FxNode, ...]:
    """Return nodes with the lineage that this process knows of their origins."""
    return tuple(
        dataclasses.replace(node, lineage=_in_this_process(node.lineage, copy_sources))
        for node in nodes
    )


def _in_this_process(own: Lineage, copy_sources: CopySources) -> Lineage:
    # A stale record has other names; another process's does not say which call a node copies.
    source = copy_sources.get(own.copied_from or "")
    if source is None or own.evidence is LineEvidence.STALE:
        return dataclasses.replace(own, copied_call=None)
    return dataclasses.replace(own.copied(source), evidence=source.evidence)


def _copied_lineage(own: Lineage, copy_sources: CopySources) -> Lineage:
    source = copy_sources.get(own.copied_from or "")
    return own if source is None else own.copied(source)


def _copied_from(
    own: Lineage, replaced: Iterable[metadata.NodeSnapshot], copy_sources: CopySources
) -> str | None:
    """Return compiled autograd's node that a node is, or was made from."""
    # A product merged with a sum of gradients counts as the product.
    rows = (own, *reversed([row.lineage for row in replaced]))
    names = [row.copied_from for row in rows if row.copied_from is not None]
    sums = {name for name in names if name in copy_sources and copy_sources[name].is_gradient_acc}
    return next((name for name in names if name not in sums), names[0] if names else None)


def copied_from_backward(stage: Stage) -> Lineages:
    """Give a copy the lineage and the call of its node in the backward graph."""
    lineages: dict[str, Lineage] = {}
    for node in stage.nodes:
        copy = compiled_autograd.copied_node(node.name)
        backwards = stage.compilation.backwards
        if copy is None:
            origin = _of_results(node, backwards)
        else:
            source = backwards[copy.aot_id].get(copy.name)
            origin = None if source is None else _of_call(source, copy)
        if origin is not None:
            lineages[node.name] = origin
    return lineages


def _of_results(
    node: torch.fx.Node, backwards: Mapping[int, Mapping[str, FxNode]]
) -> Lineage | None:
    """Return the origin of a copied op with several results: Dynamo names only the results."""
    for user in node.users:
        copy = compiled_autograd.copied_node(user.name)
        nodes = backwards[copy.aot_id] if copy else {}
        result = nodes.get(copy.name) if copy else None
        read = result.inputs[:1] if result else ()
        origin = next((each for each in nodes.values() if (each.name,) == read), None)
        if origin is not None and copy and origin.target == fx.target_name(node.target):
            return _of_call(origin, copy)
    return None


def _of_call(node: FxNode, copy: CopiedNode) -> Lineage:
    return replace(node.lineage, copied_call=copy.call).by(Mechanism.COPIED)


def line_of_hook(stage: Stage) -> Lineages:
    """Give nodes that are no copies the user frames that Dynamo traced."""
    own = (node for node in stage.nodes if compiled_autograd.copied_node(node.name) is None)
    return {node.name: _seen_by_dynamo(node) for node in own}


def _seen_by_dynamo(node: torch.fx.Node) -> Lineage:
    frames = stack_traces.parse_stack(fx.text(node.meta, fx_names.STACK_TRACE))
    users = tuple(frame for frame in frames if not compiled_autograd.is_torch_internal(frame.file))
    lineage = Lineage(stack=users, source_fns=fx.source_fns(node.meta)).by(Mechanism.OWN)
    return replace(
        lineage, evidence=LineEvidence.COMPILED if users else LineEvidence.EAGER_BACKWARD
    )


def sum_of_copies(stage: Stage) -> Lineages:
    """Give a sum of gradients the place of its summands, if they share one."""
    lineages = dict(stage.lineages)
    for node in stage.nodes:
        own = lineages.get(node.name)
        is_known = own is None or own.stack or own.copied_call
        gradients = () if is_known else compiled_autograd.summed_gradients(node)
        if own is not None and gradients:
            of_sum = replace(own, is_gradient_acc=True)
            lineages[node.name] = _sum(of_sum, [lineages.get(n.name, of_sum) for n in gradients])
    return lineages


def _sum(own: Lineage, summed: Sequence[Lineage]) -> Lineage:
    places = {(each.stack, each.modules) for each in summed}
    stack, modules = places.pop()
    if places or not stack:
        return own
    return replace(
        own,
        stack=stack,
        modules=modules,
        joint=_one(each.joint for each in summed),
        copied_call=_one(each.copied_call for each in summed),
        mechanism=Mechanism.GRADIENT_SUM,
        evidence=LineEvidence.GRADIENT,
    )


def _one(values: Iterable[str | None]) -> str | None:
    first, *others = set(values)
    return None if others else first
