"""Owns which collectives a bucket's node serves: one collective that a pass made of several.

Bucketing (``torch/_inductor/fx_passes/bucketing.py``) copies the metadata of the first of the
collectives onto all that it makes; what FX reports as replaced tells which node serves which.
"""

from __future__ import annotations

import torch.fx

from profiler_ext.capture.lineage.joint_graph import Lineages
from profiler_ext.capture.lineage.stage import Compilation, Stage
from profiler_ext.capture.traces.metadata import NodeSnapshot
from profiler_ext.records import Mechanism
from profiler_ext.torch_compat import fx


def member_of_bucket(stage: Stage) -> Lineages:
    """Say of a bucket's node that serves one collective where that comes from."""
    served = {node.name: bucket_members(node, stage.compilation) for node in stage.nodes}
    return {
        name: each[0].lineage.by(Mechanism.BUCKET)
        for name, each in served.items()
        if len(each) == 1
    }


def bucket_members(node: torch.fx.Node, compilation: Compilation) -> tuple[NodeSnapshot, ...]:
    """Return the collectives that a bucket's node serves; of a wait, their waits.

    Args:
        node: a node that a bucketing pass made.
        compilation: what is known of its compile.
    """
    rows = compilation.made_from(node)
    if not rows or not all(fx.is_collective(row.lineage.original_aten) for row in rows):
        return ()
    waits = fx.is_wait(fx.original_aten(node.meta))
    return tuple(row for row in rows if fx.is_wait(row.lineage.original_aten) == waits)
