"""Owns what a node of compiled autograd's graph takes from what it is a copy of."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from profiler_ext.capture.lineage.stage import Lineages, Stage
from profiler_ext.capture.traces.metadata import Said
from profiler_ext.recall.dynamo_graph import Origins, Sourced
from profiler_ext.records import FxNode, Lineage, LineEvidence


def copied_by_autograd(stage: Stage) -> Lineages:
    """Say of a copy all that is known of the backward node that it copies."""
    origins = stage.dynamo.origins if stage.dynamo else {}
    found: dict[str, Lineage] = {}
    for node in stage.nodes:
        own = stage.lineages[node.name]
        copy = _copied_from(own, stage.compilation.stands_for(node), origins)
        if copy is not None:
            found[node.name] = _led(dataclasses.replace(own, copied_from=copy), origins)
    return found


def all_led(nodes: Iterable[Sourced], origins: Origins) -> tuple[Sourced, ...]:
    """Return nodes with what this process knows of their origins, and how it knows it.

    A record of other source has other names, which lead nowhere here; and of which call a node
    is a copy, a record of another process does not tell.
    """
    return tuple(_node_led(node, evidence, origins) for node, evidence in nodes)


def _node_led(node: FxNode, evidence: LineEvidence, origins: Origins) -> Sourced:
    origin = origins.get(node.lineage.copied_from or "")
    if origin is None or evidence is LineEvidence.STALE:
        unknown = dataclasses.replace(node.lineage, copied_call=None)
        return dataclasses.replace(node, lineage=unknown), evidence
    return dataclasses.replace(node, lineage=_led(node.lineage, origins)), origin[1]


def _led(own: Lineage, origins: Origins) -> Lineage:
    origin = origins.get(own.copied_from or "")
    return own if origin is None else own.copied(origin[0].lineage)


def _copied_from(own: Lineage, replaced: Iterable[Said], origins: Origins) -> str | None:
    """Return the node of compiled autograd's graph that a node, or what it stands for, is of.

    A matrix product that a pattern merged with a sum of gradients stands for the product.
    """
    rows = (own, *reversed([row.lineage for row in replaced]))
    names = [row.copied_from for row in rows if row.copied_from is not None]
    sums = {name for name in names if name in origins and origins[name][0].lineage.is_gradient_acc}
    return next((name for name in names if name not in sums), names[0] if names else None)
