"""Owns what a node of compiled autograd's graph takes from what it is a copy of."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from profiler_ext.capture.lineage.stage import Lineages, Stage
from profiler_ext.capture.traces.metadata import NodeSnapshot
from profiler_ext.recall.dynamo_graph import CopySources, NodeWithEvidence
from profiler_ext.records import FxNode, Lineage, LineEvidence


def copied_by_autograd(stage: Stage) -> Lineages:
    """Say of a copy all that is known of the backward node that it copies."""
    copy_sources = stage.dynamo.copy_sources if stage.dynamo else {}
    lineages: dict[str, Lineage] = {}
    for node in stage.nodes:
        own = stage.lineages[node.name]
        copy = _copied_from(own, stage.compilation.stands_for(node), copy_sources)
        if copy is not None:
            lineages[node.name] = _copied_lineage(
                dataclasses.replace(own, copied_from=copy), copy_sources
            )
    return lineages


def all_with_copied_lineage(
    nodes: Iterable[NodeWithEvidence], copy_sources: CopySources
) -> tuple[NodeWithEvidence, ...]:
    """Return nodes with what this process knows of their origins, and how it knows it.

    A record of other source has other names, which lead nowhere here; and of which call a node
    is a copy, a record of another process does not tell.
    """
    return tuple(_with_copied_lineage(node, evidence, copy_sources) for node, evidence in nodes)


def _with_copied_lineage(
    node: FxNode, evidence: LineEvidence, copy_sources: CopySources
) -> NodeWithEvidence:
    source = copy_sources.get(node.lineage.copied_from or "")
    if source is None or evidence is LineEvidence.STALE:
        unknown = dataclasses.replace(node.lineage, copied_call=None)
        return dataclasses.replace(node, lineage=unknown), evidence
    return dataclasses.replace(node, lineage=_copied_lineage(node.lineage, copy_sources)), source[1]


def _copied_lineage(own: Lineage, copy_sources: CopySources) -> Lineage:
    source = copy_sources.get(own.copied_from or "")
    return own if source is None else own.copied(source[0].lineage)


def _copied_from(
    own: Lineage, replaced: Iterable[NodeSnapshot], copy_sources: CopySources
) -> str | None:
    """Return the node of compiled autograd's graph that a node, or what it stands for, is of.

    A matrix product that a pattern merged with a sum of gradients stands for the product.
    """
    rows = (own, *reversed([row.lineage for row in replaced]))
    names = [row.copied_from for row in rows if row.copied_from is not None]
    sums = {
        name
        for name in names
        if name in copy_sources and copy_sources[name][0].lineage.is_gradient_acc
    }
    return next((name for name in names if name not in sums), names[0] if names else None)
