"""Owns what a node of compiled autograd's graph takes from what it is a copy of."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.stage import Stage
from profiler_ext.capture.traces.metadata import NodeSnapshot
from profiler_ext.recall.dynamo_graph import CopySources
from profiler_ext.records import FxNode, Lineage, LineEvidence


def copied_by_autograd(stage: Stage) -> Lineages:
    """Say of a copy all that is known of the backward node that it copies."""
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
    """Return nodes with what this process knows of their origins, and how it knows it.

    A record of other source has other names, which lead nowhere here; and of which call a node
    is a copy, a record of another process does not tell.

    Args:
        nodes: nodes of a graph of compiled autograd's, each with its evidence.
        copy_sources: where the nodes of that graph come from in this process.
    """
    return tuple(
        dataclasses.replace(node, lineage=_in_this_process(node.lineage, copy_sources))
        for node in nodes
    )


def _in_this_process(own: Lineage, copy_sources: CopySources) -> Lineage:
    source = copy_sources.get(own.copied_from or "")
    if source is None or own.evidence is LineEvidence.STALE:
        return dataclasses.replace(own, copied_call=None)
    return dataclasses.replace(own.copied(source), evidence=source.evidence)


def _copied_lineage(own: Lineage, copy_sources: CopySources) -> Lineage:
    source = copy_sources.get(own.copied_from or "")
    return own if source is None else own.copied(source)


def _copied_from(
    own: Lineage, replaced: Iterable[NodeSnapshot], copy_sources: CopySources
) -> str | None:
    """Return the node of compiled autograd's graph that a node, or what it stands for, is of.

    A matrix product that a pattern merged with a sum of gradients stands for the product.
    """
    rows = (own, *reversed([row.lineage for row in replaced]))
    names = [row.copied_from for row in rows if row.copied_from is not None]
    sums = {name for name in names if name in copy_sources and copy_sources[name].is_gradient_acc}
    return next((name for name in names if name not in sums), names[0] if names else None)
