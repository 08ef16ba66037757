"""Owns what the nodes of a region take from the graph around it, which is not compiled with it.

A region's graph is traced anew: its nodes have other names, the numbers of no joint graph, and
no forward source. Each leads back to the node that ran while it was traced.
"""

from __future__ import annotations

from dataclasses import replace

import torch.fx

from profiler_ext.capture.lineage.joint_graph import Lineages, TracedFrom
from profiler_ext.capture.lineage.stage import Stage
from profiler_ext.records import Lineage, Mechanism


def region_of_graph(stage: Stage) -> Lineages:
    """Say of a region's node where that comes from which it was traced from."""
    region = stage.joint.region if stage.joint else None
    if region is None:
        return {}
    return {node.name: _region_lineage(node, stage, region) for node in stage.nodes}


def _region_lineage(node: torch.fx.Node, stage: Stage, region: TracedFrom) -> Lineage:
    own, traced = stage.lineages[node.name], stage.compilation.traced_name(node) or ""
    outer = region.lineages.get(traced)
    # The number that a region's node was traced anew with is of no joint graph.
    lineage = own.traced_from(outer).by(Mechanism.REGION) if outer else replace(own, seq_nr=None)
    return replace(lineage, copied_from=lineage.copied_from or region.names.get(traced))
